"""Images in folders as flat rows: a folder for each class, or the layout of CelebA (Liu et al. 2015).

Everything that fixes the table is declared: classes, attributes and the shape of an image. A file that cannot be read
as an image becomes a row of missing values, which the schema handles like any other.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil._validation import check_choice, check_number
from fairveil.data.schema import Schema
from fairveil.errors import BadStructureError, InvalidParameterError, MissingPackageError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp"}
MODES = {1: "L", 3: "RGB"}
"""What an image is read as, by its number of channels."""

PARTITIONS = {"train": "0", "validation": "1", "test": "2"}
"""The codes of list_eval_partition.txt."""

LARGEST_VALUE = 255.0


@dataclass(frozen=True, eq=False)
class Images:
    """Images as rows, with their labels and groups.

    Attributes
    ----------
    X : array of float32, shape (n_images, n_channels * height * width)
        Values from 0 to 255, NaN for a file that is no image.
    y : array of shape (n_images,)
    sensitive : array of shape (n_images,) or None
    shape : tuple of int
        (n_channels, height, width): the input shape of a `TorchModel`.
    classes, groups : tuples
        As declared.
    """

    X: NDArray[np.float32]
    y: NDArray[Any]
    sensitive: NDArray[Any] | None
    shape: tuple[int, int, int]
    classes: tuple[Any, ...]
    groups: tuple[Any, ...] | None = None

    def schema(self, n_public: int | None = None) -> Schema:
        """Return the schema of these rows; `n_public` is the number of images, if it is public."""
        size = self.shape[0] * self.shape[1] * self.shape[2]
        bounds = (0.0, LARGEST_VALUE)
        return Schema.for_arrays(size, self.classes, bounds=bounds, n_public=n_public, groups=self.groups)


def load_image_folder(folder: str | Path, classes: Sequence[str], shape: tuple[int, int, int]) -> Images:
    """Return the images of a folder that has one folder for each class, in the order of classes and file names.

    Parameters
    ----------
    folder : str or Path
        Holds the folders of the classes.
    classes : sequence of str
        The names of all class folders, which are public; a missing one is refused.
    shape : tuple of int
        (n_channels, height, width): 1 channel for gray or 3 for color; images are resized.
    """
    paths: list[Path] = []
    labels: list[str] = []
    for name in classes:
        inner = Path(folder) / name
        if not inner.is_dir():
            raise BadStructureError(f"Expected a folder for class {name!r}, got none in {folder}; create or rename it.")
        found = sorted(path for path in inner.iterdir() if path.suffix.lower() in SUFFIXES)
        paths += found
        labels += [name] * len(found)
    return Images(_read_all(paths, shape), np.array(labels, dtype=object), None, shape, tuple(classes))


def load_celeba(
    folder: str | Path,
    target: str = "Smiling",
    sensitive: str = "Male",
    *,
    partition: str = "train",
    shape: tuple[int, int, int] = (3, 64, 64),
    images: str = "img_align_celeba",
) -> Images:
    """Return one part of a data set in the layout of CelebA; label and group are 0 or 1.

    Parameters
    ----------
    folder : str or Path
        Holds the folder of images, list_attr_celeba.txt and list_eval_partition.txt.
    target, sensitive : str
        Names of attributes.
    partition : {"train", "validation", "test"}
        Which part, as list_eval_partition.txt numbers them.
    shape : tuple of int
        (n_channels, height, width); images are resized.
    images : str
        The name of the folder of images.
    """
    code = PARTITIONS[check_choice("partition", partition, PARTITIONS)]
    folder = Path(folder)
    lines = _lines(folder / "list_attr_celeba.txt")[1:]  # the first line is a count
    names = lines[0].split() if lines else []
    for name in (target, sensitive):
        if name not in names:
            raise BadStructureError(
                f"Expected an attribute named {name!r}, got none in list_attr_celeba.txt; its second line names them."
            )
    places = [names.index(target), names.index(sensitive)]
    rows = {cells[0]: cells[1:] for line in lines[1:] if len(cells := line.split()) == len(names) + 1}
    members = [cells for line in _lines(folder / "list_eval_partition.txt") if len(cells := line.split()) == 2]
    files = [name for name, own in members if own == code and name in rows and Path(name).name == name]
    codes = np.array([[int(rows[name][place] == "1") for place in places] for name in files]).reshape(-1, 2)
    X = _read_all([folder / images / name for name in files], shape)
    return Images(X, codes[:, 0], codes[:, 1], shape, (0, 1), (0, 1))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as problem:
        raise BadStructureError(
            f"Expected the layout of CelebA, got {problem.strerror} for {path.name}; name the folder that holds it."
        ) from None


def _read_all(paths: Sequence[Path], shape: tuple[int, int, int]) -> NDArray[np.float32]:
    """Return one flat row for each file, in order."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise MissingPackageError(
            "Expected pillow to read images, got an environment without it; install it with pip install pillow."
        ) from None
    for size in shape:
        check_number("shape", size, whole=True)
    if len(shape) != 3 or shape[0] not in MODES:
        raise InvalidParameterError(f"Expected a shape of 1 or 3 channels, a height and a width, got {shape}.")
    n_channels, height, width = shape
    X = np.full((len(paths), n_channels * height * width), np.nan, dtype=np.float32)
    for row, path in enumerate(paths):
        try:
            with warnings.catch_warnings(action="ignore"), Image.open(path) as image:  # values cause no messages
                resized = image.convert(MODES[n_channels]).resize((width, height), Image.Resampling.BILINEAR)
        except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError, EOFError):
            continue  # the row stays missing
        values = np.asarray(resized, dtype=np.float32).reshape(height, width, n_channels)
        X[row] = values.transpose(2, 0, 1).ravel()
    return X
