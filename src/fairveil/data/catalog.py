"""Known names in, the public schema and the file of each out; no row is read, and no library of tables is loaded."""

import os
from pathlib import Path

from fairveil.data.schema import Schema, close_match
from fairveil.errors import BadStructureError

DATA_FOLDER = "FAIRVEIL_DATA"
_BUNDLED = Path(__file__).parent / "bundled"


def dataset_names() -> tuple[str, ...]:
    """Return the known names.

    Examples
    --------
    >>> "adult" in dataset_names()
    True
    """
    return tuple(sorted(path.stem for path in _BUNDLED.glob("*.toml")))


def dataset_schema(name: str) -> Schema:
    """Return the public schema of a known data set; no row is read."""
    names = list(dataset_names())
    if name not in names:
        known = ", ".join(names)
        raise BadStructureError(f'Expected a known data set ({known}), got "{name}"{close_match(name, names)}.')
    return Schema.read(_BUNDLED / f"{name}.toml")


def dataset_path(name: str) -> Path:
    """Return the Parquet file of a known data set."""
    source = dataset_schema(name).source
    bundled = _BUNDLED / f"{name}.parquet"
    if bundled.is_file():
        return bundled
    folder = os.environ.get(DATA_FOLDER)
    path = Path(folder or ".") / f"{name}.parquet"
    if folder and path.is_file():
        return path
    where = f"{path}, where there is none" if folder else f"the folder named by {DATA_FOLDER}, which is not set"
    raise BadStructureError(
        f'Expected "{name}" in {where}; get it from: {source}; then save it as {name}.parquet there.'
    )
