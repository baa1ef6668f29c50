"""Files in, rows with stated public facts out.

::

    values.py         a cell -> its canonical text or number, whatever type its column has
    coding.py         target and sensitive cells -> class and group numbers
    facts.py          the public facts of columns, target, groups and row rules
    schema.py         all facts of a table, as a TOML file (schema_toml.py, schema_errors.py)
    encoding.py       schema + rows -> numbers for a model (row_rules.py, persons.py)
    tables.py         CSV and Parquet files -> chunks of rows (csv_records.py, arrow_columns.py)
    loaders.py        file + schema -> encoded rows that count
    datasets.py       known names -> tables with schemas (bundled/)
    check.py          file + schema -> what does not fit: exact, for the data holder only
    draft.py          rows -> a first schema: not private (choosing.py: counts -> cuts and categories)

Nothing public may depend on the rows: encoding follows from the schema alone, a bad value follows a stated
rule in silence, and only bad structure or a missing public fact is an error.
"""
