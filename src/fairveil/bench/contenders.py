"""What takes part in a comparison: a problem that is the same for everyone, and the answer to it.

Figures of a comparison are exact counts on held-out rows of public data, for research: they are not private.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairveil._typing import Float64Array
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.fair_classifier import FairClassifier
from fairveil.fairness.constraints import Constraint, DemographicParity, Parity
from fairveil.methods.registry import AUTO, METHODS
from fairveil.methods.settings import with_settings
from fairveil.privacy.ledger import Ledger

LEDGER = "ledger.jsonl"
"""The ledger of a run, in the folder of the run."""


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
        Further choices of the grid: a `model` and a `knob` by name, and the `settings` of a recipe.
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
    has_knob : bool
        Whether a number of its own trades accuracy for fairness; it is `Problem.options["knob"]`.
    extra : str or None
        The optional extra that has to be installed, for rivals of other packages.
    """

    name: str
    title: str
    answer: Callable[[Problem], Answer]
    is_private: bool = True
    keeps_tolerance: bool = True
    has_knob: bool = False
    extra: str | None = None


# --- the methods of the registry --------------------------------------------------------------------------------------


def answer_by_method(name: str, problem: Problem) -> Answer:
    """Train by a method of the registry and answer the test rows.

    The whole budget goes into the classifier: no row is held out, because the test rows are counted exactly.
    """
    method, constraint = METHODS.get(name), problem.constraint
    if method is not None and not method.bounds_gap and not isinstance(constraint, Parity):
        constraint = DemographicParity()  # a cap is only measured
    schema, aware = problem.schema, problem.aware
    if method is not None and method.protects != "record" and aware:  # never reads the attribute that is secret
        schema, aware = schema.without(*(one for one in problem.sensitive if one in schema.columns)), False
    clf = FairClassifier(
        constraint,
        problem.epsilon,
        problem.delta,
        sensitive=list(problem.sensitive),
        aware=aware,
        method=name,
        schema=schema,
        holdout=0.0,
        ledger=Ledger(problem.folder / LEDGER),
        protects="record" if method is None else method.protects,
    )
    model, knob, settings = (problem.options.get(part) for part in ("model", "knob", "settings"))
    if model is not None or knob is not None or settings:
        training = clf.request().method.make_training(model, knob)
        clf.training = with_settings(training, settings or {})
    table, target = problem.train, problem.schema.target
    clf.fit(table, table[target.column])
    positive = [str(one) for one in clf.classes_].index(target.positive)
    return Answer(
        decisions=np.array([str(one) for one in clf.predict(problem.test)]),
        scores=clf.predict_proba(problem.test)[:, positive].astype(np.float64),
        epsilon=float(clf.epsilon_spent_),
        protects=clf.protects if math.isfinite(problem.epsilon) else "nothing",
        notes={"method": clf.method_, "unit": clf.plan_.unit},
    )


def methods_as_contenders() -> tuple[Contender, ...]:
    """Return "auto" and every method that is registered."""
    found = [Contender(AUTO, "chosen by public facts", partial(answer_by_method, AUTO))]
    for method in METHODS.values():
        found.append(
            Contender(
                method.name,
                method.title,
                partial(answer_by_method, method.name),
                keeps_tolerance=method.bounds_gap,
                has_knob=method.knob is not None,
            )
        )
    return tuple(found)


# --- others -----------------------------------------------------------------------------------------------------------

CONTENDERS: dict[str, Contender] = {}
"""Those that are no methods of the registry, by name: yardsticks, and rivals from other packages."""


def register(*contenders: Contender) -> None:
    """Make contenders known to grids; a name means one contender for good."""
    for one in contenders:
        if one.name == AUTO or one.name in METHODS or one.name in CONTENDERS:
            raise InvalidParameterError(f"Expected a name that no other contender has, got {one.name!r}.")
        CONTENDERS[one.name] = one


def contenders() -> dict[str, Contender]:
    """Return all contenders by name: methods first.

    Examples
    --------
    >>> "dp2dp" in contenders()
    True
    """
    return {one.name: one for one in methods_as_contenders()} | CONTENDERS
