"""Every kind of event, and whole ledgers, against two accountants that were written elsewhere or on their own.

One is dp-accounting (privacy loss distributions, and Rényi divergences as an upper bound), the other is
`_support.direct_accountant`. Ours must be within 0.5 % of both, and not below the second. A new kind of event without
a case here fails.
"""

import math
from functools import reduce
from itertools import product

import dp_accounting
import pytest
from dp_accounting.pld import privacy_loss_distribution as dp_pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.rdp import RdpAccountant

from _support import direct_accountant
from fairveil.accounting import events
from fairveil.accounting.composition import NeighboringRelation, epsilon_of
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
    UnpricedChoice,
)
from fairveil.accounting.kinds import epsilon_by_kinds

DELTA = 1e-5
WITHIN = 0.005
ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
REPLACED = dp_accounting.NeighboringRelation.REPLACE_ONE
GRID = 1e-4


def steps(rate, release, count):
    return Repeated(PoissonSampled(rate, release), count)


LAPLACE_AND_GAUSSIAN = Joint((LaplaceRelease(2.0), GaussianRelease(1.5)))
CASES = [
    (ADD, [GaussianRelease(1.3)]),
    (REPLACE, [GaussianRelease(2.6)]),
    (ADD, [Repeated(GaussianRelease(8.0), 40)]),
    (ADD, [LaplaceRelease(1.3)]),
    (ADD, [Repeated(LaplaceRelease(5.0), 30)]),
    (REPLACE, [Repeated(LaplaceRelease(9.0), 10)]),
    (ADD, [DiscreteLaplaceRelease(3.0, 2)]),
    (ADD, [Repeated(DiscreteLaplaceRelease(6.0), 20)]),
    (REPLACE, [Repeated(DiscreteLaplaceRelease(8.0), 5)]),
    (ADD, [DiscreteGaussianRelease(3.7)]),
    (ADD, [Repeated(DiscreteGaussianRelease(9.0, 2), 12)]),
    (REPLACE, [DiscreteGaussianRelease(3.7)]),
    (ADD, [ApproximateDP(0.5, 1e-7)]),
    (ADD, [Repeated(ApproximateDP(0.2, 1e-8), 25)]),
    (REPLACE, [Repeated(ApproximateDP(0.1, 1e-8), 9)]),
    (ADD, [LAPLACE_AND_GAUSSIAN]),
    (REPLACE, [LAPLACE_AND_GAUSSIAN]),
    (ADD, [steps(0.02, GaussianRelease(2.0), 500)]),
    (ADD, [steps(0.01, GaussianRelease(0.8), 1000)]),
    (REPLACE, [steps(0.02, GaussianRelease(2.0), 500)]),
    (ADD, [steps(0.05, LaplaceRelease(1.0), 100)]),
    (ADD, [steps(0.1, DiscreteLaplaceRelease(2.0), 50)]),
    (ADD, [steps(0.1, DiscreteGaussianRelease(2.0), 50)]),
    (ADD, [steps(0.04, LAPLACE_AND_GAUSSIAN, 50)]),
    (ADD, [steps(0.01, LAPLACE_AND_GAUSSIAN, 1000)]),
    (ADD, [steps(0.1, Joint((GaussianRelease(3.0), GaussianRelease(2.0))), 60)]),
    (ADD, [Repeated(DisjointCells(PoissonSampled(0.02, GaussianRelease(2.0))), 500)]),
    (REPLACE, [Repeated(DisjointCells(PoissonSampled(0.02, GaussianRelease(2.0))), 500)]),
    (REPLACE, [Repeated(DisjointCells(DiscreteGaussianRelease(4.0)), 3)]),
    (ADD, [NonPrivateRelease("a test")]),
    (ADD, [GaussianRelease(3.0), UnpricedChoice("a test")]),
    (ADD, [steps(0.02, GaussianRelease(2.0), 300), DiscreteGaussianRelease(3.7), Repeated(LaplaceRelease(9.0), 4)]),
    (
        ADD,
        [
            Charge(steps(0.02, GaussianRelease(2.0), 300), "first", "train"),
            Charge(DiscreteGaussianRelease(1.5), "first", "holdout"),
            Charge(DiscreteLaplaceRelease(8.0)),
            Charge(steps(0.05, GaussianRelease(3.0), 100), "second", "train"),
            Charge(DiscreteGaussianRelease(4.0), "second", "holdout"),
        ],
    ),
    (REPLACE, [steps(0.02, GaussianRelease(2.0), 300), DiscreteGaussianRelease(7.4), LaplaceRelease(9.0)]),
]  # fmt: skip
BEST = [BestOfRuns(((GaussianRelease(4.0),),), 5.0), BestOfRuns(((GaussianRelease(8.0), LaplaceRelease(9.0)),), 20.0)]


def kinds_in(event):
    inner = [event.event] if hasattr(event, "event") else []
    inner += list(getattr(event, "releases", ()))
    inner += [one for way in getattr(event, "ways", ()) for one in way]
    return {type(event).__name__}.union(*map(kinds_in, inner))


def test_every_kind_of_event_has_an_oracle():
    """The list is that of what a ledger may hold, so a new kind fails until it is priced a second time."""
    charged = [one for _, charges in CASES for one in charges] + BEST
    found = set().union(*(kinds_in(one.event if isinstance(one, Charge) else one) for one in charged))
    assert found == set(events._KINDS)


@pytest.mark.parametrize(("relation", "charges"), CASES, ids=str)
def test_the_direct_accountant_agrees(relation, charges):
    theirs = direct_accountant.epsilon_of(charges, DELTA, 1 if relation is ADD else 2)
    for ours in (epsilon_of(charges, DELTA, relation), epsilon_by_kinds(charges, DELTA, relation)):
        assert ours == theirs == math.inf or theirs * (1 - 3e-4) <= ours <= theirs * (1 + WITHIN)


@pytest.mark.parametrize("event", BEST, ids=str)
def test_the_best_of_runs_costs_just_more_than_an_exact_ranking(event):
    """One oracle only, and from below: exact laws of the best run for some rankings, of which any may be used."""
    shown = direct_accountant.best_of_runs(event, DELTA)
    assert shown <= epsilon_of([event], DELTA) <= 1.06 * shown
    assert shown <= epsilon_by_kinds([event], DELTA) <= 1.06 * shown


@pytest.mark.parametrize("release", [LaplaceRelease(1.0), DiscreteGaussianRelease(2.0), LAPLACE_AND_GAUSSIAN], ids=str)
def test_group_privacy_stands_in_where_replacing_has_no_price(release):
    """Sampled noise that is not Gaussian: two steps of the direct accountant's own curve."""
    charges = [steps(0.05, release, 60)]
    theirs = direct_accountant.group_of_two(charges, DELTA)
    assert theirs * (1 - 3e-4) <= epsilon_of(charges, DELTA, REPLACE) <= theirs * (1 + WITHIN)


def their_noise(release, shift, rate, relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE):
    """Return dp-accounting's losses of one use of noise that moves by `shift`; None if it is no noise."""
    options = {"sampling_prob": rate, "value_discretization_interval": GRID, "use_connect_dots": True}
    if isinstance(release, GaussianRelease):
        noise = release.noise_multiplier
        return dp_pld.from_gaussian_mechanism(noise, shift, neighboring_relation=relation, **options)
    if relation is REPLACED:
        return None
    if isinstance(release, LaplaceRelease):
        return dp_pld.from_laplace_mechanism(release.noise_multiplier, shift, **options)
    if isinstance(release, DiscreteLaplaceRelease):
        return dp_pld.from_discrete_laplace_mechanism(1 / release.scale, shift * release.sensitivity, **options)
    if isinstance(release, DiscreteGaussianRelease):
        return dp_pld.from_discrete_gaussian_mechanism(release.std, shift * release.sensitivity, **options)
    return None


def their_losses(event, moves):
    """Return dp-accounting's losses of one use of an event; None where it has none of its own."""
    if isinstance(event, PoissonSampled):
        return their_noise(event.event, 1, event.rate, *([REPLACED] if moves == 2 else []))
    if isinstance(event, ApproximateDP):
        delta = event.delta * (1 if moves == 1 else 1 + math.exp(event.epsilon))
        budget = DifferentialPrivacyParameters(moves * event.epsilon, delta)
        return dp_pld.from_privacy_parameters(budget, value_discretization_interval=GRID)
    if isinstance(event, Joint):
        return reduce(dp_pld.PrivacyLossDistribution.compose, [their_losses(one, moves) for one in event.releases])
    if isinstance(event, DisjointCells):
        one = their_losses(event.event, 1)
        return one if moves == 1 else one.compose(dp_pld.PrivacyLossDistribution(one._pmf_add, one._pmf_remove))
    return their_noise(event, moves, 1.0)


def their_epsilon(charges, moves):
    """Return dp-accounting's epsilon of the worst choice of parts; None where an event has no losses of its own."""
    plain = [one if isinstance(one, Charge) else Charge(one) for one in charges]
    names = sorted({charge.split for charge in plain if charge.split})
    parts = [sorted({charge.part for charge in plain if charge.split == name}) for name in names]
    found = []
    for chosen in product(*parts):
        met = {"": "", **dict(zip(names, chosen, strict=True))}
        losses = []
        for charge in plain:
            if charge.part == met[charge.split]:
                event, count = charge.event, 1
                while isinstance(event, Repeated):
                    event, count = event.event, count * event.count
                one = their_losses(event, moves)
                if one is None:
                    return None
                losses.append(one.self_compose(count))
        found.append(reduce(dp_pld.PrivacyLossDistribution.compose, losses).get_epsilon_for_delta(DELTA))
    return max(found)


@pytest.mark.parametrize(("relation", "charges"), CASES, ids=str)
def test_dp_accounting_agrees(relation, charges):
    """Where it has no distribution of its own (joint releases of one batch, no guarantee), it has nothing to say."""
    theirs = their_epsilon(charges, 1 if relation is ADD else 2)
    kinds = set().union(*(kinds_in(one.event if isinstance(one, Charge) else one) for one in charges))
    is_without = {"PoissonSampled", "Joint"} <= kinds or bool({"NonPrivateRelease", "UnpricedChoice"} & kinds)
    assert (theirs is None) == is_without
    if theirs is not None:
        assert epsilon_of(charges, DELTA, relation) == pytest.approx(theirs, rel=WITHIN)


@pytest.mark.parametrize(("rate", "noise", "count"), [(0.02, 2.0, 500), (0.01, 0.8, 1000), (1.0, 8.0, 40)])
def test_renyi_divergences_never_cost_less(rate, noise, count):
    accountant = RdpAccountant()
    step = dp_accounting.GaussianDpEvent(noise)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, step) if rate < 1 else step, count)
    ours = epsilon_of([steps(rate, GaussianRelease(noise), count)], DELTA)
    assert ours <= accountant.get_epsilon(DELTA) <= 1.6 * ours
