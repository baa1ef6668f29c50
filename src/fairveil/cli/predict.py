"""`fairveil predict`: a decision for each row of a table."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fairveil._durable import replacing
from fairveil.cli._files import check_outputs, check_place, source_of
from fairveil.cli._models import open_model
from fairveil.cli._terminal import say
from fairveil.data.readers import read_table, table_columns
from fairveil.errors import BadStructureError
from fairveil.report.text import file_options, prediction_text

FORMATS = (".parquet", ".csv")
OWNER_ONLY = 0o600
"""The permissions of decisions, which are as private as the people they are about."""


def predict(
    model: Path,
    data: str,
    out: Path,
    key: Path | None,
    delimiter: str | None,
    encoding: str | None,
    as_json: bool,
) -> None:
    """Write one decision for each row of a table, in its order."""
    clf, source = open_model(model, key), source_of(data)
    if out.suffix not in FORMATS:
        raise BadStructureError(f"Expected --out to end in {' or '.join(FORMATS)}, got {out.name!r}; rename it.")
    check_outputs([out], source.inputs(source.ledger(None, out.parent), model=model, key=key))
    check_place(out)
    file = source.file()
    inputs, rule = clf.estimator_.inputs_, clf.estimator_.rule_
    names, id_column = list(inputs.schema.columns), inputs.schema.id_column
    if rule.reads_group or inputs.predicts == "decoupled":
        names += [entry.column for entry in inputs.sensitive]
    mark, spelled = delimiter or inputs.schema.file.delimiter, encoding or inputs.schema.file.encoding
    if id_column is not None and id_column in table_columns(file, mark, encoding=spelled):
        names.append(id_column)
    probabilities = [f"p_{name}" for name in clf.classes_]

    def decided(frame: pd.DataFrame) -> pd.DataFrame:
        table = pd.DataFrame({"prediction": clf.predict(frame)})
        table[probabilities] = clf.predict_proba(frame)
        return table

    names = list(dict.fromkeys(names))
    chunks = read_table(file, names, delimiter=mark, encoding=spelled, keep_malformed=True)
    with replacing(out, OWNER_ONLY) as new:
        n_rows = _write((decided(chunk) for chunk in chunks), new, out.suffix)
    facts = {"model": str(model), "data": source.name, "out": str(out), "n_rows": n_rows}
    read = {"aware": clf.aware, "sensitive": list(clf.request().sensitive)}
    say(as_json, facts, prediction_text(facts | read, probabilities, file_options(delimiter, encoding)))


def _write(tables: Iterator[pd.DataFrame], path: Path, suffix: str) -> int:
    """Write tables one after the other (there is at least one) and return how many rows they have."""
    first = next(tables)
    n_rows, several = 0, chain([first], tables)
    if suffix == ".csv":
        for table in several:
            table.to_csv(path, mode="a", index=False, header=n_rows == 0 and table is first)
            n_rows += len(table)
        return n_rows
    with pq.ParquetWriter(path, pa.Schema.from_pandas(first, preserve_index=False)) as writer:
        for table in several:
            writer.write_table(pa.Table.from_pandas(table, writer.schema, preserve_index=False))
            n_rows += len(table)
    return n_rows
