"""What takes part in a comparison: a problem that is the same for everyone, and the answer to it.

Figures of a comparison are exact counts on held-out rows of public data, for research: they are not private.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fairveil._typing import Float64Array
from fairveil.data.schema import Schema
from fairveil.fairness.constraints import Constraint


@dataclass(frozen=True)
class Problem:
    """One fit: the rows, the bound and the budget.

    Attributes
    ----------
    train, test : DataFrame
        Rows with all columns of the schema, the target and the sensitive columns included.
    schema : Schema
        Public facts, with `n_public` set to the expected number of training rows. A sensitive column is among its
        features only if `aware`.
    sensitive : tuple of str
        The columns whose groups are compared.
    constraint : Constraint
        With its tolerance. Contenders that keep no tolerance have a `knob` in its place.
    epsilon, delta : float
        The budget; `math.inf` for contenders that are not private.
    aware : bool
        Whether decisions may read the sensitive columns.
    seed : int
        Seeds what is public. Noise is never seeded.
    folder : Path
        Of this run alone; the ledger of the run is `folder / "ledger.jsonl"`.
    options : mapping
        Further settings from the grid, such as ``{"model": "mlp", "knob": 2.0}``.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    schema: Schema
    sensitive: tuple[str, ...]
    constraint: Constraint
    epsilon: float
    delta: float
    aware: bool
    seed: int
    folder: Path
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What a contender says of the test rows, and what it cost.

    Attributes
    ----------
    decisions : array of shape (n_test,)
        Class names as in `Problem.schema.target.classes`, as text.
    scores : array of shape (n_test,) or None
        The probability of the positive class, where there is one.
    epsilon : float
        What the fit costs at the problem's delta, by the contender's own account; `math.inf` if it is not private.
    protects : {"record", "attribute", "nothing"}
        What that epsilon hides.
    notes : mapping
        Further figures that can be written as JSON.
    """

    decisions: Any
    scores: Float64Array | None
    epsilon: float
    protects: str
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """A method or a rival by name.

    Attributes
    ----------
    name, title : str
        What a grid says, and a few words for tables.
    answer : callable
        Fits on the training rows of a problem and answers its test rows.
    is_private, keeps_tolerance : bool
        Whether it has a budget, and whether it reads the tolerance of the constraint.
    extra : str or None
        The optional extra that has to be installed, for rivals of other packages.
    """

    name: str
    title: str
    answer: Callable[[Problem], Answer]
    is_private: bool = True
    keeps_tolerance: bool = True
    extra: str | None = None
