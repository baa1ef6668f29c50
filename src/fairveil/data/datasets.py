"""Known names in, real tables with their public schemas out.

Adult is bundled. The others are too large or not ours to give: their schemas are bundled, their rows are
looked for as NAME.parquet in the folder that the environment variable FAIRVEIL_DATA names.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from fairveil.data.encoding import Encoder
from fairveil.data.loaders import columns_needed
from fairveil.data.schema import Schema
from fairveil.data.schema_errors import close_match
from fairveil.data.tables import table_columns
from fairveil.errors import BadStructure

__all__ = ["Dataset", "dataset_names", "dataset_path", "dataset_schema", "load_dataset"]

DATA_FOLDER = "FAIRVEIL_DATA"
_BUNDLED = Path(__file__).parent / "bundled"


@dataclass(frozen=True)
class Dataset:
    """A table with its schema.

    Attributes
    ----------
    frame : DataFrame
        The rows that meet the schema's row rules, with all columns of the file.
    schema : Schema
        The public facts.
    name : str
        The known name.
    """

    frame: pd.DataFrame
    schema: Schema
    name: str

    @property
    def X(self) -> pd.DataFrame:
        """The columns the schema reads except the target: features, groups, and those of its id and row rules."""
        needed = columns_needed(self.schema, self.schema.sensitive)
        names = [name for name in needed if name != self.schema.target.column]
        return self.frame[names]

    @property
    def y(self) -> pd.Series:
        """The raw target."""
        return self.frame[self.schema.target.column]


def dataset_names() -> tuple[str, ...]:
    """Return the known names.

    Examples
    --------
    >>> "adult" in dataset_names()
    True
    """
    return tuple(sorted(path.stem for path in _BUNDLED.glob("*.toml")))


def dataset_schema(name: str) -> Schema:
    """Return the public schema of a known data set; no row is touched."""
    return Schema.read(_BUNDLED / f"{_known(name)}.toml")


def dataset_path(name: str) -> Path:
    """Return the Parquet file of a known data set."""
    bundled = _BUNDLED / f"{_known(name)}.parquet"
    if bundled.is_file():
        return bundled
    folder = os.environ.get(DATA_FOLDER)
    path = Path(folder or ".") / f"{name}.parquet"
    if folder and path.is_file():
        return path
    where = (
        f"{path}, where there is none" if folder else f"the folder named by {DATA_FOLDER}, which is not set"
    )
    source = dataset_schema(name).source
    raise BadStructure(
        f'Expected "{name}" in {where}; get it from: {source}; then save it as {name}.parquet there.'
    )


def load_dataset(name: str) -> Dataset:
    """Return a real table with its schema: "adult" from the package, the others from FAIRVEIL_DATA.

    Examples
    --------
    >>> people = load_dataset("adult")
    >>> people.X.shape, people.schema.target.positive
    ((48842, 12), '>50K')
    """
    path, schema = dataset_path(name), dataset_schema(name)
    table_columns(path)
    try:
        frame = pd.read_parquet(path)
    except (pa.ArrowException, OSError):
        raise BadStructure(f"Expected a whole Parquet file in {path}, got a damaged one.") from None
    return Dataset(frame[Encoder(schema).keep(frame)].reset_index(drop=True), schema, name)


def _known(name: str) -> str:
    names = list(dataset_names())
    if name not in names:
        known = ", ".join(names)
        raise BadStructure(f'Expected a known data set ({known}), got "{name}"{close_match(name, names)}.')
    return name
