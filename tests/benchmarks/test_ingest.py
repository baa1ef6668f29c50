"""The benchmark of ingest encodes what it says."""

from ingest import ingest_figures


def test_every_kind_of_file_is_read():
    figures = ingest_figures(2000)
    assert (figures["n_rows"], figures["n_columns"]) == (2000, 15)
    kinds = ("parquet", "parquet_dictionary", "csv", "csv_quoted")
    assert list(figures)[2:] == list(kinds) and all(figures[kind] > 0 for kind in kinds)
