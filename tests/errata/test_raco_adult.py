"""Errata of RaCO-DP (paper 002) that show in training: soft rates, and the bias of clipping. Adult, epsilon = infinity.

At epsilon = infinity `random_state` seeds all coins; here it is a hash of the test's name. `python
tests/errata/test_raco_adult.py` prints mean and standard deviation over ten seeds of every row of docs/errata.md. The
tests hold one seed each; their margins are five of these standard deviations or more.
"""

import math
import zlib

import numpy as np
import pytest

from fairveil import (
    DemographicParity,
    Descent,
    FalseNegativeRateCap,
    FeatureDesign,
    RateConstrained,
    RateConstrainedClassifier,
    load_dataset,
)

DEFAULT = 0.8 * math.sqrt(12)  # eleven encoded columns and the intercept, each of norm 1
# (dual follows soft rates, tolerance, temperature): soft gap, gap of decisions, accuracy
PARITY = {
    (True, 0.0, 1.0): (0.000, -0.026, 0.832),
    (True, 0.0, 2.0): (0.000, -0.040, 0.827),
    (False, 0.0, 1.0): (0.023, 0.001, 0.840),
    (True, 0.05, 1.0): (0.050, 0.029, 0.846),
    (False, 0.05, 1.0): (0.073, 0.050, 0.851),
}
# clip norm: false negative rate where .2 is asked for, without a last look
CLIPPING = {0.25: 0.378, 1.0: 0.323, DEFAULT: 0.258, math.inf: 0.199}


def train(adult, seed, constraint, epsilon=math.inf, clip_norm=None, final_check=False, **options):
    """Train without the sensitive column; return the classifier and the probabilities of the positive class.

    Headroom only with the look, which is what users get; without it the bare rule of the ascent shows.
    """
    options = {"headroom": float(final_check), **options}
    # the paper's model sees every level alike
    descent = Descent(model="linear", clip_norm=clip_norm, features=FeatureDesign(frequency_power=0))
    training = RateConstrained(descent=descent, final_check=final_check, **options)
    schema = adult.schema.without("sex")
    classifier = RateConstrainedClassifier(
        constraint, epsilon, training=training, schema=schema, sensitive="sex", random_state=seed
    )
    classifier.fit(adult.X, adult.y)
    return classifier, classifier.predict_proba(adult.X)[:, list(classifier.classes_).index(">50K")]


def gap(values, adult):
    is_male = (adult.X["sex"] == "Male").to_numpy()
    return values[is_male].mean() - values[~is_male].mean()


def is_positive(adult):
    return (adult.y == ">50K").to_numpy()


def accuracy(soft, adult):
    return np.mean((soft > 0.5) == is_positive(adult))


def missed(soft, adult):
    return np.mean(soft[is_positive(adult)] <= 0.5)


def parity_row(adult, seed, soft_rates, tolerance, temperature):
    constraint = DemographicParity(tolerance)
    _, soft = train(adult, seed, constraint, soft_rates=soft_rates, temperature=temperature)
    tempered = 1 / (1 + ((1 - soft) / soft) ** temperature)
    return gap(tempered, adult), gap(soft > 0.5, adult), accuracy(soft, adult)


@pytest.fixture(scope="module")
def adult():
    return load_dataset("adult")


@pytest.fixture
def seed(request):
    return zlib.crc32(request.node.nodeid.encode())


@pytest.mark.parametrize("case", [case for case in PARITY if case[0]], ids=str)
def test_soft_rates_are_not_decisions(adult, seed, case):
    """The soft gap meets the tolerance; the gap of decisions is elsewhere by at least .01."""
    _, tolerance, _ = case
    of_soft, of_decisions, right = parity_row(adult, seed, *case)
    assert of_soft == pytest.approx(tolerance, abs=0.004)
    assert abs(of_decisions - tolerance) > 0.01
    assert of_decisions == pytest.approx(PARITY[case][1], abs=0.006)
    assert right == pytest.approx(PARITY[case][2], abs=0.003)


@pytest.mark.parametrize("case", [case for case in PARITY if not case[0]], ids=str)
def test_decisions_in_the_dual_meet_the_tolerance(adult, seed, case):
    _, tolerance, _ = case
    of_soft, of_decisions, right = parity_row(adult, seed, *case)
    assert of_soft == pytest.approx(PARITY[case][0], abs=0.006)
    assert of_decisions == pytest.approx(tolerance, abs=0.006)
    assert right == pytest.approx(PARITY[case][2], abs=0.003)


@pytest.mark.parametrize(("clip_norm", "rate"), CLIPPING.items())
def test_a_small_clip_norm_keeps_a_false_negative_rate_out_of_reach(adult, seed, clip_norm, rate):
    """With a small clip norm the multiplier ends near its ceiling and the rate stays far above the cap."""
    classifier, soft = train(adult, seed, FalseNegativeRateCap(0.2), clip_norm=clip_norm)
    assert missed(soft, adult) == pytest.approx(rate, abs=0.01)
    ceiling = 10 * is_positive(adult).mean()
    of_ceiling = classifier.constraint_trace_.multipliers[-1, 0] / ceiling
    assert ceiling == pytest.approx(2.4, abs=0.05)
    assert of_ceiling > 0.9 if clip_norm < 4 else of_ceiling < 0.5


def test_no_multiplier_undoes_clipping(adult, seed, monkeypatch):
    """With the ceiling a hundred times higher the multiplier grows from 2.4 to about 9.8, the rate falls by .02."""
    monkeypatch.setattr("fairveil.methods.raco.recipe.LARGEST_PULL", 1000.0)
    classifier, soft = train(adult, seed, FalseNegativeRateCap(0.2), clip_norm=0.25)
    assert classifier.constraint_trace_.multipliers[-1, 0] == pytest.approx(9.8, abs=0.5)
    assert missed(soft, adult) == pytest.approx(0.361, abs=0.01)


def test_the_final_check_meets_the_cap_and_tells_the_clipped_share(adult, seed):
    classifier, soft = train(adult, seed, FalseNegativeRateCap(0.2), clip_norm=0.25, final_check=True)
    assert missed(soft, adult) == pytest.approx(0.196, abs=0.01)
    assert accuracy(soft, adult) == pytest.approx(0.813, abs=0.01)
    assert classifier.final_check_.clipped_share == pytest.approx(0.31, abs=0.03)


@pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning")  # .205 may be measured for .19
def test_the_default_clip_norm_and_threshold_check_meet_the_cap_at_1(adult, seed, seeded):
    classifier, soft = train(adult, seed, FalseNegativeRateCap(0.2), epsilon=1.0, final_check=True)
    assert missed(soft, adult) == pytest.approx(0.19, abs=0.05)
    assert accuracy(soft, adult) == pytest.approx(0.837, abs=0.016)
    assert classifier.final_check_.clipped_share == pytest.approx(0.20, abs=0.03)


def show(name, rows):
    mean, spread = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1)
    print(f"{name:45}", "  ".join(f"{m:7.4f} +- {s:.4f}" for m, s in zip(mean, spread, strict=True)))


def cap_row(adult, seed, epsilon, clip_norm, final_check):
    """False negative rate, accuracy, last multiplier and, with the look, the clipped share."""
    fitted, soft = train(adult, seed, FalseNegativeRateCap(0.2), epsilon, clip_norm, final_check)
    row = missed(soft, adult), accuracy(soft, adult), fitted.constraint_trace_.multipliers[-1, 0]
    return (*row, fitted.final_check_.clipped_share) if final_check else row


def print_all(n_seeds=10):
    """Print mean and standard deviation of every row of the page."""
    adult = load_dataset("adult")
    for case in PARITY:
        show(f"parity {case}", [parity_row(adult, seed, *case) for seed in range(n_seeds)])
    cases = [(math.inf, clip_norm, False) for clip_norm in CLIPPING] + [
        (math.inf, 0.25, True),
        (1.0, None, True),
    ]
    for case in cases:
        show(f"cap .2, {case}", [cap_row(adult, seed, *case) for seed in range(n_seeds)])


if __name__ == "__main__":
    print_all()
