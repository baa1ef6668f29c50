"""Real processes that are struck at a chosen system call, and what must hold after that.

A process waits with its imports done until strace is attached, which then counts its calls and injects a signal or an
error into one of them. A killed process makes that call no more.
"""

import contextlib
import ctypes
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from _support.processes import PATIENCE_SECONDS
from fairveil import FairClassifier
from fairveil._durable import recover
from fairveil.cli import main
from fairveil.data.schema import Schema
from fairveil.privacy.ledger import Ledger

CALLS = (
    "openat", "write", "pwrite64", "fsync", "rename", "renameat", "renameat2", "link", "unlink", "unlinkat", "mkdir",
    "rmdir", "ftruncate", "chmod", "fchmodat",
)  # fmt: skip
"""System calls that change a disk; of the first, those that create a file."""

N_ROWS = 200
RESULTS = ("key", "model-card.md", "model/model.json", "model/params.safetensors", "report.html", "summary.json")
LEDGER = "people.csv.ledger.jsonl"
TABLE = ("people.csv", "--schema", "schema.toml")
KEYED = ("--aware", "--tolerance", "0.2", "--method", "parity", "--card")
SCENARIOS = {
    "train over a result": ("train", *TABLE, *KEYED, "--out", "results"),
    "train": ("train", *TABLE, *KEYED, "--out", "fresh"),
    "frontier": ("frontier", *TABLE, "--unaware", "--methods", "dpsgd", "--epsilons", "1,2", "--out", "sweep"),
    "certify": ("certify", "results/model", "strangers.csv", "--epsilon", "1"),
    "predict": ("predict", "results/model", "people.csv", "--out", "decisions.csv"),
    "draft": (
        "schema", "draft", "people.csv", "--target", "label", "--sensitive", "sex", "--out", "draft.toml",
        "--epsilon", "5",
    ),
    "approve": ("schema", "approve", "draft.toml", "--yes"),
    "budget": ("ledger", "budget", LEDGER, "--epsilon", "100"),
}  # fmt: skip
"""What is run in a copy of the folder that `make_folder` makes."""


@dataclass(frozen=True)
class Strike:
    """A system call of a process, counted from 1, and what strace does to it."""

    call: str
    number: int
    effect: str = "signal=SIGKILL"


@dataclass(frozen=True)
class Outcome:
    """How a process ended (-9: killed), and what it had printed."""

    code: int
    err: str


def make_folder(folder: Path) -> None:
    """Make a folder with two tables, a schema, a private draft, an earlier result with its key, and decisions."""
    coins = np.random.default_rng(0)
    for name in ("people.csv", "strangers.csv"):
        columns = {"city": "abc", "sex": "fm", "label": "ny"}
        table = {column: coins.choice(list(values), N_ROWS) for column, values in columns.items()}
        pd.DataFrame({"age": coins.integers(18, 90, N_ROWS), **table}).to_csv(folder / name, index=False)
    facts = {
        "name": "people",
        "n_public": N_ROWS,
        "target": {"column": "label", "classes": ["n", "y"]},
        "sensitive": [{"column": "sex", "groups": ["f", "m"]}],
        "columns": {
            "age": {"type": "number", "bounds": [18.0, 90.0]},
            "city": {"type": "category", "categories": ["a", "b", "c"]},
        },
    }
    Schema(**facts).write(folder / "schema.toml")
    Schema(**facts, private_draft=True).write(folder / "draft.toml")
    for words in (SCENARIOS["train over a result"], SCENARIOS["predict"]):
        assert run_here(words, folder) == 0


def run_here(words: tuple[str, ...], folder: Path) -> int:
    """Run the program in this process and return its exit code."""
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fairveil", *words])
        patch.setenv("XDG_STATE_HOME", str(folder.resolve().parent / "state"))  # what a person's ledgers leave there
        with pytest.raises(SystemExit) as stop, contextlib.redirect_stderr(io.StringIO()):
            main()
    return int(stop.value.code or 0)


# --- striking ---------------------------------------------------------------------------------------------------------


def _run_when_watched(gate: Connection, words: tuple[str, ...], folder: str, out: str, err: str) -> None:
    """Let any process watch this one, wait until one does, and be the program."""
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1))  # PR_SET_PTRACER, PR_SET_PTRACER_ANY
    gate.send("ready")
    gate.recv()
    os.chdir(folder)
    os.environ["XDG_STATE_HOME"] = str(Path(folder).parent / "state")
    tempfile.tempdir = str(Path(out).parent)  # where a paid model goes that finds no other place
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
    sys.argv = ["fairveil", *words]
    main()


def watch(context: ForkServerContext, words: tuple[str, ...], folder: Path, options: list[str], notes: Path) -> Outcome:
    """Run the program in a folder while strace watches it with these options."""
    here, there = context.Pipe()
    out, err = notes / "out", notes / "err"
    process = context.Process(target=_run_when_watched, args=(there, words, str(folder), str(out), str(err)))
    process.start()
    assert here.recv() == "ready"
    command = ["strace", "-o", str(notes / "calls"), *options, "-p", str(process.pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert "attached" in tracer.stderr.readline()
        here.send("go")
        process.join(PATIENCE_SECONDS)
        assert process.exitcode is not None
        tracer.communicate(timeout=PATIENCE_SECONDS)
    return Outcome(process.exitcode, err.read_text() if err.exists() else "")


def points_of(context: ForkServerContext, words: tuple[str, ...], folder: Path, notes: Path) -> list[tuple[str, int]]:
    """Return the calls with which a command changes the disk, each with its number among its like, in their order."""
    outcome = watch(context, words, folder, ["-e", f"trace={','.join(CALLS)}"], notes)
    assert outcome.code == 0, outcome.err
    counts: dict[str, int] = {}
    found = []
    for line in (notes / "calls").read_text().splitlines():
        call = re.match(r"(\w+)\(", line)
        if call is not None:
            name = call[1]
            counts[name] = counts.get(name, 0) + 1
            if name != "openat" or "O_CREAT" in line:
                found.append((name, counts[name]))
    return found


def strike(context: ForkServerContext, words: tuple[str, ...], folder: Path, blow: Strike, notes: Path) -> Outcome:
    """Run a command in a folder and strike it."""
    what = f"inject={blow.call}:{blow.effect}:when={blow.number}"
    return watch(context, words, folder, ["-e", f"trace={blow.call}", "-e", what], notes)


# --- what must hold ---------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_debited(folder: Path) -> None:
    """Assert that the ledger shows at least one fit for each model that ever reached the disk, even unfinished."""
    files = contents(folder)
    models = {hashlib.sha256(text).digest() for name, text in files.items() if name.endswith("params.safetensors")}
    fits = [entry for entry in Ledger(folder / LEDGER).entries if entry.purpose.startswith("fit of ")]
    assert len(fits) >= len(models)


def assert_one_run(before: dict[str, bytes], folder: Path, results: Path, is_failing_disk: bool) -> None:
    """Assert that all results in a folder are old ones or new ones, as seen without the lock, and whole with it."""
    old = {name: before.get(f"{results.relative_to(folder)}/{name}") for name in RESULTS}
    seen = {name: (results / name).read_bytes() for name in RESULTS if (results / name).exists()}
    assert len({seen[name] == old[name] for name in seen}) <= 1
    if not results.exists():
        return
    recover(results)
    seen = {name: (results / name).read_bytes() for name in RESULTS if (results / name).exists()}
    assert len({seen[name] == old[name] for name in seen}) <= 1
    if seen or any(old.values()):
        assert {"summary.json", "model/model.json", "model/params.safetensors"} <= set(seen)
        assert "report.html" in seen or is_failing_disk  # the report alone may be missing
        key = results / "key"
        assert key.exists() == (b'"key"' in seen["summary.json"])
        FairClassifier.load(results / "model", key=key if key.exists() else None)
        # what was switched together belongs together, and the ledger noted the summary before
        assert run_here(("verify", str(results.relative_to(folder)), "--ledger", LEDGER), folder) == 0


def check(before: dict[str, bytes], folder: Path, words: tuple[str, ...], is_failing_disk: bool) -> None:
    """Assert that nothing is under-counted, half there or mixed, and that the same command works now."""
    assert_debited(folder)
    for results in (folder / "results", folder / "fresh", *folder.glob("sweep/points/*")):
        assert_one_run(before, folder, results, is_failing_disk)
    if (draft := (folder / "draft.toml").read_bytes()) != before["draft.toml"]:
        assert draft and not Schema.read(folder / "draft.toml").private_draft
    if (folder / "decisions.csv").read_bytes() != before["decisions.csv"]:
        assert len(pd.read_csv(folder / "decisions.csv")) == N_ROWS
    assert (folder / LEDGER).read_bytes().startswith(before[LEDGER])
    assert {name: (folder / name).read_bytes() for name in ("people.csv", "schema.toml")}.items() <= before.items()
    assert run_here(words, folder) == 0
    assert_debited(folder)
    assert not list(folder.rglob(".fairveil-*"))


def try_strike(
    context: ForkServerContext, template: Path, words: tuple[str, ...], blow: Strike, place: Path
) -> Outcome:
    """Strike a command in a copy of a folder, and check what is left of it."""
    shutil.copytree(template, place / "folder")
    (place / "notes").mkdir()
    before = contents(place / "folder")
    outcome = strike(context, words, place / "folder", blow, place / "notes")
    assert outcome.code in ({-9, 0} if "SIGKILL" in blow.effect else {0, 1, 2})
    assert "Traceback" not in outcome.err
    check(before, place / "folder", words, is_failing_disk="error" in blow.effect)
    shutil.rmtree(place)
    return outcome
