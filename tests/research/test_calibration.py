"""Noise by other accountants: Rényi asks for more, the central limit for too little, and the exact price says so."""

import numpy as np
import pandas as pd
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from fairveil import Category, Descent, FlipTraining, Ledger, Number, PrivateClassifier, RandomizedParityPostprocessor
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import GaussianRelease, LaplaceRelease, PoissonSampled, Repeated
from fairveil.data.schema import Schema, Sensitive, Target
from fairveil.errors import InvalidParameterError, UnsupportedEventError
from fairveil.research.calibration import ACCOUNTANTS, noise_by, stated_epsilon, training_noise, with_noise_by

DELTA = 1e-5
ADULT = (0.034, 1500)
TRAINING = Descent(model="linear", n_steps=40, sampling_rate=0.2, learning_rate=0.5, clip_norm=1.0)
N = 600


def steps_at(rate, n_steps):
    return lambda noise: [Repeated(PoissonSampled(rate, GaussianRelease(noise)), n_steps)]


@pytest.fixture(scope="module")
def schema():
    columns = {"x": Number(bounds=(-3, 3)), "g": Category(categories=("a", "b"))}
    target = Target(column="y", classes=("0", "1"), positive="1")
    sensitive = (Sensitive(column="g", groups=("a", "b")),)
    return Schema(name="small", target=target, columns=columns, sensitive=sensitive, n_public=N)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=N), rng.choice(["a", "b"], N)
    y = np.where(x + (g == "a") + rng.normal(size=N) > 0, "1", "0")
    return pd.DataFrame({"x": x, "g": g, "y": y})


def test_the_order_of_what_accountants_ask_for():
    exact, renyi, limit = (noise_by(one, steps_at(*ADULT), 2.9, DELTA) for one in ("pld", "renyi", "gdp"))
    assert renyi.noise_multiplier > exact.noise_multiplier > limit.noise_multiplier
    assert renyi.epsilon < exact.epsilon <= 2.9 < limit.epsilon
    assert renyi.keeps_budget and exact.keeps_budget and not limit.keeps_budget
    assert renyi.is_bound and exact.is_bound and not limit.is_bound
    assert "NOT A BOUND" in limit.sentence and "ABOVE" in limit.sentence
    assert "NOT" not in renyi.sentence and "within" in renyi.sentence


@pytest.mark.parametrize(
    ("accountant", "budget", "printed"),
    [("renyi", 2.9, 3.27), ("gdp", 2.9, 3.01), ("gdp", 8.9, 1.45)],
)
def test_the_papers_noise_comes_out_again(accountant, budget, printed):
    """Tables VI, VII, X and XI: a standard deviation at clip norm 1.5, printed to the hundredth."""
    noise = noise_by(accountant, steps_at(*ADULT), budget, DELTA)
    assert 1.5 * noise.noise_multiplier == pytest.approx(printed, abs=0.025)


@pytest.mark.parametrize("rate", [0.01, 0.2, 1.0])
@pytest.mark.parametrize("noise", [0.8, 2.0, 8.0])
def test_renyi_is_never_below_the_exact_price(rate, noise):
    charges = steps_at(rate, 200)(noise)
    assert stated_epsilon("renyi", charges, DELTA) >= epsilon_of(charges, DELTA)


@pytest.mark.parametrize(("rate", "n_steps", "noise"), [(0.034, 1500, 2.18), (0.1, 100, 1.0), (1.0, 10, 5.0)])
def test_an_independent_accountant_states_the_same(rate, n_steps, noise):
    """Against dp_accounting, asked for add or remove one, the relation under which its Rényi accountant is right."""
    accountant = RdpAccountant()
    step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    accountant.compose(dp_event.SelfComposedDpEvent(step, n_steps))
    stated = stated_epsilon("renyi", steps_at(rate, n_steps)(noise), DELTA)
    assert stated == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-9)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_it_is_the_least_noise(accountant):
    charges_at = steps_at(0.1, 50)
    noise = noise_by(accountant, charges_at, 1.0, DELTA)
    assert stated_epsilon(accountant, charges_at(noise.noise_multiplier), DELTA) <= 1.0
    assert stated_epsilon(accountant, charges_at(noise.noise_multiplier * 0.999), DELTA) > 1.0
    assert noise.epsilon == epsilon_of(charges_at(noise.noise_multiplier), DELTA)


def test_what_cannot_be_calibrated_is_refused():
    with pytest.raises(InvalidParameterError, match="more noise can meet"):
        noise_by("renyi", lambda noise: [GaussianRelease(noise), GaussianRelease(1.0)], 0.5, DELTA)
    with pytest.raises(UnsupportedEventError):
        noise_by("gdp", lambda noise: [LaplaceRelease(noise)], 1.0, DELTA)
    with pytest.raises(InvalidParameterError, match="accountant"):
        noise_by("moments", steps_at(*ADULT), 1.0, DELTA)


def test_no_budget_cannot_be_calibrated_to(schema):
    with pytest.raises(InvalidParameterError, match="finite"):
        training_noise(PrivateClassifier(epsilon=float("inf"), training=TRAINING, schema=schema), "renyi")


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_training_uses_that_noise_and_debits_the_exact_price(accountant, schema, table):
    ledger = Ledger()
    clf = PrivateClassifier(epsilon=2.0, training=TRAINING, schema=schema, ledger=ledger)
    copy, noise = with_noise_by(clf, accountant, accepts_more=accountant == "gdp")
    copy.fit(table, table["y"])
    (used,) = copy.plan_.stage("train").noise_multipliers.values()
    assert used == pytest.approx(noise.noise_multiplier, rel=2e-4)
    assert ledger.epsilon(DELTA) == pytest.approx(noise.epsilon, rel=5e-4)
    assert copy.epsilon_spent_ == pytest.approx(noise.epsilon, rel=5e-4)
    assert (clf.epsilon, copy.epsilon) == (2.0, noise.epsilon)


def test_a_price_above_the_budget_is_refused_before_any_debit(schema):
    ledger = Ledger()
    clf = PrivateClassifier(epsilon=2.0, training=TRAINING, schema=schema, ledger=ledger)
    with pytest.raises(InvalidParameterError, match=r"not a bound: it costs 2\.\d+ exactly"):
        with_noise_by(clf, "gdp")
    assert ledger.epsilon(DELTA) == 0


def test_flips_on_rows_of_their_own_train_by_another_accountant(schema, table):
    training = FlipTraining(rule_fraction=0.3, base=TRAINING)
    clf = RandomizedParityPostprocessor(epsilon=2.0, training=training, schema=schema, sensitive="g", ledger=Ledger())
    copy, noise = with_noise_by(clf, "renyi")
    plan = copy.fit(table, table["y"]).plan_
    assert noise.epsilon < 2.0
    assert plan.stage("train").noise_multipliers["gradient"] == pytest.approx(noise.noise_multiplier, rel=2e-4)
    # the noisy rates are of other people, and get the same epsilon
    assert plan.stage("rule").noise_multipliers["rates"] == pytest.approx(1 / noise.epsilon, rel=1e-3)
