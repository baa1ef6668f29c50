"""How many people to hold out, from public numbers: the chance of a certificate, and what it costs."""

import math

import numpy as np
import pytest

from fairveil import (
    DemographicParity,
    Descent,
    EqualizedOdds,
    FairClassifier,
    FalseNegativeRateCap,
    ParityTraining,
    TorchModel,
    load_dataset,
)
from fairveil.certificates import certify
from fairveil.data.datasets import dataset_schema
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.fairness.evaluation import Evaluation
from fairveil.fairness.rates import Attribute, Population
from fairveil.forecast import (
    DEFAULT_SHARE,
    FAIR_SIGNAL,
    POOR_SIGNAL,
    SHARES,
    certification_chance,
    headroom_for,
    holdout_share,
    learning_signal,
    people_to_learn,
)

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


# --- what so few people teach a model ---------------------------------------------------------------------------------

OFTEN, ABOUT_HALF = "often no better than always giving the most frequent answer", "expect to lose about half"


def weak(n_public, **options):
    options = {"tolerance": 0.0, "holdout": 0.0, **options}
    return request(DemographicParity(options.pop("tolerance")), n_public, **options).caution


def test_the_signal_follows_people_epsilon_and_parameters():
    assert learning_signal(2000, 400, 0.5) == pytest.approx(50)
    assert learning_signal(4000, 400, 0.5) == learning_signal(2000, 400, 1.0) == learning_signal(2000, 100, 0.5)


@pytest.mark.parametrize("signal", [POOR_SIGNAL, FAIR_SIGNAL])
@pytest.mark.parametrize(("n_params", "epsilon", "holdout"), [(2, 10.0, 0.0), (225, 1.0, 0.15), (90_000, 0.01, 0.5)])
def test_so_many_people_as_are_named_are_enough_and_hardly_more(signal, n_params, epsilon, holdout):
    n_people = people_to_learn(signal, n_params, epsilon, holdout)
    found = learning_signal((1 - holdout) * n_people, n_params, epsilon)
    assert signal * (1 - 1e-9) <= found
    assert learning_signal((1 - holdout) * (n_people - max(1, 0.1 * n_people)), n_params, epsilon) < signal


def test_a_request_says_what_so_few_people_teach_a_model():
    poor, half, enough = (weak(n_public) for n_public in (500, 1000, 2000))
    assert poor.startswith("With 500 people at epsilon 1 and this schema, ") and OFTEN in poor and "is rare" in poor
    assert half.startswith("With 1,000 people at epsilon 1 and this schema, ") and ABOUT_HALF in half
    assert "is rare" in half and enough is None
    for sentence, other in ((poor, half), (half, None)):
        named = int(sentence.split("About ")[1].split(" people")[0].replace(",", ""))
        found = weak(named)
        assert found is None if other is None else ABOUT_HALF in found  # what is named is enough
    assert OFTEN in weak(1000, holdout=0.5)  # whoever is held out teaches nothing


def test_the_sentence_stands_after_the_one_on_certificates():
    both = weak(500, tolerance=0.02, holdout=0.15)
    assert both.startswith("By its public size") and OFTEN in both


@pytest.mark.parametrize(
    "options",
    [
        {"method": "dpsgd", "constraint": DemographicParity()},
        {"method": "pfld", "constraint": DemographicParity(), "protects": "attribute", "aware": False},
        {"epsilon": math.inf},
        {"training": ParityTraining(base=Descent(TorchModel(input_shape=(4,), n_classes=2, n_params=10)))},
        {"schema": dataset_schema("adult").model_copy(update={"n_public": None})},
    ],
    ids=["no bound", "attribute", "not private", "torch", "no size"],
)
def test_what_was_not_measured_is_not_predicted(options):
    few = dataset_schema("adult").model_copy(update={"n_public": 200})
    usual = {"constraint": DemographicParity(), "epsilon": 1.0, "sensitive": "sex", "aware": True, "schema": few}
    assert OFTEN in FairClassifier(**usual).request().caution
    assert FairClassifier(**usual | options).request().caution is None


def test_scaled_numbers_alone_are_not_predicted():
    schema = Schema.for_arrays(20, classes=["0", "1"], bounds=(-1, 1), n_public=200)
    clf = FairClassifier(FalseNegativeRateCap(0.3), 1.0, sensitive=[], aware=True, schema=schema, method="raco")
    assert clf.request().caution is None
