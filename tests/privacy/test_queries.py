"""Row functions of rules and joint models against plain loops over the rows of a small table."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from fairveil._random import secret_coins
from fairveil.data.coded import CodedRows, Layout
from fairveil.errors import InvalidParameterError
from fairveil.fairness.rates import Attribute, Population
from fairveil.models import LinearSoftmax
from fairveil.models.rules import Argmax, RandomizedThresholds, TiltedArgmax, label_probabilities
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import (
    Bin,
    Count,
    CrossEntropy,
    Decision,
    GradientSum,
    Margin,
    RuleDecision,
    Sum,
    WeightedDecision,
    all_cells,
    one_cell,
)
from fairveil.privacy.records import MemoryRecords, Rows
from fairveil.privacy.veil import open_veils
from fairveil.training.recipe import Task

N = 300
PEOPLE = Population((Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))), ("no", "yes"))
TASK = Task(n_features=4, people=PEOPLE, input_norm=2.0, n_public=N, epsilon=1.0, delta=1e-5, predicts="joint")
N_GROUPS = PEOPLE.n_groups  # 9 codes, of which 4 are known in both attributes
CELLS = np.array([[0, 1], [2, -1], [0, 0], [1, 3], [-1, -1], [3, 2], [2, 2], [-1, 0], [-1, -1]])
EDGES = np.array([-1.0, -0.25, 0.0, 0.5, 2.0])


def make_rows(rng, n_classes=2, n_groups=N_GROUPS, coins=None, with_nobody=False):
    """Rows of every group and label; with coins they have lots."""
    X = rng.standard_normal((N, 4)).astype(np.float32)
    y = rng.integers(0, n_classes, N).astype(np.int16)
    cells = rng.integers(-1 if with_nobody else 0, n_groups, N).astype(np.int16)
    records = MemoryRecords(X, y, cells)
    return Rows(records.arranged(coins) if coins else records, np.arange(N))


def make_model(rng, n_outputs=2):
    model = LinearSoftmax(4, n_outputs)
    return model, rng.standard_normal(model.n_params).astype(np.float32)


def mixture(rng, jitter=0.0):
    """Three thresholds for each of the groups, drawn by lot."""
    return RandomizedThresholds(rng.standard_normal((N_GROUPS, 3)), rng.dirichlet(np.ones(3), size=N_GROUPS), jitter)


def tables(rng, n_classes=2, n_outputs=None):
    """A tilted rule: one table a group, or one for all outputs of a joint model."""
    shape = (N_GROUPS, n_classes, n_classes) if n_outputs is None else (1, n_classes, n_outputs)
    return rng.standard_normal(shape)


def each(rows, model, params):
    """Yield what there is to know of each row: logits in double precision, cell, label, lots."""
    logits = model.logits(params, rows.X).T.astype(np.float64)
    yield from zip(logits, rows.groups.tolist(), rows.y.tolist(), rows.uniforms.T.tolist(), strict=True)


def decided_by(rule, logits, group, uniforms):
    """The decision of a mixture of thresholds for one row, in plain Python."""
    margin = float(np.float32(logits[1]) - np.float32(logits[0])) + rule.jitter * (uniforms[1] - 0.5)
    thresholds, rest = rule.thresholds[group], uniforms[0]
    for threshold, weight in zip(thresholds, rule.weights[group], strict=True):
        if rest < weight:
            return int(margin > threshold)
        rest -= weight
    return int(margin > thresholds[-1])


def scores_by(rule, logits, group):
    table = rule.weights[group if len(rule.weights) > 1 else 0]
    return [sum(w * p for w, p in zip(row, special.softmax(logits), strict=True)) for row in table]


# --- the loss of a joint model ----------------------------------------------------------------------------


def test_every_known_group_and_label_has_an_output_of_its_own():
    outputs = TASK.joint_outputs
    assert outputs.shape == (9, 2)
    assert PEOPLE.codes.tolist() == [0, 1, 3, 4]
    assert outputs[[0, 1, 3, 4]].ravel().tolist() == list(range(8))
    assert (outputs[[2, 5, 6, 7, 8]] == -1).all()


def test_a_joint_model_has_one_output_per_pair_others_one_per_label():
    assert TASK.n_outputs == 8
    assert replace(TASK, predicts="label").n_outputs == replace(TASK, predicts="decoupled").n_outputs == 2


def test_outputs_lie_where_probabilities_of_labels_are_added_up(rng):
    logits = rng.standard_normal((8, 30))
    outputs = special.softmax(logits, axis=0)
    for k, own in enumerate(label_probabilities(logits, 2)):
        np.testing.assert_allclose(own, outputs[TASK.joint_outputs[PEOPLE.codes, k]].sum(axis=0), rtol=1e-12)


def test_what_a_model_is_of_must_be_known():
    with pytest.raises(InvalidParameterError, match="predicts"):
        replace(TASK, predicts="group")


def test_the_pull_of_joint_pairs_is_the_slope_of_their_cross_entropy(rng):
    rows = make_rows(rng, with_nobody=True)
    logits = 2 * rng.standard_normal((8, N))

    def losses(point):
        totals = special.logsumexp(point, axis=0)
        targets = [
            TASK.joint_outputs[cell, label] if cell >= 0 else -1
            for cell, label in zip(rows.groups, rows.y, strict=True)
        ]
        return np.array(
            [t - point[o, i] if o >= 0 else 0 for i, (t, o) in enumerate(zip(totals, targets, strict=True))]
        )

    step, slopes = 1e-5, np.empty_like(logits)
    for output in range(8):
        nudge = step * (np.arange(8)[:, None] == output)
        slopes[output] = (losses(logits + nudge) - losses(logits - nudge)) / (2 * step)
    objective = CrossEntropy(outputs=TASK.joint_outputs)
    np.testing.assert_allclose(objective.dlogits(logits, rows), slopes, atol=1e-8)
    single = objective.dlogits(logits.astype(np.float32), rows)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, slopes, atol=1e-6)


def test_rows_of_no_known_group_pull_at_nothing(rng):
    rows = make_rows(rng, with_nobody=True)
    pulls = CrossEntropy(outputs=TASK.joint_outputs).dlogits(rng.standard_normal((8, N)).astype(np.float32), rows)
    is_known = np.isin(rows.groups, PEOPLE.codes)
    assert 50 < is_known.sum() < 250
    assert not pulls[:, ~is_known].any()
    assert (np.abs(pulls[:, is_known]).sum(axis=0) > 0.01).all()
    np.testing.assert_allclose(pulls.sum(axis=0), 0, atol=1e-6)


def test_the_pull_leaves_the_logits_alone(rng):
    logits = rng.standard_normal((8, N)).astype(np.float32)
    before = logits.copy()
    CrossEntropy(outputs=TASK.joint_outputs).dlogits(logits, make_rows(rng))
    assert np.array_equal(logits, before)


# --- decisions of a rule, counted -------------------------------------------------------------------------


@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_rule_decisions_are_those_of_a_loop_over_rows(rng, seeded, jitter):
    rows, (model, params), rule = make_rows(rng, coins=secret_coins()), make_model(rng), mixture(rng, jitter)
    function = Count(CELLS, 4, Decision(model, params, rule))
    assert function.counts_of(rows)[1] == 8
    expected = []
    for logits, group, label, uniforms in each(rows, model, params):
        cell, decision = CELLS[group, label], decided_by(rule, logits, group, uniforms)
        expected.append(2 * cell + decision if cell >= 0 else None)
    found = function.counts_of(rows)[0].tolist()
    assert [cell if cell >= 0 else None for cell in found] == expected
    assert set(expected) == {None, *range(8)}


@pytest.mark.parametrize("n_classes", [2, 3])
def test_decisions_of_a_tilted_rule_are_those_of_a_loop_over_rows(rng, n_classes):
    rows, (model, params) = make_rows(rng, n_classes), make_model(rng, n_classes)
    cells, rule = rng.integers(-1, 4, size=(N_GROUPS, n_classes)), TiltedArgmax(tables(rng, n_classes))
    function = Count(cells, 4, Decision(model, params, rule))
    assert function.counts_of(rows)[1] == 4 * n_classes
    for found, (logits, group, label, _) in zip(function.counts_of(rows)[0], each(rows, model, params), strict=True):
        scores = scores_by(rule, logits, group)
        expected = n_classes * cells[group, label] + scores.index(max(scores))
        assert found == expected if cells[group, label] >= 0 else found < 0


def test_decisions_on_a_joint_model_are_counted_by_true_groups_and_labels(rng):
    """The model has eight outputs, the rule two decisions, the cells are those of the rows themselves."""
    rows, (model, params), rule = make_rows(rng), make_model(rng, 8), TiltedArgmax(tables(rng, 2, 8))
    function = Count(CELLS, 4, Decision(model, params, rule))
    assert function.counts_of(rows)[1] == 8
    for found, (logits, group, label, _) in zip(function.counts_of(rows)[0], each(rows, model, params), strict=True):
        scores = scores_by(rule, logits, group)
        cell = CELLS[group, label]
        assert found == 2 * cell + scores.index(max(scores)) if cell >= 0 else found < 0


def test_swapped_groups_are_decided_otherwise(rng, seeded):
    rows, (model, params), rule = make_rows(rng, coins=secret_coins()), make_model(rng), mixture(rng)
    order = [3, 1, 2, 0, *range(4, 9)]
    swapped = RandomizedThresholds(rule.thresholds[order], rule.weights[order])
    every_cell = np.arange(2 * N_GROUPS).reshape(N_GROUPS, 2)
    found, other = (
        Count(every_cell, 2 * N_GROUPS, Decision(model, params, each_rule)).counts_of(rows)[0]
        for each_rule in (rule, swapped)
    )
    assert set(rows.groups[found != other].tolist()) == {0, 3}


# --- soft decisions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_soft_decisions_are_those_of_a_loop_over_rows(rng, n_classes, smoothing):
    rows, (model, params) = make_rows(rng, n_classes), make_model(rng, n_classes)
    cells, rule = rng.integers(-1, 4, size=(N_GROUPS, n_classes)), TiltedArgmax(tables(rng, n_classes))
    function = Sum(cells, 4, RuleDecision(model, params, rule, cells.shape[1], smoothing))
    values, found = function.values.values_of(rows), Count(function.table, function.n_cells).counts_of(rows)[0]
    assert values.shape == (n_classes, N)
    for i, (logits, group, label, _) in enumerate(each(rows, model, params)):
        assert found[i] == cells[group, label]
        scores = np.array(scores_by(rule, logits, group))
        soft = np.eye(n_classes)[scores.argmax()] if smoothing == 0 else special.softmax(scores / smoothing)
        np.testing.assert_allclose(values[:, i], soft, atol=1e-5 / max(smoothing, 0.01))


@pytest.mark.parametrize("smoothing", [0.0, 1e-12, 1e-3, 0.05, 10.0])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_soft_decisions_add_up_to_1(rng, n_classes, smoothing):
    rows, (model, params) = make_rows(rng, n_classes), make_model(rng, n_classes)
    cells = np.zeros((N_GROUPS, n_classes), dtype=int)
    values = Sum(
        cells, 1, RuleDecision(model, params, TiltedArgmax(tables(rng, n_classes)), cells.shape[1], smoothing)
    ).values.values_of(rows)
    assert (values >= 0).all()
    np.testing.assert_allclose(np.abs(values).sum(axis=0), 1, atol=1e-6)
    assert np.linalg.norm(values, axis=0).max() <= 1 + 1e-6


def test_without_smoothing_a_soft_decision_is_the_decision(rng, seeded):
    """Ties included: with jitter, they are split by the rows' own lots."""
    rows, (model, _) = make_rows(rng, 3, coins=secret_coins()), make_model(rng, 3)
    params = np.zeros(model.n_params, np.float32)
    rule = TiltedArgmax(np.tile(np.eye(3), (N_GROUPS, 1, 1)), jitter=0.1)
    values = Sum(
        np.zeros((N_GROUPS, 3), dtype=int),
        1,
        RuleDecision(model, params, rule, 3, 0.0),
    ).values.values_of(rows)
    decided = rule.decide(np.zeros((3, N)), rows.groups, rows.uniforms)
    assert set(decided.tolist()) == {0, 1, 2}
    assert np.array_equal(values, np.eye(3)[decided].T)


def test_less_smoothing_comes_nearer_to_the_decision(rng):
    rows, (model, params), rule = make_rows(rng), make_model(rng), TiltedArgmax(tables(rng))
    cells = np.zeros((N_GROUPS, 2), dtype=int)
    hard, *soft = (
        Sum(cells, 1, RuleDecision(model, params, rule, cells.shape[1], smoothing)).values.values_of(rows)
        for smoothing in (0.0, 1e-4, 0.01, 0.1, 1.0)
    )
    distances = [np.abs(values - hard).mean() for values in soft]
    assert distances[0] < 0.005
    assert distances == sorted(distances) and distances[-1] > 0.1


# --- signed decisions -------------------------------------------------------------------------------------

SIGNS = np.array([1.5, -0.75, 0.0, -2.0, 1.0, 0.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_signed_decisions_are_those_of_a_loop_over_rows(rng, n_classes):
    rows, (model, params) = make_rows(rng, n_classes, with_nobody=True), make_model(rng, n_classes)
    rule = TiltedArgmax(tables(rng, n_classes))
    function = Sum(one_cell(n_classes), 1, RuleDecision(model, params, rule, n_classes, 0.2, SIGNS))
    assert function.n_cells == 1
    assert not Count(function.table, function.n_cells).counts_of(rows)[0].any()
    values = function.values.values_of(rows)
    assert values.shape == (n_classes, N)
    for i, (logits, group, _, _) in enumerate(each(rows, model, params)):
        sign = SIGNS[group] if group >= 0 else 0.0
        soft = special.softmax(np.array(scores_by(rule, logits, group)) / 0.2)
        np.testing.assert_allclose(values[:, i], 2 * sign * (soft - 1 / n_classes), atol=1e-4)


@pytest.mark.parametrize("smoothing", [1e-5, 0.05, 1.0])
@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_signed_decisions_are_no_longer_than_their_bound(rng, n_classes, smoothing):
    rows, (model, params) = make_rows(rng, n_classes), make_model(rng, n_classes)
    rule = TiltedArgmax(tables(rng, n_classes))
    values = Sum(
        one_cell(n_classes), 1, RuleDecision(model, params, rule, n_classes, smoothing, SIGNS)
    ).values.values_of(rows)
    bound = 2 * math.sqrt(1 - 1 / n_classes) * np.abs(SIGNS).max()
    longest = np.linalg.norm(values, axis=0).max()
    assert longest <= bound * (1 + 1e-6)
    if smoothing == 1e-5:
        assert longest >= bound * (1 - 1e-6)  # and none shorter would do


def test_weighted_decisions_are_those_of_a_loop_over_rows(rng):
    rows, (model, params) = make_rows(rng, 2), make_model(rng, 2)
    cells, rule = rng.integers(-1, 4, size=(N_GROUPS, 2)), TiltedArgmax(tables(rng, 2))
    weights = rng.uniform(size=N_GROUPS)
    function = Sum(cells, 4, WeightedDecision(model, params, rule, weights))
    values, places = function.values.values_of(rows), Count(function.table, function.n_cells).counts_of(rows)[0]
    assert values.shape == (1, N)
    for i, (logits, group, label, _) in enumerate(each(rows, model, params)):
        scores = scores_by(rule, logits, group)
        assert places[i] == cells[group, label]
        assert values[0, i] == pytest.approx(weights[group] * (scores[1] > scores[0]), rel=1e-6)


# --- margins ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jitter", [0.0, 0.7])
def test_margins_are_binned_as_by_a_loop_over_rows(rng, seeded, jitter):
    rows, (model, params) = make_rows(rng, coins=secret_coins()), make_model(rng)
    function = Count(CELLS, 4, Bin(Margin(model, params, jitter), EDGES))
    assert function.counts_of(rows)[1] == 24
    expected = []
    for logits, group, label, uniforms in each(rows, model, params):
        margin = float(np.float32(logits[1]) - np.float32(logits[0])) + jitter * (uniforms[1] - 0.5)
        cell = CELLS[group, label]
        expected.append(6 * cell + sum(margin > edge for edge in EDGES) if cell >= 0 else None)
    found = function.counts_of(rows)[0].tolist()
    assert [cell if cell >= 0 else None for cell in found] == expected
    assert len(set(expected)) > 20


def test_jitter_moves_rows_into_other_bins_by_their_own_uniforms(rng, seeded):
    rows, (model, params) = make_rows(rng, coins=secret_coins()), make_model(rng)
    plain, jittered = (
        Count(CELLS, 4, Bin(Margin(model, params, width), EDGES)).counts_of(rows)[0] for width in (0.0, 0.7)
    )
    moved = plain != jittered
    assert 10 < moved.sum() < N / 2
    raised = jittered > plain
    assert (rows.uniforms[1][raised] > 0.5).all() and (rows.uniforms[1][moved & ~raised] < 0.5).all()


@pytest.mark.parametrize("jitter", [0.0, 0.7])
@pytest.mark.parametrize("edge", range(len(EDGES)))
def test_bins_above_an_edge_hold_the_rows_a_threshold_there_accepts(rng, seeded, edge, jitter):
    """The rule that is fitted to the histogram is the rule that is used, with its random numbers and ties."""
    rows, (model, params) = make_rows(rng, coins=secret_coins()), make_model(rng)
    everyone = np.zeros((N_GROUPS, 2), dtype=int)
    bins = Count(everyone, 1, Bin(Margin(model, params, jitter), EDGES)).counts_of(rows)[0]
    rule = RandomizedThresholds(np.full((N_GROUPS, 1), EDGES[edge]), np.ones((N_GROUPS, 1)), jitter)
    decided = Count(everyone, 1, Decision(model, params, rule)).counts_of(rows)[0]
    assert np.array_equal(bins > edge, decided == 1)
    assert 0 < decided.sum() < N


def test_a_margin_on_an_edge_lies_in_the_bin_below_it(rng):
    rows, model = make_rows(rng), LinearSoftmax(4, 2)
    params = np.zeros(model.n_params, np.float32)
    params[-1] = 0.5  # everybody's margin is the fourth edge
    counted, _ = Count(np.zeros((N_GROUPS, 2), dtype=int), 1, Bin(Margin(model, params), EDGES)).counts_of(rows)
    assert (counted == 3).all()


# --- outcomes ---------------------------------------------------------------------------------------------


def outcomes_of(rule, rng, coins=None, n_classes=2, n_outputs=None):
    rows = make_rows(rng, n_classes, coins=coins, with_nobody=True)
    model, params = make_model(rng, n_outputs or n_classes)
    function = Count(
        all_cells(N_GROUPS, n_classes),
        N_GROUPS * n_classes,
        Decision(model, params, rule, is_row_stable=True),
    )
    group, label, decision = np.unravel_index(function.counts_of(rows)[0], (N_GROUPS, n_classes, n_classes))
    assert np.array_equal(label, rows.y)
    assert np.array_equal(group, np.where(rows.groups < 0, N_GROUPS - 1, rows.groups))
    return rows, model, params, decision


@pytest.mark.parametrize("decision", [0, 1])
def test_outcomes_follow_a_rule_that_decides_everybody_alike(rng, decision):
    threshold = -np.inf if decision else np.inf
    rule = RandomizedThresholds(np.full((N_GROUPS, 1), threshold), np.ones((N_GROUPS, 1)))
    *_, decided = outcomes_of(rule, rng)
    assert (decided == decision).all()


def test_outcomes_are_those_of_a_loop_over_rows(rng, seeded):
    """People of no group have the last code, and are decided by its row."""
    rule = mixture(rng, jitter=0.5)
    rows, model, params, decided = outcomes_of(rule, rng, secret_coins())
    expected = [decided_by(rule, logits, group, uniforms) for logits, group, _, uniforms in each(rows, model, params)]
    assert decided.tolist() == expected
    assert set(expected) == {0, 1}


def test_outcomes_of_a_joint_model_are_labels(rng):
    rule = TiltedArgmax(tables(rng, 2, 8))
    rows, model, params, decided = outcomes_of(rule, rng, n_outputs=8)
    scores = [scores_by(rule, logits, 0) for logits, *_ in each(rows, model, params)]
    assert decided.tolist() == [pair.index(max(pair)) for pair in scores]


def test_outcomes_of_the_most_likely_class_are_the_models_own(rng):
    rows, model, params, decided = outcomes_of(Argmax(), rng, n_classes=3)
    assert np.array_equal(decided, model.logits(params, rows.X).argmax(axis=0))


# --- behind a veil ----------------------------------------------------------------------------------------


def test_all_of_them_pass_the_veil_and_add_up_to_what_a_loop_adds_up_to(rng, seeded):
    X = rng.standard_normal((N, 4)).astype(np.float32)
    y, groups = rng.integers(0, 2, N).astype(np.int16), rng.integers(0, N_GROUPS, N).astype(np.int16)
    names = ("decisions", "margins", "outcomes", "soft", "signed", "gradient")
    plan = Plan((Stage("train", tuple(Release(name, "gaussian", 0.0) for name in names)),), math.inf, 1e-5)
    veil = open_veils(MemoryRecords(X, y, groups), plan, Ledger(), secret_coins(), "a test")["train"]
    batch, (model, params), (joint, joint_params) = veil.draw(), make_model(rng), make_model(rng, 8)
    rule, rows = TiltedArgmax(tables(rng)), Rows(MemoryRecords(X, y, groups), np.arange(N))
    counted = (
        Count(CELLS, 4, Decision(model, params, rule)),
        Count(CELLS, 4, Bin(Margin(model, params), EDGES)),
        Count(all_cells(N_GROUPS, 2), N_GROUPS * 2, Decision(model, params, rule, is_row_stable=True)),
    )
    for function, name in zip(counted, names, strict=False):
        cells = function.counts_of(rows)[0]
        expected = np.bincount(cells[cells >= 0], minlength=function.counts_of(rows)[1])
        assert np.array_equal(batch.release_counts(function, name), expected)
    soft, signed = (
        Sum(CELLS, 4, RuleDecision(model, params, rule, CELLS.shape[1], 0.1)),
        Sum(one_cell(2), 1, RuleDecision(model, params, rule, 2, 0.1, SIGNS)),
    )
    for function, name, bound in ((soft, "soft", 1.0), (signed, "signed", 2**1.5)):
        expected = np.zeros((function.n_cells, 2))
        for cell, values in zip(
            Count(function.table, function.n_cells).counts_of(rows)[0],
            function.values.values_of(rows).T,
            strict=True,
        ):
            if cell >= 0:
                expected[cell] += values
        np.testing.assert_allclose(batch.release_sums(function, bound, name), expected, atol=1e-4)
    objective = CrossEntropy(outputs=TASK.joint_outputs)
    gradient = batch.release_gradient(joint, joint_params, objective, math.inf)
    pulls = objective.dlogits(joint.logits(joint_params, X), rows)
    np.testing.assert_allclose(gradient[:32].reshape(8, 4), pulls @ X, atol=1e-3)


def test_labels_belong_to_their_rows_wherever_codes_stand(rng):
    """Records made of some rows of a coded table, in another order, answer like the same rows written out."""
    layout = Layout(5, [0, 3], [3, 2], [False, False], [])
    table = CodedRows(layout, rng.integers(0, [3, 2], (50, 2)).astype(np.uint8), np.zeros((50, 0), np.float32))
    some, model = table[rng.permutation(50)], LinearSoftmax(5, 2)
    y, groups = rng.integers(0, 2, 50).astype(np.int16), np.zeros(50, np.int16)
    query = GradientSum(model, rng.normal(size=model.n_params).astype(np.float32), CrossEntropy())
    one, other = (MemoryRecords(X, y, groups).answer(np.arange(50), query, 0.5) for X in (some, some.dense()))
    np.testing.assert_allclose(one, other, atol=1e-5)
