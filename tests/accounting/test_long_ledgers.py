"""Many fits on the same people: priced by kinds, so that a long ledger stays quick, and never below the exact total."""

from functools import reduce

import numpy as np
import pytest

from fairveil.accounting import pricing
from fairveil.accounting.composition import NeighboringRelation, calibrate, delta_of, epsilon_of
from fairveil.accounting.composition import _priced_epsilon as priced_epsilon
from fairveil.accounting.events import (
    ApproximateDP,
    Charge,
    DiscreteGaussianRelease,
    GaussianRelease,
    Joint,
    PoissonSampled,
    Repeated,
)
from fairveil.accounting.pld import compose, compose_all
from fairveil.accounting.pricing import compositions_of, loss_distribution

DELTA = 1e-5


def calibrated(event_at):
    return event_at(calibrate(lambda noise: [event_at(noise)], 1.0, DELTA))


STEPS = calibrated(lambda noise: Repeated(PoissonSampled(0.05, GaussianRelease(noise)), 200))
FEW_STEPS = calibrated(lambda noise: Repeated(PoissonSampled(0.3, Joint((GaussianRelease(noise),) * 2)), 10))
COUNTS = calibrated(DiscreteGaussianRelease)
PLANS = {
    "train or count": [(STEPS, COUNTS)],
    "two kinds of fits": [(STEPS, COUNTS), (FEW_STEPS, COUNTS)],
    "three parts": [(STEPS, FEW_STEPS, COUNTS)],
    "a kind of its own": [(STEPS, COUNTS), (ApproximateDP(0.3), ApproximateDP(0.25, 1e-7))],
}


def charges_of(plan, n_fits):
    """Return the charges of fits in turn, each with a split of its own."""
    parts = [plan[n % len(plan)] for n in range(n_fits)]
    return [
        Charge(event, f"fit {n}", f"part {place}")
        for n, events in enumerate(parts)
        for place, event in enumerate(events)
    ]


def priced_one_by_one(monkeypatch, price):
    """Return a price with every composition tried by itself."""
    with monkeypatch.context() as patch:
        patch.setattr(pricing, "MAX_PRICED", 10**9)
        patch.setattr(pricing, "MAX_COMPOSITIONS", 10**9)
        priced_epsilon.cache_clear()
        answer = price()
    priced_epsilon.cache_clear()
    return answer


@pytest.mark.parametrize("relation", NeighboringRelation)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_long_ledger_costs_at_least_its_exact_total(monkeypatch, plan, relation):
    """At most 1 % above: an envelope stands for whichever part of each split a record is in."""
    charges = charges_of(plan, 9)
    monkeypatch.setattr(pricing, "MAX_PRICED", 0)
    exact = priced_one_by_one(monkeypatch, lambda: epsilon_of(charges, DELTA, relation))
    total = epsilon_of(charges, DELTA, relation)
    assert exact * (1 - 1e-6) <= total <= exact * 1.01


def test_parts_of_very_different_shapes_are_never_under_counted(monkeypatch):
    sure, rare = ApproximateDP(0.4), ApproximateDP(0.1, 5e-7)
    charges = charges_of([(sure, rare)], 10)
    exact = priced_one_by_one(monkeypatch, lambda: epsilon_of(charges, DELTA))
    assert exact <= epsilon_of(charges, DELTA) <= epsilon_of([Repeated(sure, 10), Repeated(rare, 10)], DELTA)
    exact = priced_one_by_one(monkeypatch, lambda: delta_of(charges, 1.0))
    assert exact <= delta_of(charges, 1.0)


def test_each_kind_of_fit_is_priced_once_however_often_it_was_made(monkeypatch):
    n_calls, price = [], pricing.composed

    def counted(*arguments):
        n_calls.append(1)
        return price(*arguments)

    monkeypatch.setattr(pricing, "composed", counted)
    plan = [(STEPS, COUNTS), (FEW_STEPS, COUNTS)]
    for n_fits in (20, 400):
        compositions_of(charges_of(plan, n_fits)).priced(2.0**-9)
        assert len(n_calls) <= 5
        n_calls.clear()


def test_few_fits_are_priced_exactly(monkeypatch):
    charges = charges_of([(STEPS, COUNTS)], 5)
    assert epsilon_of(charges, DELTA) == priced_one_by_one(monkeypatch, lambda: epsilon_of(charges, DELTA))


def test_the_order_of_composition_does_not_matter():
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    events = [GaussianRelease(2.0 + n) for n in range(4)] + [ApproximateDP(0.2, 1e-6)]
    several = [loss_distribution(event, 2.0**-9, relation) for event in events]
    epsilons = np.linspace(0, 3, 50)
    for n in range(1, 6):
        together = compose_all(several[:n]).hockey_stick(epsilons)
        np.testing.assert_allclose(together, reduce(compose, several[:n]).hockey_stick(epsilons), rtol=1e-9, atol=1e-13)
