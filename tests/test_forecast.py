"""How many people to hold out, from public numbers: the chance of a certificate, and what it costs."""

import math

import numpy as np
import pytest

from fairveil import DemographicParity, EqualizedOdds, FairClassifier, FalseNegativeRateCap, load_dataset
from fairveil.certificates import certify
from fairveil.errors import InvalidParameterError
from fairveil.fairness.evaluation import Evaluation
from fairveil.fairness.rates import Attribute, Population
from fairveil.forecast import DEFAULT_SHARE, SHARES, certification_chance, headroom_for, holdout_share

PEOPLE = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))


def request(constraint, n_public=48_842, **options):
    schema = load_dataset("adult").schema.model_copy(update={"n_public": n_public})
    return FairClassifier(constraint, 1.0, 1e-5, "sex", True, schema=schema, **options).request()


@pytest.mark.parametrize(("tolerance", "share"), [(0.02, 0.4), (0.03, 0.3), (0.05, 0.15)])
def test_the_chance_is_what_a_simulation_of_both_samples_shows(rng, tolerance, share):
    """Equal groups selected half the time, a rule whose error is that of the people it was fitted to: within .05."""
    n_rows, n_runs = 48_842, 1500
    held, trained = share * n_rows / 2, (1 - share) * n_rows / 2
    aim = max(0.0, tolerance - headroom_for(share) * math.sqrt(1 / (2 * trained)))
    found = 0
    for _ in range(n_runs):
        gap = aim + rng.normal() * math.sqrt(1 / (2 * trained))
        chosen = rng.binomial(round(held), [0.5 + gap / 2, 0.5 - gap / 2])
        counts = np.zeros((3, 2, 2))
        for group, number in enumerate(chosen):
            counts[group] = [[(held - number) / 2, number / 2]] * 2
        found += str(certify(Evaluation(counts, 0.0, PEOPLE), DemographicParity(tolerance)).verdict) == "holds"
    assert found / n_runs == pytest.approx(certification_chance(tolerance, share, n_rows, 2), abs=0.05)


def test_more_people_and_looser_bounds_never_lower_the_chance():
    for share in SHARES:
        by_size = [certification_chance(0.03, share, n_rows, 2, 4.0) for n_rows in (1e3, 1e4, 1e5, 1e6)]
        by_tolerance = [certification_chance(t, share, 20_000, 2, 4.0) for t in (0.01, 0.02, 0.05, 0.1)]
        assert by_size == sorted(by_size) and by_tolerance == sorted(by_tolerance)


def test_shares_follow_from_public_facts():
    assert holdout_share(0.02, 48_842, 2, 1.0, 1e-5) > holdout_share(0.05, 48_842, 2, 1.0, 1e-5)
    assert holdout_share(0.05, 48_842, 5, 1.0, 1e-5) > holdout_share(0.05, 48_842, 2, 1.0, 1e-5)
    assert holdout_share(0.02, 750, 2, 1.0, 1e-5) == DEFAULT_SHARE  # nothing can be shown with so few
    assert holdout_share(0.1, 48_842, 2, math.inf, 1e-5) == SHARES[0]


def test_the_front_door_chooses_the_share_and_says_so():
    strict, loose = request(DemographicParity(0.02)), request(DemographicParity(0.1))
    assert (strict.holdout, loose.holdout) == (0.5, 0.1)
    assert request(EqualizedOdds(0.05)).holdout > request(DemographicParity(0.05)).holdout  # rates of fewer people
    assert request(FalseNegativeRateCap(0.3)).holdout == DEFAULT_SHARE
    assert request(DemographicParity(0.02), n_public=None).holdout == DEFAULT_SHARE
    assert request(DemographicParity(0.02), holdout=0.2).holdout == 0.2


@pytest.mark.parametrize("holdout", ["always", 1.0, -0.1, True, None, math.nan])
def test_other_shares_are_refused(holdout):
    with pytest.raises(InvalidParameterError, match="holdout"):
        request(DemographicParity(0.02), holdout=holdout)
