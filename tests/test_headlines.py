"""What is said first about a request and its result: before spending, beside a verdict, and about misfits."""

import math
import re
import warnings

import numpy as np
import pytest

from fairveil import (
    DemographicParity,
    EqualizedOdds,
    FairClassifier,
    FalseNegativeRateCap,
    Ledger,
    Schema,
    SmallTableWarning,
    TruePositiveRateParity,
)
from fairveil.certificates import certify
from fairveil.data.datasets import dataset_schema
from fairveil.fairness.evaluation import Evaluation
from fairveil.fairness.rates import Attribute, Population
from fairveil.forecast import LIKELY, certification_chance, holdout_share, likely_tolerance
from fairveil.methods.registry import METHODS
from fairveil.report.headlines import extremes, other_gaps
from fairveil.summary import LARGE_GAP, _measured_rates, _outcome_cautions

SEX = Population((Attribute("sex", ("Female", "Male")),), ("<=50K", ">50K"))
NOT_MEASURED = {"value": None, "low": 0.0, "high": 1.0}


def sized(n_public: int) -> Schema:
    return dataset_schema("adult").model_copy(update={"n_public": n_public})


def request_of(n_public: int = 48842, tolerance: float = 0.02, **options):
    options = {"aware": True, "sensitive": "sex", "schema": sized(n_public), **options}
    return FairClassifier(DemographicParity(tolerance), **options).request()


# --- before anything is spent -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning")
def test_a_table_that_is_too_small_is_cautioned_before_the_debit(people):
    ledger = Ledger()
    clf = FairClassifier(DemographicParity(0.02), sensitive="sex", aware=True, schema=sized(750), ledger=ledger)
    few = people.X.head(750), people.y.head(750)
    with pytest.warns(SmallTableWarning, match="probably too small for what is requested: the chance") as told:
        clf.fit(*few)
    assert str(told[0].message) in clf.summary()["cautions"]
    assert told[0].filename == __file__
    refused = clf.set_params(ledger=Ledger())
    with warnings.catch_warnings():
        warnings.simplefilter("error", SmallTableWarning)
        with pytest.raises(SmallTableWarning):
            refused.fit(*few)
    assert not refused.ledger.entries  # nothing was spent when it was said


def test_a_request_that_probably_holds_is_not_cautioned():
    for request in (
        request_of(48842, 0.02),
        request_of(48842, 0.05),
        request_of(10**7, 0.01, sensitive="race", delta=1e-9),  # many groups are no reason if there are many people
        request_of(3000, 0.0),  # nothing can certify that, and it was not the question
        request_of(3000, 0.02, holdout=0.0),
    ):
        assert request.caution is None


@pytest.mark.parametrize(("n_public", "sensitive"), [(750, ["sex"]), (3000, ["sex"]), (48842, ["sex", "race"])])
def test_the_tolerance_that_is_proposed_is_not_cautioned(n_public, sensitive):
    request = request_of(n_public, 0.01, sensitive=sensitive)
    proposed = float(re.search(r"([0-9.]+) probably can be", request.caution)[1])
    caution = request_of(n_public, proposed, sensitive=sensitive, holdout=request.holdout).caution
    assert "By its public size" not in (caution or "")
    n_groups = math.prod(len(sized(9).sensitive_named(name).groups) for name in sensitive)
    assert proposed == likely_tolerance(request.holdout, n_public, n_groups, 1.0, 1e-5)


def test_explain_compares_what_can_be_certified_with_what_is_requested():
    clf = FairClassifier(DemographicParity(0.02), sensitive="sex", aware=True, schema=sized(750))
    assert "  caution    By its public size, the table is probably too small" in clf.explain()
    clf = FairClassifier(DemographicParity(0.05), sensitive="sex", aware=True, schema=sized(48842))
    assert "caution" not in clf.explain()


def test_chances_of_many_groups_do_not_vanish_where_there_are_many_people():
    assert certification_chance(0.05, 0.3, 10**7, 7) > LIKELY
    assert certification_chance(0.02, 0.3, 48842, 7) < 0.01
    assert holdout_share(0.05, 10**7, 7, 1.0, 1e-5) <= 0.15


# --- beside the verdict -----------------------------------------------------------------------------------------------


def counts_of(rates, size=4000):
    """Counts of two groups from P(selected | label), a quarter of each group positive."""
    table = np.zeros((3, 2, 2))
    for group, (negatives, positives) in enumerate(rates):
        for label, (share, rate) in enumerate(((0.75, negatives), (0.25, positives))):
            table[group, label] = size * share * (1 - rate), size * share * rate
    return table


def measured_of(rates, request=None, size=4000):
    return _measured_rates(Evaluation(counts_of(rates, size), 14.0, SEX), request or request_of(), 0.95)


@pytest.mark.parametrize("name", METHODS)
def test_a_constant_rule_is_said_whatever_the_method(name):
    method = METHODS[name]
    options = {"method": name, "protects": method.protects, "aware": method.reads_group}
    request = request_of(tolerance=0.05 if method.bounds_gap else 0.0, **options)
    facts = {"n_public": None, "sensitive": ["sex"], "holdout": 0.15}
    for rates, decision in ((((0, 0), (0, 0.01)), "<=50K"), (((1, 1), (0.995, 1)), ">50K")):
        measured = measured_of(rates, request)
        assert measured["most_common_decision"]["decision"] == decision
        assert measured["most_common_decision"]["is_nearly_everyone"]
        (sentence, *_) = _outcome_cautions(Evaluation(counts_of(rates), 14.0, SEX), measured, facts)
        assert f"decides '{decision}' for" in sentence and "hardly distinguishes anybody" in sentence
    measured = measured_of(((0.05, 0.6), (0.05, 0.6)), request)
    assert not measured["most_common_decision"]["is_nearly_everyone"]
    assert measured["best_constant"]["decision"] == "<=50K"
    assert measured["best_constant"]["value"] == pytest.approx(0.75)


def test_a_group_too_small_to_measure_does_not_silence_the_constant():
    counts = counts_of(((0, 0), (0, 0)))
    counts[0] = 0.0
    evaluation = Evaluation(counts, 14.0, SEX)
    assert evaluation.rates()["Female"].value is None
    assert _measured_rates(evaluation, request_of(), 0.95)["most_common_decision"]["is_nearly_everyone"]


def test_a_rule_that_is_certainly_worse_than_a_constant_is_said():
    facts, rates = {"n_public": None, "sensitive": ["sex"], "holdout": 0.15}, ((0.6, 0.7), (0.6, 0.7))
    (sentence,) = _outcome_cautions(Evaluation(counts_of(rates), 14.0, SEX), measured_of(rates), facts)
    assert (
        sentence.startswith("The rule is right for 47.5") and "'<=50K' for everyone would be right for 75.0" in sentence
    )


def test_large_gaps_that_nobody_bounded_are_named():
    rates = ((0.0675, 0.8), (0.17, 0.49))  # both are selected 25 % of the time
    measured = measured_of(rates)
    assert [(one["constraint"], one["is_large"]) for one in measured["gaps"]] == [
        ("demographic_parity", False),
        ("true_positive_rate_parity", True),
        ("false_positive_rate_parity", True),
        ("error_rate_parity", True),
    ]
    said = other_gaps(measured)[0]
    assert "true positive rates is 31.0" in said and "Female 80.0" in said and "Male 49.0" in said
    # what was bounded is not "other", and a larger tolerance accepts more
    bounded = FairClassifier(EqualizedOdds(0.02), sensitive="sex", aware=True, schema=sized(48842)).request()
    large = [one["constraint"] for one in measured_of(rates, bounded)["gaps"] if one["is_large"]]
    assert large == ["error_rate_parity"]
    loose = [one["constraint"] for one in measured_of(rates, request_of(tolerance=0.2))["gaps"] if one["is_large"]]
    assert loose == ["true_positive_rate_parity"]
    assert not other_gaps(measured_of(((0.05, 0.6), (0.05, 0.6 + LARGE_GAP))))  # not certainly larger


def test_the_two_groups_that_differ_most_are_named_in_words():
    pair = measured_of(((0.1, 0.5), (0.05, 0.4)))["worst_pair"]
    assert extremes(pair) == "selected most often: Female 20.0\xa0%; least often: Male 13.8\xa0%"
    odds = FairClassifier(TruePositiveRateParity(0.1), sensitive="sex", aware=True, schema=sized(48842)).request()
    words = extremes(measured_of(((0.1, 0.5), (0.05, 0.4)), odds)["worst_pair"])
    assert words == "highest true positive rate: Female 50.0\xa0%; lowest: Male 40.0\xa0%"
    cap = FairClassifier(FalseNegativeRateCap(0.6), sensitive="sex", aware=True, schema=sized(48842)).request()
    measured = measured_of(((0.1, 0.5), (0.05, 0.4)), cap)
    assert measured["worst_pair"] is None and measured["gap"]["value"] == pytest.approx(0.55)
    nobody = _measured_rates(Evaluation(np.zeros((3, 2, 2)), 14.0, SEX), request_of(), 0.95)
    assert (nobody["worst_pair"], nobody["gap"]) == (None, NOT_MEASURED)


def test_the_gap_that_is_shown_decides_as_the_certificate_does():
    for men in np.linspace(0.4, 0.7, 31):
        rates = ((0.1, 0.55), (0.1, float(men)))
        evaluation = Evaluation(counts_of(rates), 14.0, SEX)
        gap, verdict = measured_of(rates)["gap"], certify(evaluation, DemographicParity(0.02)).verdict
        assert (gap["high"] <= 0.02) == (verdict == "holds")
        assert (gap["low"] > 0.02) == (verdict == "does not hold")
        if verdict not in {"holds", "does not hold"}:
            assert (gap["value"] > 0.02) == (verdict == "measured above the tolerance")


# --- people who do not fit the schema ---------------------------------------------------------------------------------


def cautions_of(counts, n_public=None):
    evaluation = Evaluation(counts, 14.0, SEX)
    facts = {"n_public": n_public, "sensitive": ["sex"], "holdout": 0.2}
    return _outcome_cautions(evaluation, _measured_rates(evaluation, request_of(), 0.95), facts)


def test_people_of_no_known_group_are_cautioned_from_noisy_counts():
    counts = counts_of(((0.1, 0.6), (0.1, 0.6)))
    assert cautions_of(counts) == []
    counts[2] = counts[0] / 8  # about one in seventeen
    assert cautions_of(counts) == []
    counts[2] = counts[0] + counts[1]
    (sentence,) = cautions_of(counts)
    assert sentence.startswith("About 50\xa0% of the people held out belong to no group of sex")
    assert "fairveil check" in sentence


def test_rows_that_do_not_count_are_cautioned_where_the_size_is_public():
    counts = counts_of(((0.1, 0.6), (0.1, 0.6)))  # 8,000 held out
    assert cautions_of(counts, 40_000) == cautions_of(counts, 44_000) == []
    (sentence,) = cautions_of(counts, 100_000)
    assert sentence.startswith("Only about 8,000 of about 20,000 expected held-out rows counted")
