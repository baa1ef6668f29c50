"""How many rows a core encodes in a second: from a file to codes, numbers, labels and groups.

    python benchmarks/ingest.py [N_ROWS]

The rows are those of Adult, drawn at random: 15 columns are read, 14 of them features. The last line printed is one
JSON object: rows for each second of processor time, of all threads together.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from fairveil.data.datasets import dataset_path, dataset_schema
from fairveil.data.encoding import Encoder, columns_of
from fairveil.data.readers import CHUNK_ROWS, columns_needed, read_chunks
from fairveil.data.schema import Number, Schema

N_ROWS = 2_000_000


def ingest_figures(n_rows: int) -> dict[str, float]:
    """Return rows per second of processor time by kind of file."""
    schema = dataset_schema("adult")
    weight, years = Number(bounds=(0, 1_500_000), bins=10), Number(bounds=(0, 20), bins=10)
    schema = schema.model_copy(update={"columns": {**schema.columns, "fnlwgt": weight, "education_num": years}})
    table = pq.read_table(dataset_path("adult"), columns=columns_needed(schema, schema.sensitive))
    table = table.take(pa.array(np.random.default_rng(0).integers(len(table), size=n_rows)))
    is_text = [pa.types.is_large_string(field.type) or pa.types.is_string(field.type) for field in table.schema]
    coded = pa.table(
        {
            name: table[name].combine_chunks().dictionary_encode() if text else table[name]
            for name, text in zip(table.column_names, is_text, strict=True)
        }
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pq.write_table(table, folder / "plain.parquet")
        pq.write_table(coded, folder / "dictionary.parquet")
        pa.csv.write_csv(table, folder / "plain.csv", pa.csv.WriteOptions(quoting_style="none"))
        pa.csv.write_csv(table, folder / "quoted.csv", pa.csv.WriteOptions(quoting_style="all_valid"))
        return {
            "n_rows": n_rows,
            "n_columns": len(table.column_names),
            "parquet": _rows_per_second(folder / "plain.parquet", schema, n_rows),
            "parquet_dictionary": _rows_per_second(folder / "dictionary.parquet", schema, n_rows),
            "csv": _rows_per_second(folder / "plain.csv", schema, n_rows),
            "csv_quoted": _rows_per_second(folder / "quoted.csv", schema, n_rows),
        }


def _rows_per_second(path: Path, schema: Schema, n_rows: int) -> float:
    encoder, entries = Encoder(schema), schema.sensitive[:1]
    names = [schema.target.column, *(entry.column for entry in entries)]
    start = time.process_time()
    for chunk in read_chunks(path, columns_needed(schema, entries), CHUNK_ROWS):
        encoder.labels(chunk.frame, columns_of(chunk.frame, names), entries)
        encoder.codes(chunk.frame)
        encoder.numbers(chunk.frame)
    return round(n_rows / (time.process_time() - start))


if __name__ == "__main__":
    print(json.dumps(ingest_figures(int(sys.argv[1]) if len(sys.argv) > 1 else N_ROWS)))
