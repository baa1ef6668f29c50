"""`kill -9` at any moment of a real training: the books never show less than what got out, and nothing is half there.

Some kills come after a while, some the moment a certain file appears. A cold run spends most of its time on imports,
so most kills strike processes that are forked when all is imported. Whatever moment is hit, the same must hold: nothing
here can fail by chance.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from _support.processes import PATIENCE_SECONDS, PAUSE_SECONDS, Launched
from fairveil import FairClassifier
from fairveil.privacy.ledger import Ledger

TRAIN = ("train", "adult", "--aware", "--tolerance", "0.02", "--json", "--out")
Moment = Callable[[Path, float], bool]


def after(seconds: float) -> Moment:
    return lambda folder, elapsed: elapsed >= seconds


def stamps(folder: Path, pattern: str) -> set[tuple[Path, int]]:
    found = set()
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError):
            found.add((path, path.stat().st_mtime_ns))
    return found


def when(pattern: str) -> Moment:
    """Return the moment at which a path that fits the pattern appears in the folder, or another takes its place."""
    known: set[tuple[Path, int]] = set()

    def is_there(folder: Path, elapsed: float) -> bool:
        found = stamps(folder, pattern)
        if not elapsed:
            known.update(found)
        return bool(found - known)

    return is_there


def when_booked() -> Moment:
    """Return the moment at which the ledger has grown: the debit is on disk, the release is still to come."""
    sizes: list[int] = []

    def has_grown(folder: Path, elapsed: float) -> bool:
        ledger = folder / "ledger.jsonl"
        sizes.append(ledger.stat().st_size if ledger.exists() else 0)
        return sizes[-1] > sizes[0]

    return has_grown


COLD = [after(0.7), when_booked()]
WARM = [
    after(0.02),
    when(".fairveil-*"),
    after(0.15),
    when(".fairveil-*/model"),
    when("model/*"),
    after(PATIENCE_SECONDS),  # from here on a result is there to be replaced
    when_booked(),
    after(0.3),
    when(".fairveil-*/model"),
    when(".fairveil-*/.fairveil-old/model"),
    when("model/*"),
    after(0.6),
]


def finishes_cold(program: list[str], folder: Path, moment: Moment) -> bool:
    """Start the program, kill it at the moment, say whether it had finished."""
    moment(folder, 0.0)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [*program, *TRAIN, str(folder)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        started = time.monotonic()
        while process.poll() is None and not moment(folder, time.monotonic() - started):
            assert time.monotonic() - started < PATIENCE_SECONDS
            time.sleep(PAUSE_SECONDS)
        process.kill()
    return process.returncode == 0


def finishes_warm(launch: Callable[..., Launched], folder: Path, moment: Moment) -> bool:
    """The same with all modules loaded beforehand."""
    moment(folder, 0.0)
    run, started = launch(*TRAIN, folder), time.monotonic()
    run.wait_for(lambda: moment(folder, time.monotonic() - started))
    code, _, _ = run.strike(signal.SIGKILL)
    return code == 0


def weights_in(folder: Path) -> bytes | None:
    """Assert that what is in the folder is whole; return the weights, if there are any."""
    if (folder / "summary.json").exists():
        assert json.loads((folder / "summary.json").read_text())["epsilon_spent"] <= 1.0
    if not (folder / "model").exists():
        return None
    assert FairClassifier.load(folder / "model").epsilon_spent_ <= 1.0
    return (folder / "model" / "params.safetensors").read_bytes()


def test_a_kill_never_under_counts_and_leaves_nothing_half_written(tmp_path, program, launch):
    folder = tmp_path / "results"
    books, released = Ledger(folder / "ledger.jsonl"), set()
    runs = [lambda moment=moment: finishes_cold(program, folder, moment) for moment in COLD]
    runs += [lambda moment=moment: finishes_warm(launch, folder, moment) for moment in WARM]
    finished = 0
    for run in runs:
        finished += run()
        released.add(weights_in(folder))
        assert len(books.entries) >= max(len(released - {None}), finished)
        assert books.epsilon(1e-5) >= 0
    assert finished < len(runs), "nothing was killed"
    assert finishes_cold(program, folder, after(PATIENCE_SECONDS))
    assert weights_in(folder) not in released
    assert len(books.entries) >= len(released - {None}) + 1
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["epsilon_spent_total"] == books.epsilon(1e-5)


def test_trainings_at_the_same_time_leave_the_results_of_one(folder, launch):
    words = ("train", "people.csv", "--schema", "schema.toml", "--aware", "--method", "parity", "--tolerance", "0.2")
    runs = [launch(*words, "--out", "results", "--json") for _ in range(3)]
    ended = [run.strike(0) for run in runs]
    assert [(code, err) for code, _, err in ended] == [(0, "")] * 3
    summary = json.loads(Path("results/summary.json").read_text())
    assert summary in [json.loads(out) for _, out, _ in ended]
    assert {path.name for path in Path("results").iterdir()} == set(summary["files"])
    FairClassifier.load("results/model", key="results/key")
    assert len(Ledger("people.csv.ledger.jsonl").entries) == 3
