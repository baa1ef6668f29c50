"""What a score is made of: points by column, and for each unfavorable decision the columns that cost the most points.

Points follow from released weights and the schema's public facts, so they cost no privacy. Reasons are about the rows
that are passed in, and as private as these rows.

A column's lost points are what the score would gain if this column alone had its best value among those that the schema
names (or a typical value, public too, that the caller states). In a linear model that value is the same for everyone,
so the gain is a difference of two weights; for other models the values are tried one by one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fairveil._typing import Float64Array
from fairveil.data.coded import CodedRows, Features, dense
from fairveil.data.encoding import Encoder
from fairveil.data.schema import OTHER, Category, Number, close_match
from fairveil.errors import InvalidParameterError
from fairveil.methods.inputs import Answer, Predictor
from fairveil.models import Decoupled, LinearSoftmax, PrefittedProbabilities
from fairveil.models.base import reads_codes
from fairveil.models.rules import TiltedArgmax, label_probabilities
from fairveil.report.decision_text import (
    LOG_ODDS,
    NOTES,
    RULE_SCORE,
    UNKNOWN_GROUP,
    no_reasons_sentence,
    no_shapes_sentence,
)

MOST_TRIED = 64
"""Values of a column that are tried for a model without points; of more, so many are spread evenly."""
N_NUMBERS = 5
"""Values that stand for a scaled number column: its bounds, and numbers between them."""
TRIED_ROWS = 4096
"""Rows at a time whose columns are changed, to keep copies small; no answer depends on it."""
MOST_COLUMNS, MOST_LEVELS, MOST_GROUPS = 60, 30, 8
"""What a summary keeps of the shapes at most, so that it stays readable; `shapes()` has them all."""
LEAST_POINTS = 1e-9
"""Fewer lost points are rounding, and no reason."""
CERTAIN = 1 - 1e-9
"""A decision of at least this probability is not drawn at random; the difference is rounding."""


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """The public values of one column, as a model reads them: each is one or two encoded features that are not 0.

    Attributes
    ----------
    name, kind : str
        The column, and "category", or how a number is encoded: "bins", "scale" or "both".
    features : slice
        Its place among the encoded features.
    labels : tuple of str
        What each value is called.
    places, amounts : arrays of shape (n_values, 2)
        The features that are not 0, and what they are; a typical value follows after the labeled ones.
    n_named : int
        So many values come first that the schema names; "other" and "missing" follow.
    references : slice
        The values that a person's is compared with; the best of them counts.
    """

    name: str
    kind: str
    features: slice
    labels: tuple[str, ...]
    places: NDArray[np.int64]
    amounts: Float64Array
    n_named: int
    references: slice


def column_values(encoder: Encoder, typical: Mapping[str, Any] | None = None) -> tuple[ColumnValues, ...]:
    """Return the values of every column: categories, bins, and some numbers of those that are scaled.

    A column is compared with its `typical` value, a public one, if that is passed, and else with all named values.
    """
    known, typical, columns = list(encoder.schema.columns), typical or {}, []
    stranger = next((name for name in typical if name not in known), None)
    if stranger is not None:
        hint = close_match(stranger, known)
        raise InvalidParameterError(f'Expected typical values of columns of the schema, got "{stranger}"{hint}.')
    example = pd.DataFrame({name: pd.Series([typical.get(name)], dtype=object) for name in known})
    codes, scaled = encoder.codes(example)[0].astype(int), iter(encoder.numbers(example)[0])
    for name, slot, code in zip(known, encoder.slots, codes, strict=True):
        column, n_levels = slot.column, len(slot.levels)
        kind = "category" if isinstance(column, Category) else column.encode
        labels = tuple(level.removeprefix(f"{name} in ").removeprefix(f"{name}=") for level in slot.levels)
        n_named = len(column.categories) if isinstance(column, Category) else n_levels - 1
        if name in typical and code >= n_named:
            raise InvalidParameterError(
                f'Expected a typical value of "{name}" that the schema names, got {typical[name]!r}; name one.'
            )
        levels, numbers, number = np.arange(n_levels), np.zeros(n_levels), 0.0
        if isinstance(column, Number) and slot.scaled is not None:
            labels, levels, numbers = _scaled_values(column, slot.edges, labels)
            n_named, number = len(labels) - 1, float(next(scaled))
        levels, numbers = np.append(levels, code), np.append(numbers, number)
        places = np.stack([slot.first + levels, np.full(len(levels), slot.first)], axis=1)
        amounts = np.stack([np.ones(len(levels)), np.zeros(len(levels))], axis=1)
        if slot.scaled == slot.first:  # the number stands where the level "not missing" would
            amounts[:, 0] = np.where(levels == 0, numbers, 1.0)
        elif slot.scaled is not None:
            places[:, 1], amounts[:, 1] = slot.scaled, numbers
        references = slice(len(labels), None) if name in typical else slice(n_named)
        end = slot.first + n_levels + (slot.scaled not in (None, slot.first))
        features = slice(slot.first, end)
        columns.append(ColumnValues(name, kind, features, labels, places, amounts, n_named, references))
    return tuple(columns)


def _scaled_values(
    column: Number, edges: Sequence[float], labels: tuple[str, ...]
) -> tuple[tuple[str, ...], NDArray[Any], Float64Array]:
    """Return names, levels and scaled numbers that stand for a scaled column; the last one is "missing".

    Between cuts the score is a straight line, so the two ends of each bin say all.
    """
    low, high = column.bounds
    if column.encode == "scale":
        ends = shown = np.linspace(low, high, N_NUMBERS)
        names, levels = [f"{number:.6g}" for number in shown], np.zeros(N_NUMBERS, dtype=int)
    else:
        bins = list(pairwise((low, *edges, high)))
        levels, shown = np.repeat(np.arange(len(bins)), 2), np.ravel(bins)
        # an end is the number just below the cut, which itself belongs to the bin above
        ends = np.ravel([(start, np.nextafter(end, start) if end < high else high) for start, end in bins])
        names = [f"{labels[level]} at {number:.6g}" for level, number in zip(levels, shown, strict=True)]
    numbers = np.clip((ends - (low / 2 + high / 2)) / (high / 2 - low / 2), -1, 1)
    return (*names, labels[-1]), np.append(levels, len(labels) - 1), np.append(numbers, 0.0)


def linear_scores(predictor: Predictor, others: Sequence[int]) -> tuple[Float64Array, Float64Array] | None:
    """Return weights (n_models, n_features) and intercepts of the favorable class against others; None if not linear.

    The score is the logit of the favorable class minus the mean logit of the `others`. There is one model, or one for
    each group and, last, their mean, which decides for people of no known group.
    """
    model, positive = predictor.model, predictor.inputs.people.positive
    base, n_models = (model.base, model.n_groups) if isinstance(model, Decoupled) else (model, 1)
    has_pairs = predictor.inputs.encoder.layout.pairs is not None
    if predictor.inputs.predicts == "joint" or not isinstance(base, LinearSoftmax) or has_pairs:
        return None
    params = predictor.params.astype(np.float64).reshape(n_models, -1)
    if isinstance(model, Decoupled):
        params = np.vstack([params, params.mean(axis=0)])
    n_weights = base.n_classes * base.n_features
    weights = params[:, :n_weights].reshape(len(params), base.n_classes, base.n_features)
    biases = params[:, n_weights:] if base.bias else np.zeros((len(params), base.n_classes))
    scores = weights[:, positive] - weights[:, list(others)].mean(axis=1)
    return scores, biases[:, positive] - biases[:, list(others)].mean(axis=1)


def shape_facts(predictor: Predictor, is_bounded: bool = False) -> dict[str, Any]:
    """Return the points that each value of each column adds to the score, the most influential column first.

    A column's range is the difference between the highest and the lowest points of values that the schema names. With
    `is_bounded`, at most so many columns, values of a column (those with the largest points of either sign, in their
    order) and groups are kept as `MOST_COLUMNS`, `MOST_LEVELS` and `MOST_GROUPS` say.
    """
    people, model = predictor.inputs.people, predictor.model
    scores = linear_scores(predictor, [code for code in range(people.n_classes) if code != people.positive])
    if scores is None:
        base = model.base if isinstance(model, Decoupled) else model
        kind = "pairs" if isinstance(base, LinearSoftmax) else "mlp"
        kind = "fitted" if isinstance(model, PrefittedProbabilities) else kind
        sentence = no_shapes_sentence("joint" if predictor.inputs.predicts == "joint" else kind)
        return {
            "sentence": sentence, "groups": [], "n_groups": 0, "intercepts": [], "columns": [], "n_columns": 0
        }  # fmt: skip
    names = [*people.names, UNKNOWN_GROUP] if isinstance(model, Decoupled) else [""]
    most_columns = most_levels = most_groups = None
    if is_bounded:
        names = list(people.names) if isinstance(model, Decoupled) else names
        most_columns, most_levels, most_groups = MOST_COLUMNS, MOST_LEVELS, min(MOST_GROUPS, len(names))
    weights, columns = scores[0][:most_groups], []
    for column in column_values(predictor.inputs.encoder):
        n_levels = len(column.labels)
        points = (weights[:, column.places[:n_levels]] * column.amounts[:n_levels]).sum(axis=2)
        named = points[:, : column.n_named]
        kept = np.sort(np.argsort(-np.abs(points).max(axis=0), kind="stable")[:most_levels])
        facts = {
            "column": column.name,
            "kind": column.kind,
            "range": float((named.max(axis=1) - named.min(axis=1)).max()),
            "levels": [column.labels[place] for place in kept],
            "n_levels": n_levels,
            "points": points[:, kept].round(9).tolist(),
        }
        columns.append(facts)
    columns.sort(key=lambda facts: -float(facts["range"]))
    return {
        "sentence": None,
        "groups": names[:most_groups],
        "n_groups": len(names),
        "intercepts": scores[1][:most_groups].tolist(),
        "columns": columns[:most_columns],
        "n_columns": len(columns),
    }


def shape_table(predictor: Predictor) -> pd.DataFrame:
    """Return `shape_facts` as one row for each column, value and group."""
    facts = shape_facts(predictor)
    if facts["sentence"] is not None:
        raise InvalidParameterError(
            "Expected a linear model, whose score is a sum of points by column, got another one; use reasons, which "
            "work for every model that was trained here."
        )
    rows = [
        (column["column"], column["kind"], level, group, points)
        for column in facts["columns"]
        for group, values in zip(facts["groups"], column["points"], strict=True)
        for level, points in zip(column["levels"], values, strict=True)
    ]
    rows += [("intercept", "", "", *pair) for pair in zip(facts["groups"], facts["intercepts"], strict=True)]
    return pd.DataFrame(rows, columns=["column", "kind", "level", "group", "points"])


# --- decisions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)  # about private rows: no print or log shows it
class Explained:
    """Decisions with their notes and reasons, and counts of what the schema does not name; all about the rows passed.

    Attributes
    ----------
    table : DataFrame
        The columns `prediction` and `note`, then `reason_1`, `points_1` and so on.
    n_unknown_groups : int or None
        The rows of no known group; None if decisions do not read the sensitive columns.
    unknown_categories : dict
        For each category column, the rows whose value the schema does not list (missing ones do not count).
    """

    table: pd.DataFrame
    n_unknown_groups: int | None
    unknown_categories: dict[str, int]


def explain_decisions(
    predictor: Predictor,
    classes: NDArray[Any],
    X: Any,
    n: int,
    columns: Sequence[ColumnValues],
    sensitive_features: Any = None,
    record_ids: Any = None,
) -> Explained:
    """Return the decision for each row with its note and, for unfavorable ones, up to `n` reasons among the columns."""
    inputs, people = predictor.inputs, predictor.inputs.people
    most = len(inputs.schema.columns)
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or not 0 <= n <= most:
        raise InvalidParameterError(
            f"Expected from 1 to {most} reasons, as many as the schema has columns at most, got {n!r}; name fewer."
        )
    if n and inputs.prefitted is not None:
        raise InvalidParameterError(no_reasons_sentence(inputs.prefitted.name))
    answer = predictor.answer(X, sensitive_features, record_ids)
    law = predictor.rule.distribution(answer.logits, answer.groups)
    is_drawn = law[np.arange(len(law)), answer.decided] < CERTAIN
    differs = answer.decided != label_probabilities(answer.logits, people.n_classes).argmax(axis=0)
    stranger = predictor.without_group(X, sensitive_features)
    notes = [*NOTES, *(f"{note}; {UNKNOWN_GROUP}".removeprefix("; ") for note in NOTES)]
    places = 2 * is_drawn + differs + (0 if stranger is None else len(NOTES) * stranger)
    index = X.index if isinstance(X, pd.DataFrame) else None
    table = pd.DataFrame(
        {"prediction": classes[answer.decided], "note": np.array(notes, dtype=object)[places]}, index=index
    )
    if n:
        names, points = _largest_losses(
            predictor, answer, (answer.decided != people.positive) & ~(is_drawn & differs), columns, n
        )
        for place in range(n):
            table[f"reason_{place + 1}"], table[f"points_{place + 1}"] = names[:, place], points[:, place]
    unlisted, rows = {}, answer.rows
    for place, (name, slot) in enumerate(zip(inputs.schema.columns, inputs.encoder.slots, strict=True)):
        if inputs.prefitted is None and isinstance(slot.column, Category) and OTHER not in slot.column.categories:
            other = slot.column.levels.index(OTHER)
            own = (
                rows.gathered().codes[:, place] == other if isinstance(rows, CodedRows) else rows[:, slot.first + other]
            )
            unlisted[name] = int(np.count_nonzero(own))
    return Explained(table, None if stranger is None else int(stranger.sum()), unlisted)


def _largest_losses(
    predictor: Predictor, answer: Answer, needs: NDArray[np.bool_], columns: Sequence[ColumnValues], n: int
) -> tuple[NDArray[np.object_], Float64Array]:
    """Return the columns that cost each row that needs reasons the most points, and these points; both (B, n)."""
    groups, lost = answer.groups, np.zeros((len(answer.groups), len(columns)))
    for code in np.unique(answer.decided[needs]):
        own = np.flatnonzero(needs & (answer.decided == code))
        scores = linear_scores(predictor, [code])
        if scores is None:
            lost[own] = _gains_by_trial(predictor, answer.rows[own], groups[own], columns, code)
            continue
        rows = dense(answer.rows)
        models = np.zeros(len(own), dtype=int)
        if isinstance(predictor.model, Decoupled):
            models = rows[own, -1].astype(int)  # -1, no known group, is the last: the mean of all
        for place, column in enumerate(columns):
            compared = (scores[0][:, column.places[column.references]] * column.amounts[column.references]).sum(axis=2)
            points = rows[own, column.features].astype(np.float64) @ scores[0][:, column.features].T
            lost[own, place] = compared.max(axis=1)[models] - points[np.arange(len(own)), models]
    order = np.argsort(-lost, axis=1, kind="stable")[:, :n]
    points = np.take_along_axis(lost, order, axis=1)
    is_reason = points > LEAST_POINTS
    names = np.array([*(column.name for column in columns), ""], dtype=object)
    return names[np.where(is_reason, order, len(columns))], np.where(is_reason, points, 0.0)


def score_kind(predictor: Predictor) -> str:
    """Return what points are units of."""
    return RULE_SCORE if predictor.inputs.predicts == "joint" else LOG_ODDS


def _gains_by_trial(
    predictor: Predictor,
    rows: Features,
    groups: NDArray[np.integer],
    columns: Sequence[ColumnValues],
    decided: int,
) -> Float64Array:
    """Return how much the score gains if one column alone has its best named value, shape (n_rows, n_columns)."""
    params, positive, rule = predictor.params.astype(np.float64), predictor.inputs.people.positive, predictor.rule

    def score(table: Features, codes: NDArray[np.integer]) -> Float64Array:
        is_read = isinstance(table, CodedRows) and reads_codes(predictor.model)
        outputs: Any = predictor.model.logits(params, table if is_read else dense(table).astype(np.float64))  # type: ignore[arg-type]
        if isinstance(rule, TiltedArgmax) and predictor.inputs.predicts == "joint":
            outputs = rule.scores(outputs, codes)
        return outputs[positive] - outputs[decided]

    gains, n_rows = np.zeros((len(rows), len(columns))), len(rows)
    for start in range(0, n_rows, TRIED_ROWS):
        part = np.arange(start, min(start + TRIED_ROWS, n_rows))
        chunk, codes = rows[part], groups[part]
        own = score(chunk, codes)
        for place, column in enumerate(columns):
            best, n_values = own, len(column.places[column.references])
            for value in np.unique(np.linspace(0, n_values - 1, MOST_TRIED).round().astype(int)):
                changed = _with_value(chunk, columns, place, range(len(column.places))[column.references][value])
                best = np.maximum(best, score(changed, codes))
            gains[part, place] = best - own
    return gains


def _with_value(rows: Features, columns: Sequence[ColumnValues], place: int, value: int) -> Features:
    """Return the rows with one of its values in the column at this place."""
    column = columns[place]
    features, amounts = column.places[value], column.amounts[value]
    if not isinstance(rows, CodedRows):
        changed = rows.astype(np.float64)
        changed[:, column.features] = 0.0
        for feature, amount in zip(features, amounts, strict=True):
            changed[:, feature] += amount
        return changed
    own = rows.gathered()
    codes, numbers = own.codes.copy(), own.numbers.copy()
    codes[:, place] = features[0] - column.features.start
    if column.kind in ("scale", "both"):
        number = sum(one.kind in ("scale", "both") for one in columns[:place])
        numbers[:, number] = amounts[1] if column.kind == "both" else amounts[0] * (codes[0, place] == 0)
    return CodedRows(own.layout, codes, numbers)


class Explainable:
    """What fitted classifiers say about their score and decisions; `BasePrivateClassifier` derives from it."""

    def reasons(
        self,
        X: Any,
        n: int = 3,
        sensitive_features: Any = None,
        record_ids: Any = None,
        typical: Mapping[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Return each decision with the columns that cost an unfavorable one the most points.

        `FairClassifier.reasons` says what they mean.

        Parameters
        ----------
        X : data frame of any kind, or array
            As in `predict`.
        n : int
            How many reasons to name at most.
        sensitive_features : array or data frame, optional
            As in `predict`.
        record_ids : array, optional
            As in `predict`.
        typical : mapping of column to value, optional
            Public values to compare these columns with, instead of the best value.

        Returns
        -------
        DataFrame
            The columns `prediction`, `note`, and `reason_1`, `points_1` up to `n`, one row for each record.
        """
        if n == 0:
            raise InvalidParameterError("Expected at least 1 reason, got 0; predict decides without reasons.")
        fitted: Any = self
        source = fitted._source(X, sensitive_features)
        columns = column_values(fitted.inputs_.encoder, typical)
        return explain_decisions(
            fitted._predictor, fitted.classes_, source.X, n, columns, source.sensitive_features, record_ids
        ).table

    def shapes(self) -> pd.DataFrame:
        """Return the points that each value of each column adds to a linear model's score; free of privacy cost.

        Returns
        -------
        DataFrame
            The columns `column`, `kind`, `level`, `group` and `points`; see `FairClassifier.shapes`.
        """
        fitted: Any = self
        check_is_fitted(fitted, "params_")
        return shape_table(fitted._predictor)
