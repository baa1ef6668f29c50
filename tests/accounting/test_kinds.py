"""Long ledgers kind by kind: never below the exact total, hardly above it, and rounding the wrong way is noticed."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from _support import direct_accountant
from fairveil.accounting import composition, kinds
from fairveil.accounting.composition import NeighboringRelation, epsilon_of
from fairveil.accounting.composition import _priced_epsilon as priced_epsilon
from fairveil.accounting.events import (
    ApproximateDP,
    BestOfRuns,
    Charge,
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    DisjointCells,
    GaussianRelease,
    Joint,
    LaplaceRelease,
    NonPrivateRelease,
    PoissonSampled,
    Repeated,
)
from fairveil.accounting.kinds import epsilon_by_kinds, kinds_of, merged_gaussians
from fairveil.accounting.pld import LossDistribution, Losses, coarsen, compose_all, compose_uses, power
from fairveil.accounting.pricing import compositions_of, grid_for, loss_distribution, normal_delta

DELTA = 1e-5
ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
FINE = 0.0025
"""Fineness of the reference: its chords inflate epsilon by less than 0.002 %."""

BELOW, WITHIN = 3e-4, 0.005
"""How far below (errors of the reference itself) and above a finer price the total may be."""


def steps(rate, release, count):
    return Repeated(PoissonSampled(rate, release), count)


ENTRIES = {
    "train and hold out": (steps(0.1, GaussianRelease(7.0), 300), DiscreteGaussianRelease(3.7)),
    "joint batches": (
        steps(0.1, Joint((GaussianRelease(9.0), GaussianRelease(30.0))), 150),
        DiscreteGaussianRelease(5),
    ),
    "Laplace counts": (steps(0.2, Joint((LaplaceRelease(20.0), GaussianRelease(15.0))), 40), GaussianRelease(9.0)),
    "moments": (GaussianRelease(4.3), DiscreteGaussianRelease(3.7)),
    "small part": (ApproximateDP(0.3), ApproximateDP(0.05, 1e-8)),
    "whole: Gaussian": (GaussianRelease(12.0),),
    "whole: Laplace": (LaplaceRelease(9.0),),
    "whole: counts": (DiscreteLaplaceRelease(50.0),),
    "whole: approximate": (ApproximateDP(0.1, 1e-9),),
    "whole: cells": (DisjointCells(DiscreteGaussianRelease(15.0)),),
    "whole: sampled": (steps(0.05, DiscreteLaplaceRelease(2.0), 5),),
}
RUNS = BestOfRuns(((steps(0.1, GaussianRelease(12.0), 30),), (DiscreteGaussianRelease(7.0),)), 4.0)


def charges_of(names):
    """Return the charges of these entries in turn, each with a split of its own."""
    charges = []
    for n, name in enumerate(names):
        for part, event in enumerate(ENTRIES[name]):
            place = () if name.startswith("whole") else (f"entry {n}", f"part {part}")
            charges.append(Charge(event, *place))
    return charges


def forget():
    """Let nothing that was priced be remembered."""
    for cached in (priced_epsilon, kinds._priced_by_kinds, kinds._priced_entry):
        cached.cache_clear()


@pytest.fixture
def afresh(monkeypatch):
    """A patch under which everything is priced anew, and nothing of it remembered afterwards."""
    forget()
    yield monkeypatch
    forget()


def fine_epsilon(patch, charges, relation=ADD):
    """Return the price on one grid that is finer still."""
    forget()
    patch.setattr(composition, "grid_for", partial(grid_for, fineness=FINE))
    return epsilon_of(charges, DELTA, relation)


# --- never below, hardly above ----------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=25)
@given(
    names=st.lists(st.sampled_from(list(ENTRIES)), min_size=1, max_size=3, unique=True),
    counts=st.lists(st.integers(1, 200), min_size=3, max_size=3),
    relation=st.sampled_from([ADD, REPLACE]),
    is_coarse=st.booleans(),
)
def test_mixed_ledgers_cost_at_least_the_exact_total(names, counts, relation, is_coarse):
    charges = charges_of([name for name, count in zip(names, counts, strict=False) for _ in range(count)])
    with pytest.MonkeyPatch.context() as patch:
        forget()
        patch.setattr(kinds, "FEW_KINDS", 0 if is_coarse else 10**6)
        total, fine = epsilon_by_kinds(charges, DELTA, relation), fine_epsilon(patch, charges, relation)
    forget()
    assert total == fine == math.inf or fine * (1 - BELOW) <= total <= fine * (1 + WITHIN)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("few_kinds", [10**6, 0], ids=["fine", "coarse"])
def test_fifty_mixed_entries_are_within_half_a_percent(afresh, few_kinds, relation):
    afresh.setattr(kinds, "FEW_KINDS", few_kinds)
    # sampled noise that is not Gaussian has no price for a replaced record, and group privacy blows up at 50 entries
    names = [name for name in ENTRIES if relation is ADD or name not in ("Laplace counts", "whole: sampled")]
    charges = charges_of([names[n % len(names)] for n in range(50)])
    full = epsilon_of(charges, DELTA, relation)
    assert full * (1 - BELOW) <= epsilon_by_kinds(charges, DELTA, relation) <= full * (1 + WITHIN)


def test_different_noise_in_every_entry_is_priced_too():
    """Nothing repeats, as if every fit had its own epsilon: the coarser grid, still within half a percent."""
    charges = []
    for n in range(70):
        charges.append(Charge(steps(0.1, GaussianRelease(7 + n / 10), 300), f"fit {n}", "train"))
        charges.append(Charge(DiscreteGaussianRelease(3.7 + n / 20), f"fit {n}", "hold out"))
    full = epsilon_of(charges, DELTA)
    assert full * (1 - BELOW) <= epsilon_by_kinds(charges, DELTA) <= full * (1 + WITHIN)


def test_the_direct_accountant_agrees_on_a_mixed_ledger():
    charges = charges_of(["train and hold out", *(name for name in ENTRIES if name.startswith("whole"))] * 2)
    theirs = direct_accountant.epsilon_of(charges, DELTA)
    assert theirs * (1 - 3e-4) <= epsilon_by_kinds(charges, DELTA) <= theirs * (1 + WITHIN)


def test_a_choice_among_runs_is_priced_like_on_one_grid():
    charges = [Charge(RUNS, f"fit {n}", "fit") for n in range(12)] + charges_of(["moments"] * 4)
    assert epsilon_by_kinds(charges, DELTA) == pytest.approx(epsilon_of(charges, DELTA), rel=2e-3)


# --- broken twins -----------------------------------------------------------------------------------------------------


def rounded_down(losses, grid):
    """Move every mass to the grid loss below it: the wrong side."""
    ratio = round(grid / losses.remove.grid)
    directions = []
    for one in (losses.remove, losses.add):
        places = (one.first + np.arange(len(one.masses))) // ratio
        directions.append(
            LossDistribution(grid, int(places[0]), np.bincount(places - places[0], one.masses), one.infinite)
        )
    return Losses(*directions)


@pytest.mark.attack
@pytest.mark.parametrize("few_kinds", [10**6, 0], ids=["fine", "coarse"])
def test_rounding_down_is_caught(afresh, few_kinds):
    """By the same comparison that the real rounding passes."""
    fits = [steps(0.1, GaussianRelease(7.0), 300), steps(0.1, GaussianRelease(10.0), 150)] * 200
    charges = [Charge(fit, f"fit {n}", "train") for n, fit in enumerate(fits)]
    afresh.setattr(kinds, "FEW_KINDS", few_kinds)
    fine = fine_epsilon(afresh, charges)
    assert fine * (1 - BELOW) <= epsilon_by_kinds(charges, DELTA) <= fine * (1 + WITHIN)
    forget()
    afresh.setattr(kinds, "coarsen", rounded_down)
    assert epsilon_by_kinds(charges, DELTA) < fine * (1 - BELOW)


# --- the two steps by themselves --------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    masses=st.lists(st.floats(0, 1), min_size=1, max_size=40).filter(lambda masses: sum(masses) > 0.01),
    first=st.integers(-40, 40),
    infinite=st.sampled_from([0.0, 1e-9, 0.2]),
    ratio=st.sampled_from([1, 2, 4, 16, 64]),
)
def test_coarser_losses_dominate_and_keep_both_masses(masses, first, infinite, ratio):
    grid = 2.0**-6
    kept = np.array(masses) / sum(masses) * (1 - infinite)
    one = LossDistribution(grid, first, kept, infinite)
    rounded = coarsen(Losses(one, one), ratio * grid).remove
    epsilons = np.linspace(-2, 2, 401)
    assert np.all(rounded.hockey_stick(epsilons) >= one.hockey_stick(epsilons) - 1e-14)
    assert rounded.masses.sum() == pytest.approx(one.masses.sum(), rel=1e-12) and rounded.infinite == infinite
    other = [float(some.masses @ np.exp(-some.losses)) for some in (one, rounded)]
    assert other[1] == pytest.approx(other[0], rel=1e-12)
    # at its own grid losses the curve is kept: chords meet it there
    corners = np.arange(-3, 4) * ratio * grid
    np.testing.assert_allclose(rounded.hockey_stick(corners), one.hockey_stick(corners), rtol=0, atol=1e-12)


def test_one_transform_of_all_equals_one_by_one():
    grid = 2.0**-9
    events = [GaussianRelease(8.0), PoissonSampled(0.1, GaussianRelease(1.0)), ApproximateDP(0.2, 1e-6)]
    several = [(loss_distribution(event, grid, ADD), count) for event, count in zip(events, (3, 20, 4), strict=True)]
    one_by_one = compose_all([power(losses, count) for losses, count in several])
    together, epsilons = compose_uses(several), np.linspace(0, 4, 200)
    for mine, theirs in ((together.remove, one_by_one.remove), (together.add, one_by_one.add)):
        np.testing.assert_allclose(mine.hockey_stick(epsilons), theirs.hockey_stick(epsilons), rtol=1e-9, atol=2e-14)


def test_a_thousand_different_gaussians_stay_above_their_closed_form():
    """Also where delta is so small that the rounding of the Fourier transform would show."""
    noises = 40 + np.arange(1000) / 25
    several = [(loss_distribution(GaussianRelease(noise), 2.0**-10, ADD), 1) for noise in noises]
    losses, shift = compose_uses(several), math.hypot(*(1 / noises))
    epsilons = np.linspace(0, 5, 100)
    mine, exact = losses.hockey_stick(epsilons), normal_delta(shift, epsilons)
    assert exact.min() < 1e-13
    assert np.all(mine >= exact)
    likely = exact > 1e-9
    np.testing.assert_allclose(mine[likely], exact[likely], rtol=0.05)


def test_gaussians_on_the_same_records_are_one():
    uses = {GaussianRelease(3.0): 2, Joint((GaussianRelease(4.0), GaussianRelease(5.0))): 3, LaplaceRelease(2.0): 1}
    (gaussian,) = [event for event, _ in merged_gaussians(uses) if isinstance(event, GaussianRelease)]
    assert gaussian.noise_multiplier == pytest.approx((2 / 9 + 3 / 16 + 3 / 25) ** -0.5, rel=1e-12)
    assert (LaplaceRelease(2.0), 1) in merged_gaussians(uses) and len(merged_gaussians(uses)) == 2


# --- laws -------------------------------------------------------------------------------------------------------------


def test_entries_alike_are_one_kind():
    charges = charges_of(["train and hold out", "moments", "whole: Laplace"] * 50)
    assert sorted((len(kind.parts), kind.count) for kind in kinds_of(compositions_of(charges))) == [
        (1, 1), (2, 50), (2, 50),
    ]  # fmt: skip


def test_parts_of_one_split_cost_the_worst_of_them():
    strong, weak = GaussianRelease(10.0), GaussianRelease(20.0)
    both = [Charge(event, f"entry {n}", str(event)) for n in range(20) for event in (strong, weak)]
    assert epsilon_by_kinds(both, DELTA) == pytest.approx(epsilon_by_kinds([Repeated(strong, 20)], DELTA), rel=2e-4)
    in_sequence = epsilon_by_kinds([Charge(charge.event) for charge in both], DELTA)
    assert epsilon_by_kinds(both, DELTA) < 0.95 * in_sequence


def test_parts_that_no_other_dominates_are_all_tried():
    sure, rare = ApproximateDP(0.4), ApproximateDP(0.1, 5e-6)
    charges = [Charge(sure, "split", "a"), Charge(rare, "split", "b"), *[Charge(GaussianRelease(1e4))] * 20]
    for delta in (6e-6, 1e-2):
        assert epsilon_by_kinds(charges, delta) == pytest.approx(epsilon_of(charges, delta), rel=2e-3)


def test_pure_epsilons_add_up_without_a_grid():
    charges = [Charge(ApproximateDP(0.1))] * 12 + [Charge(LaplaceRelease(10.0))] * 3
    assert epsilon_by_kinds(charges, 1e-12) == pytest.approx(1.5, rel=1e-12)
    assert epsilon_by_kinds(charges, 1e-12, REPLACE) == pytest.approx(3.0, rel=1e-12)


def test_nothing_costs_nothing_and_no_guarantee_has_no_total():
    assert epsilon_by_kinds([], DELTA) == 0
    charges = [*charges_of(["moments"] * 12), Charge(NonPrivateRelease("a test"), "other", "part")]
    assert epsilon_by_kinds(charges, DELTA) == math.inf


def test_the_order_of_entries_does_not_matter():
    charges = charges_of(["train and hold out", "moments", "whole: Laplace", "whole: counts"] * 6)
    assert epsilon_by_kinds(charges[::-1], DELTA) == pytest.approx(epsilon_by_kinds(charges, DELTA), rel=1e-6)


@pytest.mark.parametrize(
    "event",
    [
        Repeated(GaussianRelease(1e6), 10**11),
        Repeated(PoissonSampled(1e-3, GaussianRelease(0.3)), 10**5),
        Repeated(PoissonSampled(0.5, GaussianRelease(0.01)), 10**6),
        GaussianRelease(1e-30),
        ApproximateDP(1e15),
        ApproximateDP(1e-30),
        DiscreteGaussianRelease(1e15),
        DiscreteLaplaceRelease(1e3, 10**15),
        PoissonSampled(0.999999, LaplaceRelease(1e-8)),
    ],
    ids=str,
)
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_extreme_numbers_have_a_total(event, relation):
    """What a ledger may hold is priced, whatever it costs, in bounded memory."""
    charges = [Charge(event, f"entry {n}", "part") for n in range(13)]
    assert 0 <= epsilon_by_kinds(charges, DELTA, relation) < math.inf
