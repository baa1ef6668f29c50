"""Ctrl-C, SIGTERM and SIGKILL in the middle: never exit code 0, what was booked stays, nothing is half there.

A signal is sent the moment a certain file appears; the training is long enough that it strikes in the middle. Should a
slow machine let a run finish first, it must have finished whole.
"""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from _support.processes import Launched
from fairveil import FairClassifier
from fairveil.privacy.ledger import Ledger

BOOKS = "people.csv.ledger.jsonl"
TABLE = ("people.csv", "--schema", "schema.toml", "--aware")
TRAIN = ("train", *TABLE, "--tolerance", "0.2", "--model", "mlp", "--out", "results")
SWEEP = ("frontier", *TABLE, "--epsilons", "1,2", "--tolerances", "0.2", "--out", "sweep")


def appears(pattern: str, number: int = 1) -> Callable[[], bool]:
    return lambda: len(list(Path().glob(pattern))) >= number


def is_booked(number: int = 1) -> Callable[[], bool]:
    """Return the moment at which so many debits are on disk: the release is still to come."""
    return lambda: Path(BOOKS).exists() and Path(BOOKS).read_bytes().count(b'"kind": "debit"') >= number


MOMENTS = {
    "the stage is set": appears("results/.fairveil-*"),
    "the debit is booked": is_booked(),
    "the model is being written": appears("results/.fairveil-*/model"),
}


@pytest.fixture
def struck(folder: Path, launch: Callable[..., Launched]) -> Callable[..., tuple[int, str, str]]:
    """Run the program, send it a signal at a moment, and return exit code, output and errors."""

    def call(words: tuple[str, ...], number: signal.Signals, moment: Callable[[], bool]) -> tuple[int, str, str]:
        run = launch(*words)
        run.wait_for(moment)
        return run.strike(number)

    return call


def assert_polite(number: signal.Signals, code: int, out: str, err: str) -> None:
    """Assert what a person sees who stopped a run, unless it had finished before."""
    if out:
        return
    assert "Traceback" not in err
    if number != signal.SIGKILL:
        assert code == 1
        assert err.startswith("fairveil: ") and err.endswith(".\n")
        assert err.count("\n") == 1


def assert_whole(results: Path) -> None:
    """Assert that a folder holds a whole result or none."""
    names = {path.name for path in results.glob("*") if not path.name.startswith(".")}
    if "summary.json" in names:
        assert json.loads((results / "summary.json").read_text())["epsilon_spent"] <= 2.0
    if "model" in names:
        FairClassifier.load(results / "model")


CASES = [
    *((signal.SIGINT, name) for name in MOMENTS),
    (signal.SIGTERM, "the debit is booked"),
    (signal.SIGTERM, "the model is being written"),
    (signal.SIGKILL, "the debit is booked"),
]


@pytest.mark.parametrize("number, name", CASES, ids=lambda value: getattr(value, "name", value))
def test_a_training_that_is_stopped(folder, struck, say, number, name):
    code, out, err = struck(TRAIN, number, MOMENTS[name])
    assert_polite(number, code, out, err)
    assert_whole(Path("results"))
    booked = Path(BOOKS).read_bytes() if Path(BOOKS).exists() else b""
    if name != "the stage is set":
        assert len(Ledger(BOOKS).entries) == 1
        assert number != signal.SIGINT or not list(Path("results").glob(".fairveil-*"))
    said = say("train", *TABLE, "--method", "dpsgd", "--out", "results", "--json")
    assert (said.code, said.err) == (0, "")
    assert Path(BOOKS).read_bytes().startswith(booked)
    assert json.loads(said.out)["epsilon_spent_total"] == Ledger(BOOKS).epsilon(1e-5)
    assert_whole(Path("results"))
    assert sorted(path.name for path in Path("results").iterdir()) == ["model", "report.html", "summary.json"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_sweep_that_is_stopped(folder, struck, say, number):
    code, out, err = struck(SWEEP, number, appears("sweep/points/*/.fairveil-*"))
    shown = err.removeprefix("2 points; all are released from the same people.\n")
    assert_polite(number, code, out, shown)
    n_booked = len(Ledger(BOOKS).entries)
    for point in Path("sweep").glob("points/*"):
        assert_whole(point)
    said = say(*SWEEP, "--json")
    assert (said.code, said.err) == (0, "")
    facts = json.loads(said.out)
    assert [point["epsilon"] for point in facts["points"]] == [1.0, 2.0]
    assert len(Ledger(BOOKS).entries) >= max(n_booked, 2)
    assert facts["epsilon_spent_total"] == Ledger(BOOKS).epsilon(1e-5)
    assert not list(Path().rglob(".fairveil-*"))


@pytest.mark.parametrize("number, seconds", [(signal.SIGTERM, 0.3), (signal.SIGKILL, 0.05)])
def test_a_run_that_is_stopped_before_it_began_costs_nothing(folder, struck, contents, number, seconds):
    """However far the program has come by then: what is there is booked, and nothing is half there."""
    before, started = contents(folder), time.monotonic()
    code, out, err = struck(TRAIN, number, lambda: time.monotonic() - started > seconds)
    if code != -number:  # else it struck before the program was there to hear it
        assert_polite(number, code, out, err)
    assert_whole(Path("results"))
    if not Path(BOOKS).exists():
        visible = {name for name in contents(folder) if "/." not in name and name != "results"}
        assert visible == set(before)


def test_a_decision_that_is_stopped_leaves_no_file(folder, models, strangers, struck):
    many = [strangers.drop(columns="income")] * 60
    with Path("new.csv").open("w") as file:
        for number, table in enumerate(many):
            table.to_csv(file, index=False, header=number == 0)
    words = ("predict", str(models / "aware" / "model"), "new.csv", "--out", "decisions.csv")
    code, out, err = struck(words, signal.SIGINT, appears(".fairveil-*/decisions.csv"))
    assert_polite(signal.SIGINT, code, out, err)
    if Path("decisions.csv").exists():
        assert Path("decisions.csv").read_bytes().count(b"\n") == 1 + 60 * len(strangers)
    assert not list(Path().glob(".fairveil-*"))
