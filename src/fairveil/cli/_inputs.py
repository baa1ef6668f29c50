"""What a command works on: which file, which schema, which ledger, from the options."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from fairveil.data.datasets import dataset_names, dataset_path, dataset_schema
from fairveil.data.schema import Schema
from fairveil.errors import BadStructureError, MissingPublicFactError
from fairveil.fair_classifier import FairClassifier
from fairveil.methods.registry import estimator_named
from fairveil.persistence import read_facts

LEDGER_NAME = "ledger.jsonl"


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

    def schema(self, file: Path | None) -> Schema:
        """Return the schema in the named file, else the one that comes with a known data set."""
        if file is not None:
            return Schema.read(file)
        if self.path is None:
            return dataset_schema(self.name)
        raise MissingPublicFactError(
            f"Expected --schema with the public facts about {self.name}, got none; make a first one with 'fairveil "
            f"schema draft {quote(str(self.path))} --target COLUMN --sensitive COLUMN --out schema.toml', edit and "
            "approve it."
        )


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


def open_model(folder: Path, key: Path | None) -> FairClassifier:
    """Return the saved classifier; a randomized one takes the key beside its folder unless another one is named."""
    beside = folder.resolve().parent / "key"
    if key is None and beside.is_file():
        kind = estimator_named(str(read_facts(folder).get("estimator")))
        key = beside if kind is not None and (kind.postprocesses or kind.is_randomized) else None
    return FairClassifier.load(folder, key=key)
