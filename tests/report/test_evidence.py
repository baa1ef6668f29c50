"""The evidence section of a report: what it shows, that unknown stays unknown, and how it looks in a real browser."""

import math

import pytest

from fairveil import DemographicParity, Descent, FairClassifier, Ledger, load_dataset, report_page
from fairveil.report.evidence_text import BUDGET_CAPTION, IMPACT_LIMITS

pytestmark = pytest.mark.filterwarnings("ignore::fairveil.ToleranceNotMetWarning")
KNOWN = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent.trim())"


@pytest.fixture(scope="module")
def people():
    return load_dataset("adult")


@pytest.fixture(scope="module")
def summary(people):
    clf = FairClassifier(
        DemographicParity(0.1), sensitive=["race", "sex"], aware=True, schema=people.schema, ledger=Ledger(),
        training=Descent(n_steps=20),
    )  # fmt: skip
    return clf.fit(people.X, people.y).summary(owner="Ann", purpose="testing", model_digest="ab" * 32)


def test_a_summary_from_python_states_where_it_comes_from(people, summary):
    origin = summary["provenance"]
    assert (origin["owner"], origin["purpose"], summary["model_digest"]) == ("Ann", "testing", "ab" * 32)
    assert set(origin["inputs"]) == {*people.schema.columns, "race", "sex"}
    assert origin["data_reference"] is None  # a table in memory is no file
    schema = origin["schema"]
    assert schema["sha256"] == people.schema.fingerprint() and schema["n_public"] == people.schema.n_public
    assert [one["column"] for one in schema["columns"]] == list(people.schema.columns)
    declared = {one["column"]: one["declared"] for one in schema["columns"]}
    assert declared["age"] == "number from 15 to 100, in 16 bins" and declared["workclass"] == "one of 8 categories"
    assert schema["approval"]["sentence"] == "No approval is recorded in the schema."


def test_decisions_that_do_not_read_the_group_do_not_list_it(people):
    schema = people.schema.without("sex", "race")
    for aware, expected in ((True, {*schema.columns, "sex"}), (False, set(schema.columns))):
        clf = FairClassifier(
            DemographicParity(0.1), sensitive="sex", aware=aware, schema=schema, ledger=Ledger(), epsilon=math.inf,
            training=Descent(n_steps=2),
        )  # fmt: skip
        groups = people.X["sex"]
        clf.fit(people.X.head(3000), people.y.head(3000), sensitive_features=groups.head(3000))
        assert set(clf.summary()["provenance"]["inputs"]) == expected


def test_impact_ratios_come_from_the_counts_of_the_certificate(summary):
    by = [table["by"] for table in summary["impact_ratios"]]
    assert by == [["race"], ["sex"], ["race", "sex"]]
    both = summary["impact_ratios"][2]["categories"]
    assert [row["category"] for row in both] == [group["group"] for group in summary["groups"]]
    for row, group in zip(both, summary["groups"], strict=True):
        assert row["selection_rate"] == group["rates"]["selection_rate"] and row["size"] == group["size"]
    known = [row["impact_ratio"]["value"] for row in both if row["impact_ratio"]["value"] is not None]
    assert max(known) == 1.0 and min(known) == pytest.approx(summary["ratio"]["value"])
    small = {row["category"]: row["under_two_percent"] for row in summary["impact_ratios"][0]["categories"]}
    assert small["White"] == small["Black"] == "no" and small["Other"] == "yes"  # 0.8 % of Adult
    (note,) = [note for note in summary["impact_ratios"][0]["notes"] if "may leave out" in note]
    assert "Other" in note and "White" not in note


def test_unknown_groups_are_counted_and_their_worst_case_is_said(people):
    X = people.X.head(20_000).copy()
    X["sex"] = X["sex"].astype(object).mask(X.index % 10 == 0, "?")
    clf = FairClassifier(
        DemographicParity(0.1), sensitive="sex", aware=True, schema=people.schema, ledger=Ledger(), holdout=0.3,
        training=Descent(n_steps=20),
    )  # fmt: skip
    summary = clf.fit(X, people.y.head(20_000)).summary()
    unknown = summary["unknown_groups"]
    assert unknown["share"]["low"] <= 0.1 <= unknown["share"]["high"]
    assert unknown["worst_gap"]["value"] > summary["gap"]["value"]
    assert "belong to no known group" in unknown["sentences"][0] and "instead of" in unknown["sentences"][1]
    assert unknown["sentences"][1] in report_page(summary)


def test_without_held_out_rows_nothing_is_claimed(people):
    clf = FairClassifier(
        sensitive="sex", aware=True, schema=people.schema, ledger=Ledger(), holdout=0.0, training=Descent(n_steps=5),
    )  # fmt: skip
    summary = clf.fit(people.X.head(3000), people.y.head(3000)).summary()
    assert (summary["impact_ratios"], summary["unknown_groups"]) == ([], None)
    page = report_page(summary)
    assert "No groups were measured." in page and 'id="evidence"' in page


def test_summaries_of_earlier_versions_are_still_drawn(made):
    old = made.usual()
    for name in ("provenance", "impact_ratios", "unknown_groups", "model_digest"):
        del old[name]
    page = report_page(old)
    assert 'id="evidence"' not in page and 'id="budget"' in page


def test_no_threshold_is_claimed_for_impact_ratios(made):
    page = report_page(made.usual())
    section = page[page.index('id="evidence"') : page.index('id="limits"')]
    assert IMPACT_LIMITS[0] in section.replace("&#39;", "'") and "sets no threshold" in section
    assert "four-fifths" not in section.lower() and "0.8 " not in section


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "light"), (1200, "dark")])
def test_the_evidence_is_drawn_as_it_is(open_page, picture, summary, width, scheme):
    browser = open_page(report_page(summary), width, scheme)
    picture(browser, f"evidence-{width}-{scheme}")
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    bars = browser.execute_script(
        "return [...document.querySelectorAll('#budget .mark')].map((one) => [one.dataset.group, "
        "Number(one.dataset.value), one.querySelector('.bar').getBoundingClientRect().width])"
    )
    assert [(name, value) for name, value, _ in bars] == [(part["part"], part["epsilon"]) for part in summary["plan"]]
    widths = [width / value for _, value, width in bars]
    assert max(widths) == pytest.approx(min(widths), rel=0.02)  # lengths are in proportion
    rule = browser.execute_script("return Number(document.querySelector('#budget .rule').dataset.value)")
    assert rule == summary["epsilon_spent"]
    (identities,) = browser.execute_script(KNOWN, "#identities")
    assert "ab" * 32 in identities and "Ann" in identities and summary["ledger"]["head"]["chain"] in identities
    rows = browser.execute_script(KNOWN, "table.impact tbody tr th")
    names = [row["category"] for table in summary["impact_ratios"] for row in table["categories"]]
    assert rows == [*names, "Unknown category"]
    assert BUDGET_CAPTION in " ".join(browser.execute_script(KNOWN, "#privacy .note"))
