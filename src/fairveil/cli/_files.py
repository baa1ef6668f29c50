"""The files of a command: the table, schema and ledger that it reads; results that appear whole or not at all."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Any

import typer

from fairveil.data.datasets import dataset_names, dataset_path, dataset_schema
from fairveil.data.schema import Schema
from fairveil.errors import BadStructureError, MissingPublicFactError
from fairveil.fair_classifier import FairClassifier
from fairveil.methods.registry import estimator_named
from fairveil.persistence import read_facts

LEDGER_NAME = "ledger.jsonl"
STAGE = ".fairveil-"
"""How the names of temporary folders begin, in which results are made before they appear."""


# --- what is read -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A table: a known data set by its name (its path is then None), or a file."""

    name: str
    path: Path | None

    def file(self) -> Path:
        """Return the file, which for a known name must first be found."""
        return dataset_path(self.name) if self.path is None else self.path

    def ledger(self, named: Path | None, out: Path) -> Path:
        """Return the ledger that was named, else the one beside the file, else (known data) the one in `out`."""
        if named is not None:
            return named
        if self.path is None:
            return out / LEDGER_NAME
        path = self.path.resolve()  # one file has one ledger, whatever links lead to it
        return path.with_name(f"{path.name}.{LEDGER_NAME}")


def source_of(data: str) -> Source:
    """Return the known data set of that name, else the file of that path."""
    path = Path(data)
    if data in dataset_names() and not path.exists():
        return Source(data, None)
    if path.is_dir():
        raise BadStructureError(f"Expected a CSV or Parquet file, got the folder {data}; name a file in it.")
    if not path.exists():
        raise BadStructureError(
            f"Expected a file or one of {', '.join(dataset_names())}; got {data!r}, which is neither."
        )
    return Source(path.name, path)


def source_with_schema(data: str, file: Path | None) -> tuple[Source, Schema]:
    """Return a table, and the schema in the named file, else the one that comes with a known data set."""
    source = source_of(data)
    if file is not None:
        return source, Schema.read(file)
    if source.path is None:
        return source, dataset_schema(source.name)
    raise MissingPublicFactError(
        f"Expected --schema with the public facts about {source.name}, got none; make a first one with 'fairveil "
        f"schema draft {quote(str(source.path))} --target COLUMN --sensitive COLUMN --out schema.toml', edit and "
        "approve it."
    )


def open_model(folder: Path, key: Path | None) -> FairClassifier:
    """Return the saved classifier; a randomized one takes the key beside its folder unless another one is named."""
    beside = folder.resolve().parent / "key"
    if key is None and beside.is_file():
        kind = estimator_named(str(read_facts(folder).get("estimator")))
        key = beside if kind is not None and (kind.postprocesses or kind.is_randomized) else None
    return FairClassifier.load(folder, key=key)


# --- what is written --------------------------------------------------------------------------------------------------


@dataclass
class Folder:
    """An output folder whose results, each a file or a folder, appear together at the end, or not at all."""

    path: Path
    results: Mapping[str, str]
    stage: Path = field(init=False)
    _made: list[Path] = field(default_factory=list, init=False)

    def __enter__(self) -> "Folder":
        for name, kind in self.results.items():  # found early: a place that no earlier run made
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
        for name in self.results:
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


def say(as_json: bool, facts: dict[str, Any], text: str) -> None:
    """Print one JSON object for machines, or text for people."""
    typer.echo(json.dumps(facts, allow_nan=False) if as_json else text, file=sys.stdout)
