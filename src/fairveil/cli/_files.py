"""The files of a command: the table, schema and ledger that it reads; results that appear whole or not at all."""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from fairveil._durable import stage_in, sync
from fairveil._reading import parquet_files
from fairveil.data.datasets import dataset_names, dataset_path, dataset_schema
from fairveil.data.schema import Schema
from fairveil.errors import BadStructureError, MissingPublicFactError, printable
from fairveil.persistence import FACTS, WEIGHTS
from fairveil.privacy.known_data import ledgers_about
from fairveil.privacy.ledger import Ledger
from fairveil.report.privacy_text import other_ledger_caution

LEDGER_NAME = "ledger.jsonl"
LEDGER_SIGN = b'{"fairveil_ledger"'
HEAD = ".head"
"""How the name of the file ends that is kept beside a ledger, and tells when lines at its end are missing."""

SUMMARY = "summary.json"


# --- what is read -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A table: a known data set by its name (its path is then None), a file, or a folder of Parquet files."""

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
        return ledger_beside(self.path.resolve())  # one file has one ledger, whatever links lead to it

    def inputs(self, ledger: Path, **others: Path | None) -> dict[str, Path | None]:
        """Return what a command must not write over, by what it is: the table, its ledger, and others."""
        return {"data file": self.path, "ledger": ledger, "head of the ledger": Path(f"{ledger}{HEAD}"), **others}


def ledger_beside(file: Path) -> Path:
    """Return the place of the ledger of a table."""
    return file.with_name(f"{file.name}.{LEDGER_NAME}")


def choose_ledger(source: Source, named: Path | None, out: Path) -> tuple[Path, list[str]]:
    """Return the ledger of a table, and a caution if another one has entries about the same data.

    The default ledger of a file is refused if it does not know the data and another ledger does: the file is a copy.
    """
    path = source.ledger(named, out)
    others = [] if source.path is None else ledgers_about(source.path, path)
    if source.path is not None and named is None and others and not Ledger(path).is_about(source.path):
        raise BadStructureError(
            f"Expected the ledger that already has entries about the data in {source.name}, got the default ledger of "
            f"a copy; pass --ledger {quote(str(others[0]))} so that everything released from these people adds up."
        )
    return path, [other_ledger_caution(str(other)) for other in others]


def source_of(data: str) -> Source:
    """Return the known data set of that name, else the file of that path, or the folder of Parquet files."""
    path = Path(data)
    if data in dataset_names() and not path.exists():
        return Source(data, None)
    if path.is_dir():
        parquet_files(path)
        path = path if path.name not in ("", "..") else path.resolve()
        if not path.name:
            raise BadStructureError(f"Expected a folder of Parquet files, got {data}, which has no name; move them.")
    if not path.exists():
        raise BadStructureError(
            f"Expected a file, a folder of Parquet files or one of {', '.join(dataset_names())}; got {data!r}, which "
            "is neither."
        )
    return Source(printable(path.name), path)


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


# --- what is written --------------------------------------------------------------------------------------------------


def check_outputs(outputs: Iterable[Path], inputs: Mapping[str, Path | None]) -> None:
    """Refuse to write over, or into, anything that is read or debited; `inputs` are paths by what they are."""
    for out in outputs:
        place = Path(os.path.realpath(out))  # Path.resolve raises at a link that leads to itself
        for what, file in inputs.items():
            if file is None:
                continue
            other = Path(os.path.realpath(file))
            is_same = out.exists() and file.exists() and out.samefile(file)
            if is_same or place.is_relative_to(other) or other.is_relative_to(place):
                raise BadStructureError(
                    f"Expected to write {out} apart from the {what}, got the same place; name another one with --out."
                )
        if out.is_file():
            kind = "table of people" if ledger_beside(out).exists() else "ledger" if _is_ledger(out) else None
            if kind is not None:
                raise BadStructureError(
                    f"Expected a place that may be written over, got {out}, which is a {kind}; name another --out."
                )


def _is_ledger(file: Path) -> bool:
    """Return whether a file is a ledger, or the head that is kept beside one."""
    with file.open("rb") as content:
        if content.read(len(LEDGER_SIGN)) == LEDGER_SIGN:
            return True
    return file.suffix == HEAD and file.with_suffix("").is_file() and _is_ledger(file.with_suffix(""))


@contextmanager
def results_in(folder: Path, results: Mapping[str, str]) -> Iterator[Path]:
    """Yield a stage for results in an output folder.

    A folder in which something that no run of fairveil wrote has the name of a result is refused. The folder is made if
    there is none. If the block fails, nothing is left of it.
    """
    with ExitStack() as stack:
        stack.enter_context(made_folder(folder))
        try:
            stage = stack.enter_context(stage_in(folder))
        except OSError as problem:
            raise _not_writable(folder, problem) from None
        # the names of the results that a run wrote together with this summary; none if it is not fairveil's
        written: Any = ()
        with suppress(ValueError, RecursionError):
            facts = json.loads((folder / SUMMARY).read_bytes()) if (folder / SUMMARY).is_file() else None
            if isinstance(facts, dict) and {"version", "plan", "statement", "epsilon_spent"} <= facts.keys():
                written = facts.get("files", list(results))  # earlier versions did not list them
        written = written if isinstance(written, list) else ()
        for name, kind in results.items():
            place = folder / name
            if not os.path.lexists(place):
                continue
            if not (place.is_dir() if kind == "folder" else place.is_file()):
                raise BadStructureError(f"Expected {place} to be a {kind} or free, got something else; move it away.")
            foreign = kind == "folder" and {path.name for path in place.iterdir()} - {FACTS, WEIGHTS}
            if foreign or name not in written:
                raise BadStructureError(
                    f"Expected free places for the results in {folder}, got {place}, which no run of fairveil wrote "
                    "there; move it away, or name another --out."
                )
        yield stage


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make a folder and those above it; if the block fails, remove what was made, as far as it is empty."""
    made: list[Path] = []
    try:
        try:
            for path in reversed([folder, *folder.parents]):
                if not path.exists():
                    path.mkdir()
                    made.append(path)
                    sync(path.parent)
                elif not path.is_dir():
                    raise NotADirectoryError(0, "a file")
        except OSError as problem:
            raise _not_writable(folder, problem) from None
        yield
    except BaseException:
        with suppress(OSError):  # not empty: a ledger in it stays
            for path in reversed(made):
                path.rmdir()
        raise


def _not_writable(folder: Path, problem: OSError) -> BadStructureError:
    return BadStructureError(
        f"Expected an output folder that can be written, got {problem.strerror} for {folder}; name another one with "
        "--out."
    )


def check_place(path: Path) -> None:
    """Refuse a place where no file can be written, before any privacy is spent."""
    try:
        if path.exists() and not path.is_file():
            raise IsADirectoryError(0, "a folder" if path.is_dir() else "a device")
        with stage_in(Path(os.path.realpath(path)).parent):
            pass
    except OSError as problem:
        raise BadStructureError(
            f"Expected to write {path}, got {problem.strerror}; name another place with --out."
        ) from None


def rescue(what: str, write: Callable[[Path], None]) -> str:
    """Write what was paid for into a new temporary folder, and say where it is, or that it is lost."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="fairveil-"))
        write(folder)
    except (OSError, BadStructureError):
        return f"the privacy budget is spent and {what} is lost: free some space, and run the command again"
    return f"the privacy budget is spent, and {what} is kept in {folder}: move it to a safe place"
