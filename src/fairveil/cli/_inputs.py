"""What a command is about: which file, which schema, which ledger, from what was typed."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from fairveil.cli.options import RunOptions
from fairveil.data.datasets import dataset_names, dataset_path, dataset_schema
from fairveil.data.schema import Schema
from fairveil.errors import BadStructureError, MissingPublicFactError

LEDGER_NAME = "ledger.jsonl"


@dataclass(frozen=True)
class Source:
    """A table by name or by path; a known name stands for public data."""

    name: str
    path: Path | None
    is_known: bool

    def file(self) -> Path:
        """Return the file, which for a known name must first be found."""
        return dataset_path(self.name) if self.path is None else self.path


def source_of(data: str) -> Source:
    """Return the known data set of that name, else the file of that path."""
    if data in dataset_names() and not Path(data).exists():
        return Source(data, None, True)
    path = Path(data)
    if path.is_dir():
        raise BadStructureError(f"Expected a CSV or Parquet file, got the folder {data}; name a file in it.")
    if not path.exists():
        raise BadStructureError(
            f"Expected a file or one of {', '.join(dataset_names())}; got {data!r}, which is neither."
        )
    return Source(path.name, path, False)


def schema_of(source: Source, schema: Path | None) -> Schema:
    """Return the schema in the named file, else the one that comes with a known data set."""
    if schema is not None:
        return Schema.read(schema)
    if source.is_known:
        return dataset_schema(source.name)
    raise MissingPublicFactError(
        f"Expected --schema with the public facts about {source.name}, got none; make a first one with 'fairveil "
        f"schema draft {quote(str(source.path))} --target COLUMN --sensitive COLUMN --out schema.toml', "
        "edit and approve it."
    )


def prepared_schema(source: Source, options: RunOptions) -> tuple[Schema, list[str]]:
    """Return the schema as the options want it, and the sensitive columns if there are any."""
    schema = schema_of(source, options.schema)
    if options.target is not None and options.target != schema.target.column:
        raise BadStructureError(
            f'Expected the target that the schema declares, "{schema.target.column}", got "{options.target}"; '
            "edit the schema's [target]."
        )
    return _with_unit(schema, options), sensitive_of(schema, options)


def sensitive_of(schema: Schema, options: RunOptions) -> list[str]:
    """Return the sensitive columns that were named, else the schema's first."""
    for name in options.sensitive:
        if "," in name and name not in schema.columns:
            raise BadStructureError(
                f"Expected one column after --sensitive, got {name!r}; repeat --sensitive for each."
            )
    return list(dict.fromkeys(options.sensitive)) or [entry.column for entry in schema.sensitive[:1]]


def _with_unit(schema: Schema, options: RunOptions) -> Schema:
    changes: dict[str, object] = {}
    if options.unit == "person" and schema.id_column is None:
        raise MissingPublicFactError(
            'Expected the column that names the person; write id_column = "..." in the schema.'
        )
    if options.unit == "record" and schema.id_column is not None:
        changes["id_column"] = None
    if options.n_public is not None:
        changes["n_public"] = options.n_public
    return Schema(**(dict(schema) | changes)) if changes else schema


def ledger_file(source: Source, ledger: Path | None, out: Path | None) -> Path:
    """Return the ledger that was named, else the one beside the data, else (public data) the one in the output."""
    if ledger is not None:
        return ledger
    if source.path is not None:
        path = source.path.resolve()  # one file has one ledger, whatever links lead to it
        return path.with_name(path.name + "." + LEDGER_NAME)
    return (out or Path()) / LEDGER_NAME
