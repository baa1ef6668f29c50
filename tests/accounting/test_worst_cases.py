"""Parts of one split cost the worst of them; everything else adds up."""

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.accounting import pricing
from fairveil.accounting.composition import NeighboringRelation, delta_of, epsilon_of
from fairveil.accounting.events import (
    ApproximateDP,
    Charge,
    DiscreteLaplaceRelease,
    Event,
    GaussianRelease,
    LaplaceRelease,
    PoissonSampled,
    Repeated,
)
from fairveil.accounting.pld import is_dominated
from fairveil.accounting.pricing import MAX_COMPOSITIONS, compositions_of, loss_distribution
from fairveil.report.privacy_text import NOT_COVERED

DELTA = 1e-5
ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
KNOWN = [
    GaussianRelease(2.0),
    DiscreteLaplaceRelease(2.0, 2),
    ApproximateDP(0.5),
    ApproximateDP(0.5, 1e-7),
    PoissonSampled(0.1, GaussianRelease(1.0)),
    PoissonSampled(0.1, LaplaceRelease(1.0)),
]


def steps(rate: float, noise_multiplier: float, n_steps: int) -> Repeated:
    return Repeated(PoissonSampled(rate, GaussianRelease(noise_multiplier)), n_steps)


def test_parts_of_one_split_cost_the_worst_of_them() -> None:
    train, check = steps(0.1, 2.0, 100), GaussianRelease(5.0)
    parts = [Charge(train, "split", "train"), Charge(check, "split", "check")]
    assert epsilon_of(parts, DELTA) == epsilon_of([train], DELTA)
    both = epsilon_of([*parts, GaussianRelease(10.0)], DELTA)
    assert both == pytest.approx(epsilon_of([train, GaussianRelease(10.0)], DELTA), rel=1e-9)
    assert both < epsilon_of([train, check, GaussianRelease(10.0)], DELTA)


def test_parts_that_no_other_dominates_are_all_tried() -> None:
    sure, rare = ApproximateDP(0.4), ApproximateDP(0.1, 5e-6)
    parts = [Charge(sure, "split", "a"), Charge(rare, "split", "b")]
    assert len(compositions_of(parts).priced(2.0**-10)) == 2
    for delta in (6e-6, 1e-2):
        assert epsilon_of(parts, delta) == max(epsilon_of([sure], delta), epsilon_of([rare], delta))


def test_different_splits_compose_in_sequence() -> None:
    event = GaussianRelease(4.0)
    charges = [Charge(event, f"split {n}", part) for n in range(3) for part in "ab"]
    assert epsilon_of(charges, DELTA) == epsilon_of([Repeated(event, 3)], DELTA)
    again = [Charge(event, "split 0", "a")] * 3
    assert epsilon_of(again, DELTA) == epsilon_of([Repeated(event, 3)], DELTA)


def test_too_many_compositions_are_over_counted_and_never_under() -> None:
    def split(n: int) -> list[Charge]:
        return [
            Charge(ApproximateDP(0.1 + n / 1000), f"split {n}", "a"),
            Charge(ApproximateDP(0.01, 1e-8 * (n + 1)), f"split {n}", "b"),
        ]

    charges = [charge for n in range(8) for charge in split(n)]
    assert 2**8 > MAX_COMPOSITIONS >= len(compositions_of(charges).worst_cases())
    heavy = epsilon_of([charge.event for charge in charges if charge.part == "a"], DELTA)
    everything = epsilon_of([charge.event for charge in charges], DELTA)
    assert heavy <= epsilon_of(charges, DELTA) <= everything


def test_each_of_too_many_compositions_is_still_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pricing, "MAX_COMPOSITIONS", 3)
    parts = {n: (ApproximateDP(0.1 + n / 100), GaussianRelease(10.0 + n)) for n in range(3)}
    charges = [Charge(event, f"split {n}", str(event)) for n, events in parts.items() for event in events]
    tried = compositions_of(charges).worst_cases()
    assert len(tried) <= 3
    for events in product(*parts.values()):
        assert any(set(events) <= set(longer) for longer in tried)


def test_repeating_one_plan_makes_few_compositions() -> None:
    parts = (ApproximateDP(0.1), ApproximateDP(0.01, 1e-8))
    charges = [Charge(event, f"run {n}", str(event)) for n in range(20) for event in parts]
    assert len(compositions_of(charges).worst_cases()) == 21


@settings(max_examples=15)
@given(
    st.lists(st.sampled_from(KNOWN), min_size=1, max_size=3),
    st.lists(st.sampled_from(KNOWN), min_size=1, max_size=3),
)
def test_in_parallel_never_costs_more_than_in_sequence(first: list[Event], second: list[Event]) -> None:
    parts = [Charge(event, "split", "a") for event in first] + [Charge(event, "split", "b") for event in second]
    sequence = epsilon_of([*first, *second], DELTA)
    worst = max(epsilon_of(first, DELTA), epsilon_of(second, DELTA))
    assert worst * 0.9995 <= epsilon_of(parts, DELTA) <= sequence * 1.0005


def test_domination_is_decided_at_every_loss() -> None:
    strong, weak = (loss_distribution(GaussianRelease(noise), 2.0**-10, ADD) for noise in (1.0, 2.0))
    assert is_dominated(weak, strong)
    assert not is_dominated(strong, weak)
    assert is_dominated(strong, strong)
    box = loss_distribution(ApproximateDP(1.0), 2.0**-10, ADD)
    assert not is_dominated(box, weak)
    assert not is_dominated(weak, box)


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("noise", [2.0, 6.0])
def test_several_people_have_k_epsilon_and_a_larger_delta(noise, k) -> None:
    """What a report says of k people: k times epsilon, and delta times (e^(k epsilon) - 1) / (e^epsilon - 1)."""
    epsilon = epsilon_of([GaussianRelease(noise)], DELTA)
    together = delta_of([GaussianRelease(noise / k)], k * epsilon)  # k people move a sum k times as far
    assert together <= DELTA * math.expm1(k * epsilon) / math.expm1(epsilon)
    assert together > DELTA  # epsilon alone would not say it
    assert any("(e^(k epsilon) - 1) / (e^epsilon - 1)" in sentence for sentence in NOT_COVERED)
