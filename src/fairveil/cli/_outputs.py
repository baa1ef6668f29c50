"""What a command writes: a folder that is whole or not there, a progress bar on a terminal, text or JSON."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import typer
from rich.console import Console
from rich.progress import track

from fairveil.errors import BadStructureError
from fairveil.training.recipe import Progress, no_progress

STAGE = ".fairveil-"
"""How the names of temporary folders begin, in which results are made before they appear."""


class Folder:
    """An output folder whose files appear together at the end, or not at all."""

    def __init__(self, path: Path, results: Mapping[str, str]) -> None:
        self.path = path
        self._results = results
        self._made: list[Path] = []

    def __enter__(self) -> "Folder":
        for name, kind in self._results.items():  # found early: a place that no earlier run made
            place = self.path / name
            if place.exists() and place.is_dir() != (kind == "folder"):
                raise BadStructureError(f"Expected {place} to be a {kind} or free, got something else; move it away.")
        try:
            for path in reversed([self.path, *self.path.parents]):
                if not path.exists():
                    path.mkdir()
                    self._made.append(path)
                elif not path.is_dir():
                    raise NotADirectoryError(0, "a file")
            remove_strays(self.path)
            self.stage = Path(tempfile.mkdtemp(dir=self.path, prefix=f"{STAGE}{os.getpid()}-"))
        except OSError as problem:
            self._unmake()
            raise BadStructureError(
                f"Expected an output folder that can be written, got {problem.strerror} for {self.path}; name another "
                "one with --out."
            ) from None
        return self

    def keep(self) -> None:
        """Move the results into place over those of an earlier run, whose other results are removed."""
        staged = sorted(self.stage.iterdir())
        for name in self._results:
            if (self.path / name).is_file() and not (self.stage / name).exists():
                (self.path / name).unlink()
        for new in staged:
            old = self.path / new.name
            if old.is_dir():
                old.rename(self.stage / (new.name + ".old"))
            new.replace(old)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.stage, ignore_errors=True)
        if kind is not None:
            self._unmake()

    def _unmake(self) -> None:
        """Remove the folders made here, as far as they are empty (a ledger in them stays)."""
        for path in reversed(self._made):
            if any(path.iterdir()):
                return
            path.rmdir()


def remove_strays(folder: Path) -> None:
    """Remove what killed runs left unfinished in a folder; what living processes are writing stays."""
    for stray in folder.glob(f"{STAGE}*"):
        number = stray.name.removeprefix(STAGE).split("-")[0]
        if number.isdigit():
            try:
                os.kill(int(number), 0)
            except ProcessLookupError:
                shutil.rmtree(stray, ignore_errors=True)
            except OSError:  # a living process of somebody else
                continue


def check_place(path: Path) -> None:
    """Refuse a place where no file can be written, before any privacy is spent."""
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "a folder")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as problem:
        raise BadStructureError(
            f"Expected to write {path}, got {problem.strerror}; name another place with --out."
        ) from None


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary place to write to, whose file replaces `path` at the end, or not at all."""
    check_place(path)
    remove_strays(path.parent)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{STAGE}{os.getpid()}-") as stage:
        staged = Path(stage, path.name)
        yield staged
        staged.replace(path)


@contextmanager
def progress_bar(is_quiet: bool) -> Iterator[Progress]:
    """Yield a progress bar on a terminal, and nothing visible elsewhere."""
    console = Console(stderr=True)
    if is_quiet or not console.is_terminal:
        yield no_progress
        return

    def shown(steps: range) -> Iterable[int]:
        return track(steps, description="training", console=console, transient=True)

    yield shown


def say(as_json: bool, facts: dict[str, Any], text: str) -> None:
    """Print one JSON object for machines, or text for people."""
    typer.echo(json.dumps(facts, allow_nan=False) if as_json else text, file=sys.stdout)
