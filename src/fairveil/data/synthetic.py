"""People who never were: the synthetic task of DP2DP (Appendix E.1, after Denis et al. 2024), from public coins.

Classes are equally likely; features given the class follow a mixture of Gaussians around its centre; the group depends
on the class alone: each of the first half of the classes has group 1 with probability p, each of the others with 1 - p.
With p = 1/2 groups are alike, with p near 0 or 1 they hardly share a class.
"""

from typing import Any

import numpy as np
import pandas as pd

from fairveil._validate import check_integer, check_probability
from fairveil.coins import public_coins
from fairveil.data.datasets import Dataset
from fairveil.data.schema import Number, Schema, Sensitive, Target

__all__ = ["make_biased_mixture"]

REACH = 5.0
"""Public bounds of every feature: a feature has mean 0 and a standard deviation of about 1.5."""


def make_biased_mixture(
    n_rows: int = 10_000,
    p: float = 0.75,
    n_classes: int = 6,
    n_features: int = 20,
    n_components: int = 10,
    random_state: Any = None,
) -> Dataset:
    """Return rows of the synthetic task with their schema; centres and rows both come from `random_state`.

    Examples
    --------
    >>> people = make_biased_mixture(1000, p=0.9, random_state=0)
    >>> people.X.shape, people.schema.sensitive[0].groups, people.y.nunique()
    ((1000, 21), ('-1', '1'), 6)
    """
    check_integer("n_classes", n_classes, at_least=2)
    for name, value in (("n_rows", n_rows), ("n_features", n_features), ("n_components", n_components)):
        check_integer(name, value)
    if p != 0:
        check_probability("p", p)
    rng = public_coins(random_state)
    centres = rng.uniform(-1, 1, (n_classes, 1, n_features))
    centres = centres + rng.standard_normal((n_classes, n_components, n_features))
    labels = rng.integers(n_classes, size=n_rows)
    features = centres[labels, rng.integers(n_components, size=n_rows)] + rng.standard_normal(
        (n_rows, n_features)
    )
    is_one = rng.random(n_rows) < np.where(labels < n_classes // 2, p, 1 - p)
    names = [f"x{place}" for place in range(n_features)]
    frame = pd.DataFrame(features, columns=names)
    frame["s"], frame["y"] = np.where(is_one, 1, -1), labels
    return Dataset(frame[[*names, "s", "y"]], _schema(names, n_classes, n_rows), "biased mixture")


def _schema(names: list[str], n_classes: int, n_rows: int) -> Schema:
    return Schema(
        name="biased mixture",
        source="made by fairveil.make_biased_mixture",
        n_public=n_rows,
        target=Target(column="y", classes=tuple(str(code) for code in range(n_classes))),
        sensitive=(Sensitive(column="s", groups=("-1", "1")),),
        columns={name: Number(bounds=(-REACH, REACH), encode="scale") for name in names},
    )
