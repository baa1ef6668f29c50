"""FairDP's certificates: their numbers, what they are averages of, and that they never stand for the released model."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from fairveil._random import reproducible_coins
from fairveil.certificates import certify, certify_measured
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import (
    DemographicParity,
    EqualizedOdds,
    TruePositiveRateParity,
    constrain,
)
from fairveil.fairness.evaluation import Evaluation, Verdict
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.fairdp.early_stopping import largest_gap, smooth_histogram
from fairveil.methods.fairdp.noise_certificate import (
    OVER_NOISE,
    GroupwiseFit,
    LastStep,
    NoiseCertificate,
    Statement,
    batch_bound,
    finite_models_gap,
    monte_carlo_error,
    read_smooth_sums,
    several_estimate,
    several_limit,
    smooth_gap,
    smooth_stage,
    smooth_statement,
    worst_case_gap,
    worst_case_statement,
)
from fairveil.models import LinearSoftmax, Perceptron
from fairveil.models.last_layer import margin_weights
from fairveil.models.row_stable import row_stable_inputs, row_stable_logits
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import open_veils
from fairveil.research.paper_bounds import paper_worst_case_gap

PEOPLE = Population((Attribute("side", ("left", "right")),), ("no", "yes"))
HEAVY = {"M": 0.1, "C": 1.0, "sigma": 100.0, "eta": 1.0, "m": 4, "K": 2}
"""The settings of the counterexample: a last step of much noise."""

positive = st.floats(1e-3, 1e3)


# --- Theorem 3.2 ----------------------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(M=positive, C=positive, sigma=positive, eta=positive, m=st.integers(0, 5000), K=st.integers(1, 8))
def test_the_worst_case_is_equation_8(M, C, sigma, eta, m, K):
    printed = math.erf((M * K + eta * m * C) * math.sqrt(K) / (K * eta * sigma * C * math.sqrt(2)))
    assert paper_worst_case_gap(M, C, sigma, eta, m, K) == pytest.approx(printed, abs=1e-12)
    shared = math.erf((M * K + eta * m / 3 * C) * math.sqrt(K) / (K * eta * sigma * C * math.sqrt(2)))
    assert paper_worst_case_gap(M, C, sigma, eta, m, K, N=3) == pytest.approx(shared, abs=1e-12)


def test_figures_of_theorem_3_2():
    assert paper_worst_case_gap(**HEAVY) == pytest.approx(0.0237, abs=5e-5)
    assert worst_case_gap(0.1, 1.0, 0.5, 4, 100 / math.sqrt(2)) == paper_worst_case_gap(**HEAVY)
    # a small learning rate and a usual batch leave nothing to certify
    assert paper_worst_case_gap(M=0.1, C=0.1, sigma=3.0, eta=0.005, m=600, K=2) > 0.999


def test_more_noise_and_smaller_batches_certify_more():
    base = worst_case_gap(1.0, 0.5, 0.01, 100, 2.0)
    assert worst_case_gap(1.0, 0.5, 0.01, 100, 4.0) < base
    assert worst_case_gap(1.0, 0.5, 0.01, 50, 2.0) < base
    assert worst_case_gap(0.5, 0.5, 0.01, 100, 2.0) < base
    assert worst_case_gap(math.inf, 0.5, 0.01, 100, 2.0) == 1.0
    assert worst_case_gap(1.0, 0.5, 0.01, 100, 0.0) == 1.0  # without noise nothing is averaged


@pytest.mark.parametrize("bound", [0.2, 2.0])
def test_over_the_noise_it_holds_and_is_reached(rng, bound):
    """20,000 last steps from the worst weights with the worst batch: the *mean* decisions differ by just so much."""
    direction = rng.normal(size=5)
    direction /= np.linalg.norm(direction)
    rate, reach, n_batch, std = 0.7, 0.05, 10, 0.9
    mean = (bound + rate * reach * n_batch) * direction
    weights = mean + rate * std * rng.standard_normal((20_000, 5))
    gap = np.mean(weights @ direction > 0) - np.mean(weights @ -direction > 0)
    assert gap == pytest.approx(worst_case_gap(bound, rate, reach, n_batch, std), abs=0.02)
    other = rng.normal(size=(2, 5))
    assert abs(np.subtract(*(weights @ other.T > 0).mean(axis=0))) <= gap + 0.02


# --- the counterexample ---------------------------------------------------------------------------------------------


def last_steps(rng, X, groups, n_models=300):
    """Algorithm 1's last step on a linear model without a bias, from weights within M: the released weights."""
    M, C, sigma, eta, m, K = HEAVY.values()
    n_inputs = X.shape[1]
    before = M * np.eye(n_inputs)[0]
    batch = rng.choice(len(X), size=m)
    gradient = np.zeros(n_inputs)
    for x in X[batch]:
        own = -x / 2  # of the logistic loss at label 1 and a margin near 0
        gradient += own * min(1.0, C / np.linalg.norm(own))
    noise = sigma * C * rng.standard_normal((n_models, K, n_inputs))
    return before - eta * (gradient + noise.sum(axis=1)) / K


def gaps(weights, X, groups):
    ones = X @ weights.T > 0
    return ones[groups == 0].mean(axis=0) - ones[groups == 1].mean(axis=0)


def test_every_released_model_is_unfair_but_the_certificate_is_near_0(rng):
    """Features +v and -v: one weight decides both groups, in opposite ways, whatever the noise was."""
    v = rng.normal(size=6)
    groups = np.repeat([0, 1], 50)
    X = np.where(groups[:, None] == 0, v, -v)
    found = gaps(last_steps(rng, X, groups), X, groups)
    assert paper_worst_case_gap(**HEAVY) < 0.03
    assert (np.abs(found) == 1).all()  # 300 of 300
    assert abs(found.mean()) < 0.2  # what the certificate is about: the mean over models, signs cancelling


def test_with_relus_about_half_of_the_released_models_are(rng):
    """Inputs of the last layer that cannot be negative, e_1 for one group and e_2 for the other."""
    groups = np.repeat([0, 1], 50)
    X = np.eye(2)[groups]
    found = gaps(last_steps(rng, X, groups, 4000), X, groups)
    share = np.mean(np.abs(found) == 1)
    assert share == pytest.approx(0.5, abs=0.05)
    assert abs(found.mean()) < 0.1


# --- batches of unknown size ----------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(n=st.integers(1, 100_000), rate=st.floats(1e-4, 1.0), failure=st.sampled_from([1e-2, 1e-6]))
def test_a_batch_exceeds_its_bound_as_rarely_as_stated(n, rate, failure):
    bound = batch_bound(n, rate, failure)
    assert binom.sf(bound, n, rate) <= failure
    assert bound == 0 or binom.sf(bound - 1, n, rate) > failure
    assert bound <= n


def test_a_noisy_number_of_people_is_rounded_up():
    assert batch_bound(10.2, 1.0) == 11
    with pytest.raises(InvalidParameterError, match="sampling_rate"):
        batch_bound(10, 1.5)


# --- several models -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_models", [1, 4, 25])
def test_the_share_of_few_models_is_off_by_as_much_as_is_said(rng, n_models):
    """All rows meet the same models: 20,000 draws of N models, rows that are all alike; n does not help."""
    ones = rng.random((20_000, n_models)) < 0.5  # a fair coin a model, the same for each of any number of rows
    assert np.std(ones.mean(axis=1)) == pytest.approx(monte_carlo_error(n_models), rel=0.03)


def test_equation_32_put_right_is_void_for_one_model():
    def ours(n_models):
        return finite_models_gap(0.1, 1.0, 0.5, 4 / n_models, 100 / math.sqrt(2), n_models)

    assert ours(1) == 1.0
    assert ours(100) == pytest.approx(paper_worst_case_gap(**HEAVY, N=100) + 0.1)
    assert ours(10**8) == pytest.approx(paper_worst_case_gap(**HEAVY, N=10**8), abs=1e-3)
    with pytest.raises(InvalidParameterError, match="n_models"):
        monte_carlo_error(0)


# --- the private tau_emp --------------------------------------------------------------------------------------------


def table(rng, n=800):
    X = rng.normal(size=(n, 3)).astype(np.float32)
    groups = (X[:, 0] + rng.normal(size=n) > 0).astype(np.int16)
    y = (X[:, 1] + rng.normal(size=n) > 0).astype(np.int16)
    return MemoryRecords(X, y, groups)


def sums_of(records, model, fit, noise=0.0):
    part = replace(smooth_stage(noise / 2, 1.0, has_several=bool(fit.last_step.several)), subset="")
    plan = Plan((part,), math.inf if noise == 0 else 1.0, 1e-5)
    veil = open_veils(records, plan, Ledger(), reproducible_coins(0), "a test")["smooth rates"]
    return read_smooth_sums(veil, model, PEOPLE.n_groups, fit)


def counted(records, decisions):
    counts = np.zeros((3, 2, 2))
    np.add.at(counts, (records.groups, records.y, decisions), 1)
    return Evaluation(counts, 0.0, PEOPLE)


@pytest.mark.parametrize("model", [LinearSoftmax(3, 2), Perceptron(3, (5,), 2)], ids=["linear", "mlp"])
def test_without_noise_it_is_proposition_3_3_at_the_released_weights(rng, model):
    records = table(rng)
    params = rng.normal(size=model.n_params).astype(np.float32)
    last = LastStep(-params, 0.5, 0.8, 0.01, 0.1, 800.0)  # what was before the step must not matter
    sums = sums_of(records, model, GroupwiseFit(params, last_step=last))
    Z = row_stable_inputs(model, params, records.X)
    law = norm.cdf(margin_weights(model, params) @ Z / (last.margin_std * np.linalg.norm(Z, axis=0)))
    assert last.margin_std == pytest.approx(math.sqrt(2) * 0.4)
    evaluation = counted(records, row_stable_logits(model, params, records.X).argmax(axis=0))

    def rate(group, *labels):
        return law[(records.groups == group) & np.isin(records.y, labels)].mean()

    expected = {
        DemographicParity(): abs(rate(0, 0, 1) - rate(1, 0, 1)),
        TruePositiveRateParity(): abs(rate(0, 1) - rate(1, 1)),
        EqualizedOdds(): max(abs(rate(0, label) - rate(1, label)) for label in (0, 1)),
    }
    for asked, gap in expected.items():
        found, error = smooth_gap(constrain(asked, PEOPLE), evaluation, sums.smooth, sums.noise_std)
        assert found == pytest.approx(gap, abs=1e-5)
        assert 0 < error < 0.2
    assert sums.noise_std == 0 and sums.of_several is None


def test_the_share_of_several_models_is_counted_as_it_is(rng):
    model, records = LinearSoftmax(3, 2), table(rng)
    several = tuple(rng.normal(size=(5, 8)).astype(np.float32))
    fit = GroupwiseFit(np.mean(several, axis=0), last_step=LastStep(several[0], 1.0, 1.0, 0.1, 0.1, 800.0, several))
    sums = sums_of(records, model, fit)
    votes = np.mean([row_stable_logits(model, one, records.X).argmax(axis=0) for one in several], axis=0)
    for group in (0, 1):
        for label in (0, 1):
            own = (records.groups == group) & (records.y == label)
            assert sums.of_several[group, label] == pytest.approx((votes[own] - 0.5).sum(), abs=1e-4)
    assert not np.allclose(sums.of_several, sums.smooth)


@pytest.mark.parametrize("noise", [3.0, 30.0])
def test_noise_on_the_sums_has_the_stated_deviation(rng, noise):
    model, records = LinearSoftmax(3, 2), table(rng)
    params = rng.normal(size=8).astype(np.float32)
    fit = GroupwiseFit(params, last_step=LastStep(params, 1.0, 1.0, 0.1, 0.1, 800.0))
    exact = sums_of(records, model, fit)
    part = replace(smooth_stage(noise / 2, 1.0, has_several=False), subset="", n_steps=400)
    veil = open_veils(records, Plan((part,), 1.0, 1e-5), Ledger(), reproducible_coins(0), "a test")["smooth rates"]
    drawn = [read_smooth_sums(veil, model, 3, fit) for _ in range(400)]
    off = np.array([one.smooth - exact.smooth for one in drawn])
    assert off.std() == pytest.approx(drawn[0].noise_std, rel=0.05)
    assert drawn[0].noise_std == pytest.approx(1.01 * noise / 2)


@pytest.mark.parametrize("value", [0.0, 1e-30, 1.0, 1e30, np.nan, np.inf])
def test_one_record_moves_each_sum_by_at_most_one_half(rng, value):
    model = LinearSoftmax(3, 2)
    params = rng.normal(size=8).astype(np.float32)
    fit = GroupwiseFit(params, last_step=LastStep(params, 1e-3, 1e-3, 0.1, 0.1, 800.0))
    records = table(rng, 50)
    one_more = MemoryRecords(
        np.vstack([records.X, np.full((1, 3), value, np.float32)]),
        np.append(records.y, 1).astype(np.int16),
        np.append(records.groups, 0).astype(np.int16),
    )
    moved = sums_of(one_more, model, fit).smooth - sums_of(records, model, fit).smooth
    assert np.abs(moved).sum() <= 0.5 * (1 + 1e-5)
    assert np.count_nonzero(np.abs(moved) > 1e-9) <= 1


def test_too_few_people_are_unknown():
    nobody = Evaluation(np.zeros((3, 2, 2)), 1.0, PEOPLE)
    found = smooth_gap(constrain(DemographicParity(), PEOPLE), nobody, np.zeros((3, 2)), 1.0)
    assert found == (None, None)
    assert "unknown" in NoiseCertificate((smooth_statement(*found),), RELEASED).sentence


# --- how it is told -------------------------------------------------------------------------------------------------

COUNTS = np.array([[[2500, 500], [500, 500]], [[2500, 500], [400, 600]], [[0, 0], [0, 0]]], dtype=float)
RELEASED = certify_measured(Evaluation(COUNTS, 9.0, PEOPLE), DemographicParity())
ALL = (
    worst_case_statement(0.02, 150),
    smooth_statement(0.01, 0.004),
    several_estimate(0.03, 0.01, 9),
    several_limit(0.5, 9),
)


def test_every_statement_says_that_it_is_not_about_the_model():
    assert [one.about for one in ALL] == [OVER_NOISE] * 4
    assert OVER_NOISE == "over the training noise, not for this model"
    for one in ALL:
        assert "model" not in one.name.replace("models", "")


def test_the_sentence_starts_with_the_released_model():
    told = NoiseCertificate(ALL, RELEASED)
    lines = told.sentence.splitlines()
    assert lines[0] == f"The released model: {RELEASED.sentence}"
    assert len(lines) == 5
    assert all(OVER_NOISE in line for line in lines[1:])
    assert json.loads(json.dumps(told.to_dict(), allow_nan=False))["released"]["verdict"] == "measured"
    assert told.to_dict()["sentence"] == told.sentence
    assert {one["about"] for one in told.to_dict()["statements"]} == {OVER_NOISE}


def test_there_is_none_without_the_certificate_of_the_released_model():
    with pytest.raises(TypeError, match="released"):
        NoiseCertificate(ALL)
    with pytest.raises(TypeError, match="about"):
        Statement("Worst case", 0.1, None)


def test_few_models_leave_much_open():
    estimate, limit = several_estimate(0.03, 0.01, 4), several_limit(0.5, 4)
    assert estimate.error == pytest.approx(math.hypot(0.01, 0.5))
    assert (limit.gap, limit.error) == (0.5, None)
    assert several_estimate(None, None, 4).error is None


# --- the smallest tolerance that holds ------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [DemographicParity(), EqualizedOdds(), TruePositiveRateParity()])
def test_what_is_measured_holds_at_its_own_tolerance_and_not_far_below(asked):
    evaluation = Evaluation(COUNTS, 9.0, PEOPLE)
    found = certify_measured(evaluation, asked)
    limit = found.claims[0].limit
    assert found.verdict is Verdict.MEASURED
    assert found.sentence.startswith("No bound was requested.")
    assert certify(evaluation, replace(asked, tolerance=limit)).verdict is Verdict.HOLDS
    assert found.smallest_tolerance <= limit <= found.smallest_tolerance + 1e-4
    below = certify(evaluation, replace(asked, tolerance=limit - 2e-4))
    assert below.verdict is not Verdict.HOLDS
    assert certify_measured(evaluation, replace(asked, tolerance=0.7)) == found


def test_of_several_parities_the_widest_is_shown_and_unknown_groups_show_1():
    evaluation = Evaluation(COUNTS, 9.0, PEOPLE)
    both = certify_measured(evaluation, [DemographicParity(), EqualizedOdds()])
    each = [certify_measured(evaluation, one).claims[0].limit for one in (DemographicParity(), EqualizedOdds())]
    assert {claim.limit for claim in both.claims} == {max(each)}
    lonely = Evaluation(np.concatenate([COUNTS[:1], 0 * COUNTS[1:]]), 9.0, PEOPLE)
    assert certify_measured(lonely, DemographicParity()).claims[0].limit == 1.0


# --- thresholds, and the error of the estimate ----------------------------------------------------------------------


def test_another_threshold_is_another_bias():
    step = (0.1, 1.0, 0.5, 4, 100 / math.sqrt(2))
    assert worst_case_gap(*step, threshold=0.5) == worst_case_gap(*step)
    assert worst_case_gap(*step, threshold=0.9) == worst_case_gap(*step, threshold=0.1) > worst_case_gap(*step)
    # the margin's weights are at most sqrt(2) times the layer's, and the threshold moves the last of them one way
    std, shift = math.sqrt(2) * 1.0 * 100 / math.sqrt(2), math.log(9)
    farthest = math.sqrt(2) * (0.1 + 0.5 * 4)
    assert worst_case_gap(*step, threshold=0.9) == pytest.approx(
        norm.cdf(farthest / std) - norm.cdf(-(farthest + shift) / std)
    )
    # a layer that is scaled down by much noise moves the bias much further; without a bound nothing is scaled
    assert worst_case_gap(*step, threshold=0.9, n_weights=10) > 0.49
    assert worst_case_gap(*step, threshold=0.5, n_weights=10) == worst_case_gap(*step)
    assert worst_case_gap(math.inf, *step[1:], threshold=0.9, n_weights=10) == 1.0
    with pytest.raises(InvalidParameterError, match="threshold"):
        worst_case_gap(*step, threshold=1.0)


def last_layers(rng, mean, std, n_draws, norm_bound):
    """Last layers (two classes, inputs) after a step, scaled down to the bound again: what Groupwise releases."""
    layers = mean + std * rng.standard_normal((n_draws, *mean.shape))
    norms = np.linalg.norm(layers, axis=(1, 2), keepdims=True)
    return layers * np.minimum(1.0, norm_bound / norms)


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("std", [0.5, 5.0, 500.0])
def test_the_worst_case_holds_at_every_threshold_and_event(rng, threshold, std):
    """20,000 last steps: mean decisions of the scaled layers on any inputs with a constant 1, in each event.

    A mean of 20,000 decisions is off by .0035 at most (standard error), so .02 is beyond five of them. Where rates of
    class 1 differ the most between any two inputs, no event (any two groups of rows, of one label or of both) has a
    larger gap.
    """
    bound, rate, reach, n_batch = 1.0, 0.7, 0.02, 10
    direction = rng.normal(size=4)
    direction /= np.linalg.norm(direction)
    mean = (bound + rate * reach * n_batch) / math.sqrt(2) * np.array([-direction, direction])
    layers = last_layers(rng, mean, rate * std, 20_000, bound)
    features = np.concatenate([np.zeros((1, 3)), 1e3 * np.outer([1, -1], direction[:3]), rng.normal(size=(30, 3)) * 9])
    inputs = np.column_stack([features, np.ones(len(features))])
    chances = 1 / (1 + np.exp(np.clip(-(inputs @ (layers[:, 1] - layers[:, 0]).T), -700, 700)))
    rates = (chances > threshold).mean(axis=1)
    events = [range(len(rates)), range(0, len(rates), 2), range(1, len(rates), 2)]  # everyone, and two labels
    claimed = worst_case_gap(bound, rate, reach, n_batch, std, threshold, n_weights=8)
    for rows in events:
        assert np.ptp(rates[list(rows)]) <= claimed + 0.02
    if std == 500.0 and threshold != 0.5:  # a twin that forgets the scaling is caught: almost nobody, and half
        assert np.ptp(rates) > worst_case_gap(bound, rate, reach, n_batch, std, threshold) + 0.2


@pytest.mark.parametrize("threshold", [0.2, 0.7])
@pytest.mark.parametrize("several", [False, True])
def test_the_estimate_is_the_mean_decision_at_its_threshold_and_event(rng, threshold, several):
    """4,000 draws around the released weights, 400 people: sums of decisions agree to 5 standard errors."""
    model, records = LinearSoftmax(3, 2), table(rng, 400)
    params = rng.normal(size=8).astype(np.float32)
    models = tuple(rng.normal(size=(5, 8)).astype(np.float32)) if several else ()
    fit = GroupwiseFit(params, last_step=LastStep(params, 0.5, 0.8, 0.01, 0.1, 400.0, models))
    part = replace(smooth_stage(0.0, 1.0, has_several=several, thresholds=(threshold,)), subset="")
    assert len(part.releases) == 2 * (1 + several)
    veil = open_veils(records, Plan((part,), math.inf, 1e-5), Ledger(), reproducible_coins(0), "a test")["smooth rates"]
    sums = read_smooth_sums(veil, model, PEOPLE.n_groups, fit, (threshold,))
    assert sums.at(0.5) is sums and sums.at(0.21) is None
    inputs = np.column_stack([records.X, np.ones(400)])
    draws = margin_weights(model, params) + fit.last_step.margin_std * rng.standard_normal((4_000, 4))
    ones = 1 / (1 + np.exp(-(inputs @ draws.T))) > threshold
    votes = [1 / (1 + np.exp(-(inputs @ margin_weights(model, one)))) > threshold for one in models]
    for group in (0, 1):
        for label in (0, 1):
            own = (records.groups == group) & (records.y == label)
            totals = ones[own].sum(axis=0)
            expected = totals.mean() - own.sum() / 2
            found = sums.at(threshold).smooth[group, label]
            assert abs(found - expected) < 5 * totals.std() / math.sqrt(4_000) + 1e-3
            assert abs(sums.smooth[group, label] - expected) > 5 * totals.std() / math.sqrt(4_000)
            if several:
                shares = np.mean(votes, axis=0)[own] - 0.5
                assert sums.at(threshold).of_several[group, label] == pytest.approx(shares.sum(), abs=1e-3)


@pytest.mark.parametrize("constraint", [DemographicParity(), TruePositiveRateParity(), EqualizedOdds()])
@pytest.mark.parametrize("rates", [(0.5, 0.5), (0.3, 0.2), (0.8, 0.1)])
def test_the_stated_error_holds_the_noise_of_sizes_and_sums(rng, constraint, rates):
    people = Population((Attribute("side", ("left", "right")),), ("no", "yes"))
    bounds = constrain(constraint, people)
    sizes = np.array([[900.0, 400.0], [500.0, 700.0], [0.0, 0.0]])
    sums = sizes * (np.array([*rates, 0.5]) - 0.5)[:, None]
    size_std, sum_std = 9.0, 6.0
    found = [
        largest_gap(
            bounds,
            sizes + size_std * rng.standard_normal(sizes.shape),
            sums + sum_std * rng.standard_normal(sums.shape),
            size_std**2,
            sum_std**2,
        )
        for _ in range(2_000)
    ]
    gaps, errors = np.array(found, dtype=float).T
    people_part = bounds.estimate(smooth_histogram(bounds, sizes, sums)).sampling_errors.max()
    stated = math.sqrt(np.square(errors).mean())
    # the spread of 2,000 draws is known to 2 %; the largest of several bounds varies less than each of them
    assert np.std(gaps) < 1.1 * stated
    if isinstance(constraint, DemographicParity) and rates != (0.5, 0.5):
        assert math.hypot(np.std(gaps), people_part) == pytest.approx(stated, rel=0.1)


@pytest.mark.parametrize("n_people", [1e4, 1e9, 1e16, 1e18, 1e300])
def test_a_batch_of_any_number_of_people_has_a_bound(n_people):
    """It is computed after the ledger is debited, from a size that may be declared far too large."""
    mean = 0.01 * n_people
    assert mean <= batch_bound(n_people, 0.01) <= mean + 6 * math.sqrt(mean) + 20 + 1e-6 * mean
