import json
import math
import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairveil import FairClassifier, Ledger
from fairveil.certificates import Certificate, certify, expected_tolerance
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import DemographicParity, EqualizedOdds, FalseNegativeRateCap
from fairveil.fairness.evaluation import Evaluation, Verdict
from fairveil.fairness.rates import Attribute, Population
from fairveil.fairness.rule_parser import Rule

SEX = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))


def selected(women, men, size=1000.0, noise_variance=9.0):
    """Held-out people of whom these shares of women and men are selected, half of each positive."""
    tables = [[[size * (1 - share) / 2, size * share / 2]] * 2 for share in (women, men)]
    return Evaluation(np.array([*tables, [[0.0, 0.0], [0.0, 0.0]]]), noise_variance, SEX)


@pytest.mark.parametrize(
    ("women", "tolerance", "verdict"),
    [
        (0.5, 0.1, "holds"),
        (0.3, 0.1, "does not hold"),
        (0.45, 0.06, "not enough data"),
        (0.45, 0.04, "measured above the tolerance"),
    ],
)
def test_verdicts_are_read_off_the_interval_that_is_shown(women, tolerance, verdict):
    """The ends of each interval are the limits that decide: "0 to 2.1, at most 2.0, holds" cannot occur."""
    evaluation = selected(women, 0.5)
    found = certify(evaluation, DemographicParity(tolerance))
    assert (found.verdict, found.n_rows, found.confidence) == (verdict, 2000, 0.95)
    assert found.smallest_tolerance == max(claim.high for claim in found.claims) == evaluation.gap().high
    for claim, one in zip(found.claims, evaluation.bounds(DemographicParity(tolerance)), strict=True):
        assert claim.low < claim.value < claim.upper == claim.high
        assert (claim.low, claim.high, claim.verdict) == (one.left.low, one.left.high, one.verdict)
        assert (claim.verdict == "holds") == (claim.high <= claim.limit)
        assert (claim.verdict == "does not hold") == (claim.low > claim.limit)


@pytest.mark.parametrize("share", np.linspace(0.40, 0.5, 41).round(4).tolist())
def test_no_sentence_contradicts_its_verdict_by_rounding(share):
    """Limits are rounded outward: what is printed is above the limit exactly where the verdict is not "holds"."""
    found = certify(selected(share, 0.5), DemographicParity(0.05))
    most = re.search(r"(?:at most|up to) ([0-9.]+)\spoints", found.sentence)
    if found.verdict is Verdict.BROKEN:
        assert float(re.search(r"at least ([0-9.]+)\spoints", found.sentence)[1]) >= 5
    else:
        assert (float(most[1]) <= 5) == (found.verdict is Verdict.HOLDS)


def test_the_sentence_names_groups_and_rates_not_code():
    found = certify(selected(0.45, 0.5), DemographicParity(0.045))
    assert (
        "the selection rate of m (50.0\xa0%) minus that of f (45.0\xa0%) was measured at 5.00\xa0points"
        in found.sentence
    )
    assert "[" not in found.sentence and "<=" not in found.sentence
    assert [claim.words.split(" (")[0] for claim in found.claims] == [
        "the selection rate of f",
        "the selection rate of m",
    ]
    rest = certify(selected(0.45, 0.5), DemographicParity(0.1, against="rest")).claims[0]
    assert rest.words == "the selection rate of f (45.0\xa0%) minus that of everyone but f (50.0\xa0%)"
    rule = certify(selected(0.45, 0.5), Rule("0.8 * selection_rate[sex=m] - selection_rate[sex=f] <= 0"))
    assert rule.claims[0].words == "" and "0.8 * selection_rate[sex=m] - selection_rate[sex=f]" in rule.sentence


def test_a_certificate_without_words_is_still_read():
    """Model folders of earlier versions have claims without words."""
    found = certify(selected(0.45, 0.5), DemographicParity(0.045))
    facts = found.to_dict()
    for claim in facts["claims"]:
        del claim["words"]
    assert "selection_rate[sex=m] - selection_rate[sex=f]" in Certificate.from_dict(facts).sentence


def test_without_bounds_nothing_is_claimed():
    found = certify(selected(0.5, 0.5), ())
    assert (found.verdict, found.claims, found.smallest_tolerance) == (Verdict.NOT_REQUESTED, (), None)
    assert "No bound was requested" in found.sentence


def test_the_smallest_tolerance_is_where_the_verdict_turns():
    evaluation = selected(0.47, 0.5)
    smallest = certify(evaluation, DemographicParity(0.5)).smallest_tolerance
    assert certify(evaluation, DemographicParity(smallest + 1e-9)).verdict == "holds"
    assert certify(evaluation, DemographicParity(smallest - 1e-9)).verdict != "holds"


def test_too_few_people_are_unknown_and_nothing_is_claimed_of_them():
    counts = selected(0.5, 0.5).counts
    counts[0] = 2.0
    found = certify(Evaluation(counts, 9.0, SEX), DemographicParity(0.2))
    assert (found.verdict, found.smallest_tolerance, found.rows_needed) == ("not enough data", 1.0, None)
    assert {claim.value for claim in found.claims} == {None}
    assert "too few people" in found.sentence


def test_nobody_at_all_is_not_enough():
    found = certify(Evaluation(np.full((3, 2, 2), -3.0), 9.0, SEX), EqualizedOdds(0.2))
    assert (found.verdict, found.n_rows) == ("not enough data", 0)


def test_as_many_rows_as_are_stated_would_do():
    small = certify(selected(0.48, 0.5), DemographicParity(0.04))
    times = small.rows_needed / small.n_rows
    assert small.verdict == "not enough data"
    assert certify(selected(0.48, 0.5, 1000 * times * 1.001), DemographicParity(0.04)).verdict == "holds"
    assert certify(selected(0.48, 0.5, 1000 * times * 0.99), DemographicParity(0.04)).verdict != "holds"
    assert f"{small.rows_needed:,} held-out rows" in small.sentence


def test_more_rows_do_not_help_above_the_limit():
    found = certify(selected(0.45, 0.5), DemographicParity(0.045))
    assert (found.verdict, found.rows_needed) == ("measured above the tolerance", None)
    assert "measured above its limit, but not certainly" in found.sentence


def test_one_broken_bound_among_many_is_named():
    found = certify(selected(0.3, 0.5), [DemographicParity(0.05), FalseNegativeRateCap(0.99), Rule("accuracy >= 0.2")])
    assert found.verdict == "does not hold"
    assert "the selection rate of m (50.0\xa0%) minus that of f (30.0\xa0%) was measured at 20.00" in found.sentence
    assert [claim.verdict for claim in found.claims[2:]] == ["holds", "holds"]


@given(st.lists(st.integers(-20, 3000), min_size=12, max_size=12), st.sampled_from([0.0, 4.0, 100.0]))
def test_certificates_survive_json_and_are_consistent(counts, variance):
    evaluation = Evaluation(np.array(counts, dtype=float).reshape(3, 2, 2), variance, SEX)
    found = certify(evaluation, [EqualizedOdds(0.1), FalseNegativeRateCap(0.3, each_group=True)], 0.9)
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert Certificate.from_dict(json.loads(text)) == found
    for claim in found.claims:
        assert claim.value is None or claim.low <= claim.value <= claim.upper == claim.high
    assert (found.verdict == "holds") == all(claim.upper <= claim.limit for claim in found.claims)


@given(st.permutations([0, 1]), st.integers(0, 1000), st.integers(0, 1000))
def test_renaming_groups_changes_nothing(order, women, men):
    counts = selected(women / 1000, men / 1000).counts
    moved = counts[[*order, 2]]
    one, other = (certify(Evaluation(table, 9.0, SEX), DemographicParity(0.05)) for table in (counts, moved))
    assert one.smallest_tolerance == pytest.approx(other.smallest_tolerance, abs=1e-12)
    assert one.verdict == other.verdict


def test_more_confidence_promises_less():
    found = [certify(selected(0.5, 0.5), DemographicParity(0.1), c).smallest_tolerance for c in (0.5, 0.9, 0.99)]
    assert found == sorted(found)


@pytest.mark.parametrize("confidence", [0.4, 1.0, float("nan"), "high"])
def test_confidence_is_checked(confidence):
    with pytest.raises(InvalidParameterError, match=r"0\.5 <= confidence < 1"):
        certify(selected(0.5, 0.5), DemographicParity(0.1), confidence)
    with pytest.raises(InvalidParameterError, match=r"0\.5 <= confidence < 1"):
        expected_tolerance([500, 500], 1.0, 0.01, confidence)


def test_what_is_expected_of_adult():
    halves, fifths = [7326 / 2] * 2, [7326 / 5] * 5
    assert 0.027 < expected_tolerance(halves, 3.7, aimed_gap=0.01) < 0.032
    assert expected_tolerance(halves, 3.7, aimed_gap=0.016) < 0.037
    assert expected_tolerance(fifths, 3.7, 0.01) > expected_tolerance(halves, 3.7, 0.01)


def test_what_is_expected_is_what_is_certified_at_the_aimed_gap():
    """At rates about one half, the worst, and the aimed gap measured exactly, both say the same."""
    found = certify(selected(0.495, 0.505, 3663.0, 3.7**2), DemographicParity(0.5))
    assert found.smallest_tolerance == pytest.approx(expected_tolerance([3663, 3663], 3.7, 0.01), abs=1e-9)


def test_tiny_groups_promise_nothing_beforehand():
    assert expected_tolerance([20, 5000], 10.0, 0.01) == 1.0
    with pytest.raises(InvalidParameterError, match="sizes of two groups"):
        expected_tolerance([100], 1.0, 0.01)
    with pytest.raises(InvalidParameterError, match="noise_std"):
        expected_tolerance([50, 50], -1.0, 0.01)


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(NUMBERS, min_size=2, max_size=4), NUMBERS.filter(lambda std: not std < 0), NUMBERS)
def test_no_public_numbers_keep_a_prediction_from_being_made(sizes, noise_std, aimed_gap):
    """It is computed again after the ledger is debited, so that it must not refuse then."""
    assert 0 <= expected_tolerance(sizes, noise_std, aimed_gap) <= 1


def test_a_prediction_for_hardly_any_people_is_one():
    assert expected_tolerance([0.3, 0.3], 3.7, 1.03) == 1.0
    assert expected_tolerance([math.nan, 5000], 3.7, 0.01) == 1.0
    assert expected_tolerance([5000, 5000], math.inf, 0.01) == 1.0
    assert expected_tolerance([math.inf, math.inf], 0.0, 0.01) == pytest.approx(0.01, abs=1e-6)


def fit_few(rng, n_public=60, holdout=0.15):
    """Return a classifier fitted to sixty people, and their labels and columns."""
    columns = {"sex": {"type": "category", "categories": ["f", "m"]}, "age": {"type": "number", "bounds": [0, 100]}}
    schema = Schema(
        name="people", columns=columns, sensitive=[{"column": "sex", "groups": ["f", "m"]}],
        target={"column": "hired", "classes": ["no", "yes"], "positive": "yes"}, n_public=n_public,
    )  # fmt: skip
    people = pd.DataFrame({"sex": rng.choice(["f", "m"], 60), "age": rng.uniform(0, 100, 60)})
    labels = rng.choice(["no", "yes"], 60)
    clf = FairClassifier(
        DemographicParity(0.1), 1.0, 1e-5, aware=True, method="dp2dp", schema=schema, ledger=Ledger(), holdout=holdout
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clf.fit(people, labels), people, labels


@pytest.mark.parametrize("changes", [{"n_public": 4}, {"holdout": 0.0001}])
def test_a_fit_of_few_announced_people_is_summarized(changes, rng):
    """Its forecast promises nothing; it used to be refused after the ledger was debited."""
    assert fit_few(rng, **changes)[0].summary()["expected_tolerance"] == 1.0


def test_what_cannot_be_certified_is_refused_before_the_debit(rng):
    clf, people, labels = fit_few(rng)
    clf._request = replace(clf._request, constraints=(Rule("selection_rate[sex=x] <= 0.1"),))
    ledger = Ledger()
    with pytest.raises(InvalidParameterError, match="group of 'sex'"):
        clf.certify(people, labels, 1.0, ledger=ledger)
    assert not ledger.entries
