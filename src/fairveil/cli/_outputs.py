"""What a command leaves behind: a folder that is whole, a progress bar on a terminal, text or JSON."""

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
"""How the places begin in which results are made before they appear."""


class Folder:
    """An output folder whose files appear together at the end, or not at all."""

    def __init__(self, path: Path, results: Mapping[str, str]) -> None:
        self.path = path
        self._results = results
        self._made: list[Path] = []

    def __enter__(self) -> "Folder":
        self._check_places()
        try:
            self._make(self.path)
            remove_strays(self.path)
            self.stage = Path(tempfile.mkdtemp(dir=self.path, prefix=f"{STAGE}{os.getpid()}-"))
        except OSError as problem:
            self._unmake()
            raise BadStructureError(
                f"Expected an output folder that can be written, got {problem.strerror} for {self.path}; name another "
                "one with --out."
            ) from None
        return self

    def _check_places(self) -> None:
        """Refuse early where a file stands in a result's place that cannot be one of an earlier run."""
        for name, kind in self._results.items():
            place = self.path / name
            if place.exists() and place.is_dir() != (kind == "folder"):
                raise BadStructureError(
                    f"Expected {place} to be a {kind} or free, got something else; move it away."
                )

    def _make(self, path: Path) -> None:
        if not path.exists():
            self._make(path.parent)
            path.mkdir()
            self._made.append(path)
        elif not path.is_dir():
            raise NotADirectoryError(0, "a file")

    def keep(self) -> None:
        """Move what was staged into place, over what an earlier run left; what this run does not write goes away."""
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
    """Remove what runs that were killed left unfinished in a folder; those of living processes stay."""
    for stray in folder.glob(f"{STAGE}*"):
        number = stray.name.removeprefix(STAGE).split("-")[0]
        if number.isdigit() and not _is_alive(int(number)):
            shutil.rmtree(stray, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def check_place(path: Path) -> None:
    """Refuse, before anything is paid for, a place where no file can be written."""
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
    """Hand out a place to write to, whose file takes the place of `path` at the end, or nothing does."""
    check_place(path)
    remove_strays(path.parent)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{STAGE}{os.getpid()}-") as stage:
        staged = Path(stage, path.name)
        yield staged
        staged.replace(path)


@contextmanager
def progress_bar(is_quiet: bool) -> Iterator[Progress]:
    """Hand out a progress bar on a terminal, silence elsewhere."""
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
