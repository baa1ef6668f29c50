"""The command line in process and as a real process, a folder with a real table, and what a folder holds."""

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from _support.processes import Launched, forkserver
from fairveil.cli import main
from fairveil.data.datasets import dataset_schema, load_dataset
from fairveil.data.schema import Schema

N_ROWS = 4000
WAYS = {
    "aware": ("--aware", "--tolerance", "0.2"),
    "unaware": ("--unaware", "--tolerance", "0.2"),
    "parity": ("--aware", "--tolerance", "0.2", "--method", "parity"),
    "plain": ("--unaware", "--method", "dpsgd"),
}
"""Trainings whose results are shared by tests that only read them."""


@dataclass(frozen=True)
class Said:
    """What a command left behind on its way out."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Compute on one thread: on a busy machine several wait for each other most of the time."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a command in this process, by the door that the installed program uses."""

    def call(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["fairveil", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        return Said(int(stop.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def state_for(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """The index of ledgers of a folder: fixtures that are made twice write the same table twice."""
    states: dict[Path, str] = {}
    return lambda folder: states.setdefault(folder, str(tmp_path_factory.mktemp("state")))


@pytest.fixture(scope="session")
def inside(state_for: Callable[[Path], str]) -> Callable[..., Said]:
    """As `say`, in a folder of one's choice that has an index of ledgers of its own, for what outlives a test."""

    def call(*arguments: object, cwd: Path) -> Said:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(cwd)
            patch.setenv("XDG_STATE_HOME", state_for(cwd))
            patch.setattr(sys, "argv", ["fairveil", *map(str, arguments)])
            try:
                main()
            except SystemExit as stop:
                code = int(stop.code or 0)
            except Exception as fault:  # a fixture that many tests share must tell, not break
                code = 1
                err.write(f"Traceback: {fault!r}\n")
        return Said(code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture(scope="session")
def program() -> list[str]:
    """The beginning of a real command line."""
    script = shutil.which("fairveil", path=str(Path(sys.executable).parent))
    return [script] if script else [sys.executable, "-m", "fairveil.cli"]


@pytest.fixture(scope="session")
def shell(program: list[str], state_for: Callable[[Path], str]) -> Callable[..., Said]:
    """Run a command as a process of its own, as a person would."""

    def call(*arguments: object, cwd: Path | None = None) -> Said:
        state = {} if cwd is None else {"XDG_STATE_HOME": state_for(cwd)}
        result = subprocess.run(
            [*program, *map(str, arguments)],
            capture_output=True,
            cwd=cwd,
            timeout=120,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **state},
            check=False,
        )
        return Said(result.returncode, result.stdout.decode(), result.stderr.decode())

    return call


@pytest.fixture(scope="session")
def start() -> Iterator[ForkServerContext]:
    """A way to start processes in which the command line is loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        yield forkserver()


@pytest.fixture
def launch(start: ForkServerContext, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Launched]:
    """Start the program in the current folder, as a process of its own that has its imports done."""
    return lambda *words: Launched(start, words, tmp_path_factory.mktemp("said"))


@pytest.fixture(scope="session")
def people() -> pd.DataFrame:
    """Some rows of Adult."""
    return load_dataset("adult").frame.head(N_ROWS)


@pytest.fixture(scope="session")
def facts() -> Schema:
    """Their public schema."""
    return dataset_schema("adult").model_copy(update={"n_public": N_ROWS})


@pytest.fixture
def folder(tmp_path: Path, people: pd.DataFrame, facts: Schema, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with people.csv and schema.toml in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRVEIL_DATA", raising=False)
    people.to_csv(tmp_path / "people.csv", index=False)
    facts.write(tmp_path / "schema.toml")
    return tmp_path


@pytest.fixture(scope="session")
def strangers() -> pd.DataFrame:
    """As many other rows of Adult, which have no part in any training here."""
    return load_dataset("adult").frame.iloc[N_ROWS : 2 * N_ROWS].reset_index(drop=True)


@pytest.fixture(scope="session")
def models(
    tmp_path_factory: pytest.TempPathFactory,
    people: pd.DataFrame,
    facts: Schema,
    inside: Callable[..., Said],
) -> Path:
    """A folder with the results of each way to train; read them, change copies."""
    place = tmp_path_factory.mktemp("models")
    people.to_csv(place / "people.csv", index=False)
    facts.write(place / "schema.toml")
    for name, options in WAYS.items():
        asked = ("train", "people.csv", "--schema", "schema.toml", "--epsilon", "4", *options, "--out", name)
        assert inside(*asked, cwd=place).code == 0
    return place


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes | None]]:
    """Say what a folder holds, byte by byte, hidden files included (None stands for a folder)."""

    def read(folder: Path) -> dict[str, bytes | None]:
        return {
            str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
            for path in sorted(folder.rglob("*"))
        }

    return read


@pytest.fixture
def is_refused(say: Callable[..., Said], contents: Callable[[Path], dict[str, bytes | None]]) -> Callable[..., str]:
    """Run a command that must be refused: exit code 2, one sentence, and not a byte changed; return the sentence."""

    def call(folder: Path, arguments: Sequence[object], run: Callable[..., Said] = say) -> str:
        before = contents(folder)
        said = run(*arguments)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith("fairveil: ") and said.err.endswith(".\n")
        assert said.err.count("\n") == 1
        assert contents(folder) == before
        return said.err

    return call
