"""Known names in, tables with their public schemas out; and two synthetic tasks from the literature.

Adult is bundled. The other tables are too large or may not be redistributed: their schemas are bundled, their rows are
read from NAME.parquet in the folder that the environment variable FAIRVEIL_DATA names.

The synthetic rows belong to nobody; they come from a public seed.
"""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.special import ndtri

from fairveil._random import public_coins
from fairveil._validation import check_number
from fairveil.data import BUNDLED, DATA_FOLDER
from fairveil.data.encoding import Encoder
from fairveil.data.readers import columns_needed, table_columns
from fairveil.data.schema import Number, Schema, Sensitive, Target
from fairveil.data.schema_errors import close_match
from fairveil.errors import BadStructureError

MIXTURE_BOUND = 5.0
"""Public bounds of every feature of the mixture: it has mean 0 and a standard deviation of about 1.5."""

MAJORITY = 0.8
"""The share of positive labels in one group and of negative labels in the other (FairDP, Appendix F)."""

BEST_AUC = 0.91
"""The area under the ROC curve of the best score on separated groups: the "clean" column of FairDP's Table 2."""


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
    return tuple(sorted(path.stem for path in BUNDLED.glob("*.toml")))


def dataset_schema(name: str) -> Schema:
    """Return the public schema of a known data set; no row is read."""
    names = list(dataset_names())
    if name not in names:
        known = ", ".join(names)
        raise BadStructureError(f'Expected a known data set ({known}), got "{name}"{close_match(name, names)}.')
    return Schema.read(BUNDLED / f"{name}.toml")


def dataset_path(name: str) -> Path:
    """Return the Parquet file of a known data set."""
    source = dataset_schema(name).source
    bundled = BUNDLED / f"{name}.parquet"
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


def load_dataset(name: str) -> Dataset:
    """Return a real table with its schema by its `name`: "adult" from the package, the others from FAIRVEIL_DATA.

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
        raise BadStructureError(f"Expected a whole Parquet file in {path}, got a damaged one.") from None
    return Dataset(frame[Encoder(schema).keep(frame)].reset_index(drop=True), schema, name)


def make_biased_mixture(
    n_rows: int = 10_000,
    p: float = 0.75,
    n_classes: int = 6,
    n_features: int = 20,
    n_components: int = 10,
    random_state: Any = None,
) -> Dataset:
    """Return rows of DP2DP's synthetic task with their schema (Appendix E.1, after Denis et al. 2024).

    Classes are equally likely. The features of a class follow a mixture of Gaussians around its center. The group
    depends on the class alone: each of the first half of the classes has group 1 with probability p, each of the others
    with 1 - p. With p = 1/2 groups are alike, with p near 0 or 1 they hardly share a class. Centers and rows both come
    from `random_state`.

    Parameters
    ----------
    n_rows : int
        The number of rows.
    p : float
        The probability above.
    n_classes : int
        The number of classes.
    n_features : int
        The number of features beside the group.
    n_components : int
        The number of Gaussians of each class.
    random_state : int, Generator or None
        Seeds everything.

    Examples
    --------
    >>> people = make_biased_mixture(1000, p=0.9, random_state=0)
    >>> people.X.shape, people.schema.sensitive[0].groups, people.y.nunique()
    ((1000, 21), ('-1', '1'), 6)
    """
    check_number("n_classes", n_classes, whole=True, at_least=2)
    for name, value in (("n_rows", n_rows), ("n_features", n_features), ("n_components", n_components)):
        check_number(name, value, whole=True)
    if p != 0:
        check_number("p", p, at_most=1)
    rng = public_coins(random_state)
    centers = rng.uniform(-1, 1, (n_classes, 1, n_features))
    centers = centers + rng.standard_normal((n_classes, n_components, n_features))
    labels = rng.integers(n_classes, size=n_rows)
    features = centers[labels, rng.integers(n_components, size=n_rows)] + rng.standard_normal((n_rows, n_features))
    is_one = rng.random(n_rows) < np.where(labels < n_classes // 2, p, 1 - p)
    names = [f"x{place}" for place in range(n_features)]
    frame = pd.DataFrame(features, columns=names)
    frame["s"], frame["y"] = np.where(is_one, 1, -1), labels
    schema = _schema("biased mixture", "make_biased_mixture", names, n_classes, n_rows, MIXTURE_BOUND)
    return Dataset(frame[[*names, "s", "y"]], schema, "biased mixture")


def make_separated_groups(n_rows: int = 10_000, n_features: int = 12, random_state: Any = None) -> Dataset:
    """Return rows of FairDP's synthetic task with their schema (Appendix F): label and group nearly coincide.

    A row is in group -1 or 1 by a fair coin; its label is positive with probability .8 in group 1 and .2 in group -1;
    its features are Gaussian around +1 (positive) or -1 (negative) in every coordinate, with one covariance for all.

    Parameters
    ----------
    n_rows : int
        The number of rows.
    n_features : int
        The number of features beside the group.
    random_state : int, Generator or None
        Seeds everything.

    Notes
    -----
    The paper prints neither the covariance nor the sizes of the groups. Ours is spherical, the same variance in every
    coordinate and no correlation, and that one number follows from the paper's "clean" column: the best score, the
    plain sum of the features, has an area under the ROC curve of ``Phi(sqrt(2 n_features) / s)``, which is .91 for
    s = 3.65 at 12 features (s grows with `n_features`, so that .91 holds for any number of them). Nothing else was
    fitted. That score cut at 0 then has a demographic parity gap of .39 (printed: .41) and no gap in equalized odds
    (printed: .03).

    Examples
    --------
    >>> people = make_separated_groups(1000, random_state=0)
    >>> people.X.shape, people.schema.sensitive[0].groups, people.schema.target.positive
    ((1000, 13), ('-1', '1'), '1')
    """
    for name, value in (("n_rows", n_rows), ("n_features", n_features)):
        check_number(name, value, whole=True)
    rng = public_coins(random_state)
    is_one = rng.random(n_rows) < 0.5
    labels = (rng.random(n_rows) < np.where(is_one, MAJORITY, 1 - MAJORITY)).astype(np.int64)
    spread = math.sqrt(2 * n_features) / float(ndtri(BEST_AUC))
    features = 2.0 * labels[:, None] - 1 + spread * rng.standard_normal((n_rows, n_features))
    names = [f"x{place}" for place in range(n_features)]
    frame = pd.DataFrame(features, columns=names)
    frame["s"], frame["y"] = np.where(is_one, 1, -1), labels
    # Three standard deviations around both means: beyond lie 3 of 1,000 cells, which are clipped.
    reach = math.ceil(1 + 3 * spread)
    schema = _schema("separated groups", "make_separated_groups", names, 2, n_rows, reach)
    return Dataset(frame[[*names, "s", "y"]], schema, "separated groups")


def _schema(name: str, maker: str, features: list[str], n_classes: int, n_rows: int, reach: float) -> Schema:
    return Schema(
        name=name,
        source=f"made by fairveil.{maker}",
        n_public=n_rows,
        target=Target(column="y", classes=tuple(str(code) for code in range(n_classes))),
        sensitive=(Sensitive(column="s", groups=("-1", "1")),),
        columns={feature: Number(bounds=(-reach, reach), encode="scale") for feature in features},
    )
