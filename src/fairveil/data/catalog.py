"""Known names in, their files out; nothing is read, and no library of tables or schemas is loaded."""

import os
from pathlib import Path

DATA_FOLDER = "FAIRVEIL_DATA"
BUNDLED = Path(__file__).parent / "bundled"


def dataset_names() -> tuple[str, ...]:
    """Return the known names.

    Examples
    --------
    >>> "adult" in dataset_names()
    True
    """
    return tuple(sorted(path.stem for path in BUNDLED.glob("*.toml")))


def dataset_file(name: str) -> Path | None:
    """Return the Parquet file of a known name, in the package or in the folder of data; None if there is none."""
    folder = os.environ.get(DATA_FOLDER)
    places = [BUNDLED, Path(folder)] if folder else [BUNDLED]
    return next((file for place in places if (file := place / f"{name}.parquet").is_file()), None)
