"""Contenders that are not private: models of scikit-learn, and each of them with the exact best rule under the bound.

They say how much of a gap in accuracy is the price of privacy, and how much is the model's or the bound's own. A rule
is found on training rows alone. It reads the group where the problem allows it; where it does not, it sees
P(group, label | x), learned without the sensitive columns.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from fairveil._typing import Float64Array
from fairveil.bench.contenders import Answer, Contender, Problem
from fairveil.data.encoding import Encoder
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import constrain
from fairveil.fairness.rates import Attribute, Population
from fairveil.research.boosting import RawTable, class_chances, crossed, groups_by_label, labels_of
from fairveil.research.fair_rules import RuleSearch, chances_of_hidden, chances_of_known, drawn, law

Chances = tuple[Float64Array, Float64Array]
"""P(label | x), or P(group, label | x), of the training and of the test rows."""


@dataclass(frozen=True)
class Arrays:
    """Both sides of a problem in one table: training rows first."""

    frame: pd.DataFrame
    y: NDArray[np.int64]
    groups: NDArray[np.int64]
    people: Population
    train: NDArray[np.int64]
    test: NDArray[np.int64]

    @classmethod
    def of(cls, problem: Problem) -> "Arrays":
        """Return the rows of a problem as codes."""
        schema, n_train = problem.schema, len(problem.train)
        frame = pd.concat([problem.train, problem.test], ignore_index=True)
        encoder = Encoder(schema)
        entries = [schema.sensitive_named(name) for name in problem.sensitive]
        classes = schema.target.classes
        attributes = tuple(Attribute(one.column, one.groups) for one in entries)
        people = Population(attributes, classes, classes.index(schema.target.positive))
        groups = people.code([encoder.groups(frame[one.column], one) for one in entries])
        y = encoder.targets(frame[schema.target.column])
        places = np.arange(len(frame))
        return cls(frame, y.astype(int), groups.astype(int), people, places[:n_train], places[n_train:])


def logistic_labels(problem: Problem, arrays: Arrays) -> Chances:
    """Return P(label | x) by logistic regression on the schema's encoding."""
    rows, n_classes = Encoder(problem.schema).rows(arrays.frame), arrays.people.n_classes
    known = rows[arrays.train], arrays.y[arrays.train]
    learner = LogisticRegression(max_iter=1000).fit(*known)
    found = np.zeros((len(rows), n_classes))
    found[:, learner.classes_] = learner.predict_proba(rows)
    return found[arrays.train], found[arrays.test]


def logistic_pairs(problem: Problem, arrays: Arrays) -> Chances:
    """Return P(group, label | x) by logistic regression of pairs, over folds of the training rows."""
    rows, people = Encoder(problem.schema).rows(arrays.frame), arrays.people
    pairs = arrays.groups * people.n_classes + arrays.y

    def predict(known: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.float64]:
        n_pairs = people.n_groups * people.n_classes
        found = class_chances(LogisticRegression(max_iter=1000), rows[known], pairs[known], n_pairs, rows[others])
        return found.reshape(len(others), people.n_groups, people.n_classes)

    return crossed(predict, arrays.train, arrays.test)


def boosted_labels(problem: Problem, arrays: Arrays) -> Chances:
    """Return P(label | x) by boosted trees on the raw table, over folds of the training rows."""
    table = RawTable.of(arrays.frame, problem.schema)
    return crossed(labels_of(table, arrays.y, arrays.people.n_classes), arrays.train, arrays.test)


def boosted_pairs(problem: Problem, arrays: Arrays) -> Chances:
    """Return P(group, label | x) by boosted trees: of labels, times of groups when the label is known."""
    table, people = RawTable.of(arrays.frame, problem.schema), arrays.people
    labels = labels_of(table, arrays.y, people.n_classes)
    groups = groups_by_label(table, arrays.groups, arrays.y, people.n_groups, people.n_classes)
    both = lambda known, others: labels(known, others)[:, None] * groups(known, others)  # noqa: E731
    return crossed(both, arrays.train, arrays.test)


Learn = Callable[[Problem, Arrays], Chances]


def unbounded_answer(labels: Learn, problem: Problem) -> Answer:
    """Return the most probable class of each test row."""
    arrays = Arrays.of(problem)
    chances = labels(problem, arrays)[1]
    return _answer(problem, chances.argmax(axis=1), chances[:, arrays.people.positive])


def fair_answer(labels: Learn, pairs: Learn, problem: Problem) -> Answer:
    """Return decisions by the best rule under the bound on the training rows."""
    arrays = Arrays.of(problem)
    bounds = constrain(problem.constraint, arrays.people)
    below = bounds.below.reshape(len(bounds.below), bounds.n_cells, bounds.n_classes)
    if not np.all(below == below[:, :, :1]):
        raise InvalidParameterError(
            "Expected bounds on rates whose denominators do not depend on decisions, got others (precision), for "
            "which no exact best rule is known; leave the fair yardsticks out."
        )
    if problem.aware:
        sides = labels(problem, arrays)
        rows = (arrays.train, arrays.test)
        seen = [chances_of_known(one, arrays.groups[own], bounds) for one, own in zip(sides, rows, strict=True)]
    else:
        joint = pairs(problem, arrays)
        sides = joint[0].sum(axis=1), joint[1].sum(axis=1)
        seen = [chances_of_hidden(one, bounds) for one in joint]
    cells = bounds.cells[arrays.groups[arrays.train], arrays.y[arrays.train]]
    search = RuleSearch(sides[0], seen[0], cells, bounds)
    decided = law(sides[1], seen[1], search.tilts(search.multipliers()))
    return _answer(problem, drawn(decided, problem.seed), sides[1][:, arrays.people.positive])


def _answer(problem: Problem, codes: NDArray[np.int64], scores: Float64Array) -> Answer:
    names = np.array(problem.schema.target.classes)
    return Answer(names[codes], scores, math.inf, "nothing")


def _yardstick(name: str, title: str, answer: Callable[[Problem], Answer], keeps_tolerance: bool) -> Contender:
    return Contender(name, title, answer, is_private=False, keeps_tolerance=keeps_tolerance)


FAIR = "fair-"
YARDSTICKS = tuple(
    one
    for name, words, labels, pairs in (
        ("logistic", "logistic regression", logistic_labels, logistic_pairs),
        ("boosting", "boosted trees", boosted_labels, boosted_pairs),
    )
    for one in (
        _yardstick(name, f"{words}, not private", partial(unbounded_answer, labels), False),
        _yardstick(
            f"{FAIR}{name}", f"{words} with the best fair rule, not private", partial(fair_answer, labels, pairs), True
        ),
    )
)
"""Each model by itself, and with the exact best rule under the bound."""
