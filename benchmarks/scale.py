"""Rows, memory and time of large tables: how fast they are read, what a step costs, how much memory it takes.

Every case runs in a process of its own on a folder of Parquet files that is made first: a few distinct row groups,
written again and again. "ingest_rows_per_cpu_s" is rows read, encoded and written per second of processor time (of all
threads), "open_s" the time to verify and map rows that are there, "step_ms" the processor time of a step of DP-SGD on a
linear model through the veil at a fixed expected batch (warm), "peak_anonymous_mb" the largest RssAnon that was seen
from the start of reading to the end of a whole fit with a hold-out: pages of the mapped file are not anonymous.
"step_ratio" is the largest step time over that of the first number of rows. Processor time is measured because it does
not grow when other programs run; it includes all waiting for memory.

    python benchmarks/scale.py --json
    python benchmarks/scale.py --rows 1e5,1e8 --folder /large/disk --json
    python benchmarks/scale.py --parts disk,memory,ray,ledger --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import importlib
import json
import math
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairveil import Ledger, PrivateClassifier
from fairveil._random import secret_coins
from fairveil.data.schema import Schema
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.engines import opened_records
from fairveil.methods.inputs import FileSource, InputSpec
from fairveil.models import LinearSoftmax, OptimizerState, Sgd
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import CrossEntropy
from fairveil.privacy.veil import open_veils

BATCHES = (512, 8192)
GROUP_ROWS, FILE_ROWS = 2**20, 10**7
N_GROUPS = 3
"""Distinct row groups of a generated table."""

STEPS, ROUNDS = 32, 30
WIDE_ROWS = 10**7


# --- tables ----------------------------------------------------------------------------------------------------------


def schema_of(n_columns: int, n_rows: int) -> Schema:
    """Return the public facts of a generated table: half of the columns are categories, the others numbers in bins."""
    columns: dict[str, Any] = {"sex": {"type": "category", "categories": ["f", "m"]}}
    for place in range(1, n_columns):
        kind: dict[str, Any] = {"type": "number", "bounds": [0, 100], "bins": 10}
        if place % 2:
            kind = {"type": "category", "categories": [f"value {level}" for level in range(3 + place % 12)]}
        columns[f"c{place}"] = kind
    return Schema(
        n_public=n_rows,
        target={"column": "label", "classes": ["0", "1"]},
        sensitive=[{"column": "sex", "groups": ["f", "m"]}],
        columns=columns,
    )


def row_group(schema: Schema, n_rows: int, rng: np.random.Generator) -> pa.Table:
    """Return random rows of a schema."""
    columns = {}
    for name, column in schema.columns.items():
        if hasattr(column, "categories"):
            codes = pa.array(rng.integers(0, len(column.categories), n_rows, dtype=np.int8))
            columns[name] = pa.DictionaryArray.from_arrays(codes, list(column.categories)).cast(pa.string())
        else:
            columns[name] = pa.array(rng.integers(0, 101, n_rows, dtype=np.int16))
    columns["label"] = pa.array(rng.integers(0, 2, n_rows, dtype=np.int8))
    return pa.table(columns)


def write_folder(folder: Path, schema: Schema, n_rows: int) -> None:
    """Write a folder of Parquet files with so many rows."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    groups = [row_group(schema, min(GROUP_ROWS, n_rows), rng) for _ in range(N_GROUPS)]
    for start in range(0, n_rows, FILE_ROWS):
        n_left = min(FILE_ROWS, n_rows - start)
        with pq.ParquetWriter(folder / f"part-{start // FILE_ROWS:04}.parquet", groups[0].schema) as writer:
            while n_left:
                rows = groups[(n_left // GROUP_ROWS) % N_GROUPS].slice(0, n_left)
                writer.write_table(rows)
                n_left -= len(rows)


# --- one case --------------------------------------------------------------------------------------------------------


class AnonymousMemory:
    """The largest anonymous memory of this process, sampled by a thread."""

    def __init__(self) -> None:
        self.peak, self._is_over = 0, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._is_over.wait(0.01):
            status = Path("/proc/self/status").read_text()
            self.peak = max(self.peak, int(status.split("RssAnon:")[1].split()[0]) * 1024)

    def stop(self) -> float:
        """Return the peak in megabytes."""
        self._is_over.set()
        self._thread.join()
        return self.peak / 1e6


def step_ms(records: Any, n_rows: int, batch: int) -> float:
    """Return milliseconds of processor time per step of DP-SGD at this expected batch, the median over rounds."""
    stage = Stage("train", (Release("gradient", "gaussian", 1.0),), 1.0, {-1: batch / n_rows}, 10**9)
    veil = open_veils(records, Plan((stage,), 1.0, 1e-5), Ledger(), secret_coins(), "scale")["train"]
    veil.expect(n_rows)
    model, optimizer, state = LinearSoftmax(records.n_features, 2), Sgd(0.1, momentum=0.9), OptimizerState()
    params, objective, times = model.initial(np.random.default_rng(0)), CrossEntropy(), []
    for _ in range(ROUNDS):
        started = time.thread_time()
        for _ in range(STEPS):
            gradient = veil.draw().release_gradient(model, params, objective, 1.0) / batch
            params, state = optimizer.step(params, gradient, state)
        times.append(1e3 * (time.thread_time() - started) / STEPS)
    return median(times[ROUNDS // 3 :])


def read(inputs: InputSpec, source: FileSource) -> Any:
    """Return the records of a file; no workers, so there is nothing to close."""
    with opened_records(inputs, source, Plan((), 1.0, 1e-5)) as (records, _):
        return records


def run_case(folder: Path, n_rows: int, n_columns: int, engine: str) -> dict[str, Any]:
    """Read a folder, time steps, and fit once; figures of this process."""
    schema, cache = schema_of(n_columns, n_rows), folder.with_name(f"{folder.name}.rows")
    source = FileSource(folder, engine=engine, cache=cache)
    inputs = InputSpec.of(schema, "sex", 1.0, 1e-5)
    memory, started, worked = AnonymousMemory(), time.perf_counter(), time.process_time()
    records = read(inputs, source)
    found: dict[str, Any] = {"rows": n_rows, "columns": n_columns, "engine": engine}
    found["ingest_s"] = time.perf_counter() - started
    found["ingest_rows_per_cpu_s"] = n_rows / (time.process_time() - worked)
    if engine == "disk":
        found["bytes_per_row"] = sum(file.stat().st_size for file in cache.rglob("rows.bin")) / n_rows
        del records
        started = time.perf_counter()
        records = read(inputs, source)
        found["open_s"] = time.perf_counter() - started
    found["step_ms"] = {str(batch): step_ms(records, n_rows, batch) for batch in BATCHES if batch < n_rows}
    del records
    if engine == "disk":  # in memory the table would be read a second time
        clf = PrivateClassifier(training=Descent(n_steps=200), schema=schema, sensitive="sex", holdout=0.1)
        clf.ledger = Ledger()
        started = time.perf_counter()
        clf.fit_file(folder, engine=engine, cache=cache)
        found["fit_s"] = time.perf_counter() - started
    found["peak_anonymous_mb"] = memory.stop()
    return found


def measured(work: Path, n_rows: int, n_columns: int, engines: list[str]) -> list[dict[str, Any]]:
    """Return the figures of a table by each engine, each from a process of its own; what it left is removed."""
    folder = work / f"{n_rows}x{n_columns}"
    found = []
    try:
        write_folder(folder, schema_of(n_columns, n_rows), n_rows)
        for engine in engines:
            case = json.dumps([str(folder), n_rows, n_columns, engine])
            answer = subprocess.run(
                [sys.executable, __file__, "--case", case], capture_output=True, text=True, check=False
            )
            if answer.returncode:
                raise RuntimeError(answer.stderr)
            found.append(json.loads(answer.stdout.splitlines()[-1]))
            print(json.dumps(found[-1]), file=sys.stderr)
    finally:
        for place in (folder, folder.with_name(f"{folder.name}.rows")):
            shutil.rmtree(place, ignore_errors=True)
    return found


def other_part(name: str) -> dict[str, Any] | None:
    """Return the figures of a part that has a file of its own, None if it is not there."""
    try:
        return dict(getattr(importlib.import_module(f"{name}_scale"), f"{name}_figures")())
    except ModuleNotFoundError:
        return None


def main() -> None:
    """Measure what is requested, and print one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1e5,1e6,1e7", help="numbers of rows, separated by commas")
    parser.add_argument("--columns", type=int, default=14)
    parser.add_argument(
        "--parts", default="disk,memory,ray,ledger", help="memory: 10^7 rows x 100 columns, both engines"
    )
    parser.add_argument("--folder", type=Path, help="where tables are written for a while")
    parser.add_argument("--json", action="store_true", help="print the object without indents")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        folder, *facts = json.loads(options.case)
        print(json.dumps(run_case(Path(folder), *facts)))
        return
    parts, figures = options.parts.split(","), {}
    with tempfile.TemporaryDirectory(dir=options.folder) as work:
        if "disk" in parts:
            sizes = [int(float(text)) for text in options.rows.split(",")]
            cases = [measured(Path(work), n_rows, options.columns, ["disk"])[0] for n_rows in sizes]
            figures["disk"] = cases
            first = cases[0]["step_ms"]
            figures["step_ratio"] = {
                batch: max(one["step_ms"].get(batch, math.nan) / first[batch] for one in cases) for batch in first
            }
        if "memory" in parts:
            figures["wide"] = measured(Path(work), WIDE_ROWS, 100, ["disk", "memory"])
    figures |= {name: other_part(name) for name in ("ray", "ledger") if name in parts}
    print(json.dumps(figures, indent=None if options.json else 1))


if __name__ == "__main__":
    main()
