"""A row aimed at the edge of a public classifier must not tip the decisions of others (proofs/rules.md, point 8)."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from fairveil._random import secret_coins
from fairveil.fairness.constraints import DemographicParity, constrain
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.decoupled_parity import FlipTraining
from fairveil.methods.dp2dp import ParityTraining, PrefittedScores
from fairveil.methods.dp2dp.thresholds import EDGES, RuleProblem
from fairveil.methods.inputs import PrefittedClassifier
from fairveil.models import LinearSoftmax, PrefittedProbabilities
from fairveil.models.rules import Argmax
from fairveil.privacy.queries import Bin, Count, Decision, Margin, all_cells
from fairveil.privacy.records import MemoryRecords
from fairveil.training.recipe import Task

PEOPLE = Population((Attribute("g", ("a", "b")),), ("0", "1"))
BOUNDS = constrain(DemographicParity(), PEOPLE)
MODEL, NONE = PrefittedProbabilities(2), np.empty(0, np.float32)
SIZES = (1003, 1004)


def public_classifier(rng):
    X = rng.normal(size=(500, 13))
    y = (X @ rng.normal(size=13) + rng.normal(size=500) > 0).astype(int)
    return LogisticRegression().fit(X, y)


def scores_of(classifier, row, n):
    return PrefittedClassifier.of(classifier, ("0", "1")).probabilities(np.tile(row, (n, 1)))


def row_on_the_edge(classifier, rng):
    """Bisect a row onto a tie, then try its neighbours, until copies of one are decided otherwise in a longer table."""
    weights, bias = classifier.coef_[0], classifier.intercept_[0]
    for _ in range(300):
        row = rng.normal(size=13) * 1e3
        row[0] -= (row @ weights + bias) / weights[0]
        low, high = row[0] - 1e-3, row[0] + 1e-3
        side = plain_ones(classifier, np.r_[low, row[1:]], 1)
        for _ in range(80):
            middle = (low + high) / 2
            is_low = plain_ones(classifier, np.r_[middle, row[1:]], 1) == side
            low, high = (middle, high) if is_low else (low, middle)
        for step in range(-8, 9):
            moved = np.r_[low + step * np.spacing(low), row[1:]]
            first, second = (plain_ones(classifier, moved, n) for n in SIZES)
            if abs(first - second) + abs((SIZES[0] - first) - (SIZES[1] - second)) > 1:
                return moved
    return None


def plain_ones(classifier, row, n):
    return int(Argmax().decide(MODEL.logits(NONE, scores_of(classifier, row, n)), None, None).sum())


@pytest.fixture(scope="module")
def aimed():
    rng = np.random.default_rng(0)
    classifier = public_classifier(rng)
    return classifier, row_on_the_edge(classifier, rng)


def tables(classifier, row, n, jitter):
    """Flip table and score histogram of n copies; lots are fixed, so that both worlds share all rows but the last."""
    records = MemoryRecords(scores_of(classifier, row, n), np.zeros(n, np.int16), np.zeros(n, np.int16))
    uniforms = np.random.default_rng(1).random((2, max(SIZES)), dtype=np.float32)[:, :n]
    vars(records)["uniforms"] = uniforms
    task = Task(2, PEOPLE, 1.0, n, 1.0, 1e-5)
    scene = RuleProblem(MODEL, NONE, task, BOUNDS, float(n), jitter=jitter)
    counted = Count(BOUNDS.cells, BOUNDS.n_cells, Decision(MODEL, NONE, scene.plain_rule()))
    bins = Count(scene.group_cells, 3, Bin(Margin(MODEL, NONE, jitter), EDGES))
    everyone = next(records.draw({-1: 1.0}, secret_coins()))
    return [records.answer(everyone, function) for function in (counted, bins)]


def test_without_a_uniform_an_added_row_would_change_other_rows(aimed):
    """The attack itself: where a processor rounds the last rows of a product otherwise, tables move by more than 1."""
    classifier, row = aimed
    if row is None:  # a processor that rounds all rows alike leaves nothing to attack
        return
    moves = [abs(a - b).sum() for a, b in zip(*(tables(classifier, row, n, 0.0) for n in SIZES), strict=True)]
    assert max(moves) > 1


@pytest.mark.parametrize("recipe", [FlipTraining(), FlipTraining(mode="scores"), ParityTraining()], ids=str)
def test_with_uniforms_an_added_row_changes_the_tables_by_one(aimed, recipe):
    classifier, row = aimed
    row = np.zeros(13) if row is None else row
    jitter = recipe.recipe(PrefittedScores(), DemographicParity(), PEOPLE).jitter
    assert jitter > 0
    for short, long in zip(*(tables(classifier, row, n, jitter) for n in SIZES), strict=True):
        assert abs(short - long).sum() == 1


# --- a model that is known before the rows are chosen -----------------------------------------------------------


def tied_row(model, params, rng):
    """Bisect a row onto the tie of a known linear model, as its own product of one row sees it."""
    row = rng.normal(size=(1, model.n_features)).astype(np.float32)

    def margin(value):
        row[0, 0] = value
        logits = model.logits(params, row)
        return float(logits[1, 0] - logits[0, 0])

    low, high = np.float32(-1e4), np.float32(1e4)
    side = margin(low) > 0
    for _ in range(60):
        middle = np.float32((low + high) / 2)
        low, high = (middle, high) if (margin(middle) > 0) == side else (low, middle)
    row[0, 0] = low
    return row


@pytest.mark.parametrize("n_features", [5, 37, 204])
def test_one_row_more_moves_the_outcomes_of_a_known_model_by_one(n_features, rng):
    """Copies of rows aimed at its tie: whatever the length of the table, all of them are decided alike."""
    model = LinearSoftmax(n_features, 2)
    params = rng.normal(size=model.n_params).astype(np.float32)
    outcomes = Count(all_cells(3, 2), 3 * 2, Decision(model, params, Argmax(), is_row_stable=True))
    for _ in range(20):
        row = tied_row(model, params, rng)
        counts = []
        for n in SIZES:
            records = MemoryRecords(np.tile(row, (n, 1)), np.zeros(n, np.int16), np.zeros(n, np.int16))
            everyone = next(records.draw({-1: 1.0}, secret_coins()))
            counts.append(records.answer(everyone, outcomes))
        assert np.abs(counts[1] - counts[0]).sum() == 1


@pytest.mark.parametrize("n_features", [5, 37, 204])
def test_one_row_more_moves_the_counted_scores_by_one(n_features, rng):
    """Copies of rows aimed at the edge of a bin: all of them are in one bin, whatever the length of the table."""
    model = LinearSoftmax(n_features, 2)
    params = rng.normal(size=model.n_params).astype(np.float32)
    edges = np.array([-1.0, 0.0, 1.0])
    scores = Count(np.arange(2)[None], 2, Bin(Margin(model, params, is_row_stable=True), edges))
    for _ in range(20):
        row = tied_row(model, params, rng)
        counts = []
        for n in SIZES:
            records = MemoryRecords(np.tile(row, (n, 1)), np.zeros(n, np.int16), np.zeros(n, np.int16))
            everyone = next(records.draw({-1: 1.0}, secret_coins()))
            counts.append(records.answer(everyone, scores))
        assert np.abs(counts[1] - counts[0]).sum() == 1
