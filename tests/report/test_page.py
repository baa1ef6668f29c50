"""The report of a training: what it shows is what the summary says."""

import math

import numpy as np
import pytest
from selenium.common.exceptions import NoAlertPresentException
from selenium.webdriver import ActionChains, Keys

from fairveil.errors import BadStructureError, InvalidParameterError
from fairveil.report.page import report_page
from fairveil.report.privacy_text import neighbor_wording, privacy_promise

RATES = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
MARKS = """
return [...document.querySelectorAll(`[data-rate="${arguments[0]}"] .mark`)].map((one) => ({
  group: one.dataset.group, value: one.dataset.value, low: one.dataset.low, high: one.dataset.high,
  drawn: one.querySelectorAll('.dot').length}))
"""
VALUES = """
return [...document.querySelectorAll(arguments[0])].map((one) =>
  [...one.querySelectorAll('data')].map((number) => Number(number.value)))
"""
INSIDE = """
const counts = {};
for (const one of document.querySelectorAll('*')) {
  if (one.localName !== 'text') { counts[one.localName] = (counts[one.localName] || 0) + 1; }
}
return counts
"""
EMBEDDED = "return JSON.parse(document.getElementById(arguments[0]).textContent)"


def number(text):
    return None if text == "" else float(text)


def text_of(browser, selector):
    return browser.execute_script("return document.querySelector(arguments[0]).textContent", selector)


def as_shown(name):
    """What a browser makes of the one character that no page can hold."""
    return name.replace("\x00", "\ufffd")


@pytest.mark.parametrize("kind", ["usual", "many"])
def test_every_mark_is_a_group_with_the_values_of_the_summary(open_page, made, kind):
    summary = getattr(made, kind)()
    browser = open_page(report_page(summary))
    for rate in RATES:
        marks = browser.execute_script(MARKS, rate)
        assert [one["group"] for one in marks] == [group["group"] for group in summary["groups"]]
        for mark, group in zip(marks, summary["groups"], strict=True):
            interval = group["rates"][rate]
            assert {key: number(mark[key]) for key in ("value", "low", "high")} == interval
            assert mark["drawn"] == (interval["value"] is not None)


@pytest.mark.parametrize("kind", ["usual", "many"])
def test_every_number_of_the_tables_is_in_the_summary(open_page, made, kind):
    summary = getattr(made, kind)()
    browser = open_page(report_page(summary))
    expected = []
    for group in summary["groups"]:
        known = [group["rates"][rate] for rate in RATES if group["rates"][rate]["value"] is not None]
        expected.append([group["size"], *(one[key] for one in known for key in ("value", "low", "high"))])
    assert browser.execute_script(VALUES, "#group-table tbody tr") == expected
    claims = {
        claim["bound"]: [
            claim[key] for key in ("limit", "value", "low", "high", "rows_needed") if claim[key] is not None
        ]
        for claim in summary["certificate"]["claims"]
    }
    names = browser.execute_script("return [...document.querySelectorAll('.claim')].map((one) => one.dataset.bound)")
    assert dict(zip(names, browser.execute_script(VALUES, ".claim"), strict=True)) == claims


def test_cards_certificate_and_ledger_show_the_values_of_the_summary(open_page, made):
    summary = made.usual()
    browser = open_page(report_page(summary))
    accuracy, gap, ledger = summary["accuracy"], summary["gap"], summary["ledger"]
    expected = {
        "#card-accuracy": [
            accuracy["value"],
            accuracy["low"],
            accuracy["high"],
            summary["best_constant"]["value"],
            *summary["roc_auc"].values(),
        ],
        "#card-gap": [gap["value"], gap["low"], gap["high"], summary["tolerance"]],
        "#card-privacy": [summary["epsilon_spent"], summary["epsilon_spent_total"], summary["delta"]],
        "#ever-spent": [summary["epsilon_spent_total"]],
        "#smallest": [summary["certificate"]["smallest_tolerance"]],
        "#expected": [summary["expected_tolerance"]],
        "#spent": [summary["epsilon_spent"]],
        "#spent-replace": [summary["epsilon_replace_one"]],
        "#total": [ledger["epsilon_spent_total"]],
        "#total-replace": [ledger["epsilon_spent_total_replace_one"]],
        "#ledger .entry": [ledger["entries"][0]["epsilon"], ledger["entries"][0]["delta"]],
        "#ledger .total": [ledger["epsilon_spent_total"], ledger["delta"]],
    }
    for selector, values in expected.items():
        assert browser.execute_script(VALUES, selector) == [values], selector
    ends = [[one["worst_pair"][end]["value"] for end in ("highest", "lowest")] for one in summary["gaps"]]
    gaps = [[one["value"], one["low"], one["high"], *pair] for one, pair in zip(summary["gaps"], ends, strict=True)]
    assert browser.execute_script(VALUES, "#gap-table tbody tr") == gaps
    for part, row in zip(summary["plan"], browser.execute_script(VALUES, "#plan tbody tr"), strict=True):
        noise = [release["noise_multiplier"] for release in part["releases"]]
        assert row == [
            part["share"],
            *part["sampling_rates"].values(),
            part["n_steps"],
            *noise,
            part["epsilon"],
        ]


def test_a_green_badge_never_stands_alone_on_a_constant_rule(open_page, made):
    """A rule that decides the same for nearly everyone says so beside its verdict, and beside its accuracy."""
    summary = made.usual()
    summary["certificate"]["verdict"] = "holds"
    assert not open_page(report_page(summary)).execute_script("return document.querySelectorAll('.verdict.bad').length")
    summary["most_common_decision"] |= {"decision": "yes", "value": 0.996, "is_nearly_everyone": True}
    browser = open_page(report_page(summary))
    for place, words in (
        ("#card-gap", "nearly constant rule"),
        ("#card-accuracy", "yes for 99.6\xa0% of people"),
        ("#certificate .lead", "nearly constant rule"),
    ):
        badges = browser.execute_script(
            "return [...document.querySelectorAll(arguments[0] + ' .verdict.bad')].map(x => x.innerText)", place
        )
        assert [words in badge for badge in badges] == [True], place
    assert "it hardly distinguishes anybody" in browser.execute_script(
        "return document.querySelector('.prose').innerText"
    )


def test_ever_spent_is_as_large_as_this_training(open_page, made):
    browser = open_page(report_page(made.usual() | {"epsilon_spent_total": 3.4}))
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('#card-privacy .big')].map(x => getComputedStyle(x).fontSize)"
    )
    assert len(sizes) == 2 and len(set(sizes)) == 1
    assert "3.40" in browser.execute_script("return document.querySelector('#ever-spent').innerText")


def test_the_two_groups_that_differ_most_are_named_in_words(open_page, made):
    browser = open_page(report_page(made.usual()))
    words = "selected most often: male 16.5\xa0%; least often: female 15.1\xa0%"
    for place in ("#card-gap", "#overview .prose", "#groups"):
        said = browser.execute_script("return document.querySelector(arguments[0]).innerText", place)
        assert words in said.lower(), place
    said = browser.execute_script("return document.querySelector('#other-gaps').innerText")
    assert "The largest difference in true positive rates is 31.1" in said and "Female 80.1" in said
    assert "error rates" not in said  # not certainly large


def test_many_claims_can_be_opened_and_do_not_stand_first(open_page, made):
    browser = open_page(report_page(made.many()))
    shown = "return [...document.querySelectorAll('.claim')].filter(x => !x.closest('details')).length"
    assert browser.execute_script(shown) == 4
    assert browser.execute_script("return document.querySelectorAll('.claim').length") == 18 * 17


def test_the_tile_never_contradicts_its_badge_by_rounding(made):
    """An upper limit just above the tolerance is not printed as the tolerance."""
    page = report_page(made.usual() | {"gap": {"value": 0.0136, "low": 0.00499, "high": 0.020004}})
    tile = page[page.index('id="card-gap"') : page.index('id="card-privacy"')]
    assert ">2.01<" in tile and ">0.49<" in tile and ">2.00</data></p>" in tile


def test_the_first_words_say_whether_decisions_read_the_sensitive_column(open_page, made):
    for aware, words in ((True, "Decisions read sex"), (False, "Decisions do not read sex")):
        browser = open_page(report_page(made.usual() | {"aware": aware}))
        first = browser.execute_script("return document.querySelector('header').innerText").splitlines()[0]
        assert first == words


def test_what_is_embedded_is_the_summary(open_page, made):
    for summary in (made.usual(), made.many(), made.not_private(), made.hostile()):
        assert open_page(report_page(summary)).execute_script(EMBEDDED, "summary") == summary


def test_the_ratio_stands_beside_the_four_fifths_line(open_page, made):
    summary = made.usual()
    browser = open_page(report_page(summary))
    (mark,) = browser.execute_script(MARKS, "ratio")
    assert {key: number(mark[key]) for key in ("value", "low", "high")} == summary["ratio"]
    assert browser.execute_script("return document.querySelector('#ratio .rule').dataset.value") == "0.8"


def test_the_band_is_as_wide_as_the_tolerance_for_parity_of_pairs_only(open_page, made):
    ends = "return [...document.querySelectorAll('.band')].map((one) => [one.dataset.low, one.dataset.high])"
    found = open_page(report_page(made.usual())).execute_script(ends)
    assert len(found) == len(made.usual()["groups"])
    assert all(math.isclose(float(high) - float(low), 0.02, rel_tol=1e-9) for low, high in found)
    for other in ({"constraint": "equalized_odds"}, {"against": "rest"}, {"tolerance": None}):
        assert open_page(report_page(made.usual() | other)).execute_script(ends) == []


def test_what_is_not_private_says_so_in_red_and_what_is_private_does_not(open_page, made):
    browser = open_page(report_page(made.not_private()))
    banner = browser.find_element("id", "not-private")
    assert banner.is_displayed()
    assert "NOT PRIVATE" in banner.text
    red, green, blue = (int(part) for part in banner.value_of_css_property("color")[5:].split(",")[:3])
    assert red > 2 * max(green, blue)
    assert not open_page(report_page(made.usual())).find_elements("id", "not-private")


def test_requested_bounds_are_shown_even_if_nothing_was_measured(open_page, made):
    browser = open_page(report_page(made.not_private()))
    shown = browser.execute_script("return [...document.querySelectorAll('#certificate li')].map((o) => o.textContent)")
    assert shown == made.not_private()["asked"]


def test_several_classes_without_a_positive_one_are_listed(open_page, made):
    summary = made.usual() | {"classes": ["low", "middle", "high"], "positive": None}
    browser = open_page(report_page(summary))
    assert "low, middle, high" in text_of(browser, "#groups .aside")
    assert "None" not in text_of(browser, "main")


def test_unknown_is_a_word_and_never_zero(open_page, made):
    browser = open_page(report_page(made.not_private()))
    for card in ("#card-accuracy .big", "#card-gap .big"):
        assert text_of(browser, card) == "unknown"
        assert browser.execute_script(VALUES, card) == [[]]
    assert "NaN" not in text_of(browser, "main")


def test_a_trace_is_drawn_with_its_bands_limits_and_multipliers(open_page, made):
    trace = made.trace(2, 300)
    browser = open_page(report_page(made.usual(), trace))
    last = trace[trace["step"] == 300].set_index("bound")
    marks = browser.execute_script(
        "return [...document.querySelectorAll('#trace svg[id^=bound] .mark')].map((one) => ({...one.dataset}))"
    )
    assert {one["group"] for one in marks} == set(last.index)
    for one in marks:
        row = last.loc[one["group"]]
        assert [float(one[key]) for key in ("value", "low", "high", "step")] == [
            row.value,
            row.low,
            row.high,
            300,
        ]
    lines = browser.execute_script(
        "return [...document.querySelectorAll('#trace polyline')].map((one) => one.points.numberOfItems)"
    )
    assert lines == [200] * 4
    rules = "return [...document.querySelectorAll('#trace .rule')].map((one) => Number(one.dataset.value))"
    assert browser.execute_script(rules) == [0.02, 0.02]


def test_of_many_bounds_eight_are_drawn_and_all_are_listed(open_page, made):
    browser = open_page(report_page(made.usual(), made.trace(12, 50)))
    assert len(browser.find_elements("css selector", "#trace svg[id^=bound]")) == 8
    assert "8 of 12" in text_of(browser, "#trace-cut")
    trace = made.trace(12, 50)
    worst = trace[trace["step"] == 50].nlargest(8, "value")["bound"].tolist()
    drawn = "return [...document.querySelectorAll('#trace svg[id^=bound] .mark')].map((one) => one.dataset.group)"
    assert browser.execute_script(drawn) == worst
    rows = browser.execute_script(
        "return [...document.querySelectorAll('#trace tr[data-bound]')].map((one) => one.dataset.bound)"
    )
    assert len(rows) == len(set(rows)) == 12


def test_without_a_trace_the_page_says_why(open_page, made):
    for trace in (None, made.trace().iloc[:0]):
        browser = open_page(report_page(made.usual(), trace))
        assert "no trace" in text_of(browser, "#trace .lead")
        assert not browser.find_elements("css selector", "#trace svg")


def test_a_trace_of_values_that_are_no_numbers_is_drawn_with_gaps(open_page, made):
    trace = made.trace(1, 30)
    trace.loc[10:12, "value"] = np.nan
    trace.loc[5, "high"] = np.inf
    browser = open_page(report_page(made.usual(), trace))
    assert len(browser.find_elements("css selector", "#bound-0 polyline")) == 2
    assert "NaN" not in browser.page_source


def test_hostile_text_is_shown_and_does_nothing(open_page, made):
    browser = open_page(report_page(made.hostile(), made.hostile_trace()))
    with pytest.raises(NoAlertPresentException):
        _ = browser.switch_to.alert
    inside = browser.execute_script(INSIDE)
    names = browser.execute_script(
        "return [...document.querySelectorAll('#group-table tbody th')].map((o) => o.textContent)"
    )
    assert names == [as_shown(name) for name in made.HOSTILE]
    labels = browser.execute_script(
        "return [...document.querySelectorAll('[data-rate=accuracy] .mark')].map((o) => o.dataset.group)"
    )
    assert labels == [as_shown(name) for name in made.HOSTILE]
    purposes = browser.execute_script("return [...document.querySelectorAll('.entry th')].map((o) => o.textContent)")
    assert purposes == [as_shown(name) for name in made.HOSTILE]
    assert text_of(browser, "#command") == as_shown(made.hostile()["command"])
    assert browser.title == f"fairveil report: {made.HOSTILE[0]}"
    trace = made.hostile_trace()
    trace["bound"] = trace["bound"].map(made.tamed)
    assert open_page(report_page(made.tamed(made.hostile()), trace)).execute_script(INSIDE) == inside


def test_marks_speak_to_the_pointer_and_to_the_keyboard(open_page, made):
    browser = open_page(report_page(made.usual()))
    tip = browser.find_element("id", "tip")
    female, male = browser.find_elements("css selector", "[data-rate=selection_rate] .mark")
    ActionChains(browser).scroll_to_element(female).move_to_element(female).perform()
    assert tip.is_displayed()
    assert tip.get_property("textContent") == female.get_attribute("aria-label")
    ActionChains(browser).move_by_offset(0, -300).perform()
    assert not tip.is_displayed()
    for _ in range(40):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        if browser.switch_to.active_element == female:
            break
    assert browser.switch_to.active_element == female
    assert tip.is_displayed()
    assert (
        browser.execute_script("return getComputedStyle(arguments[0].querySelector('.hit')).stroke", female) != "none"
    )
    ActionChains(browser).send_keys(Keys.ARROW_DOWN).perform()
    assert browser.switch_to.active_element == male
    assert tip.get_property("textContent") == male.get_attribute("aria-label")
    ActionChains(browser).send_keys(Keys.ESCAPE).perform()
    assert not tip.is_displayed()


def test_the_skip_link_comes_first_and_leads_to_the_content(open_page, made):
    browser = open_page(report_page(made.usual()))
    ActionChains(browser).send_keys(Keys.TAB).perform()
    link = browser.switch_to.active_element
    assert link.text == "Skip to the content"
    assert link.rect["x"] >= 0
    link.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "main"


def test_sixty_groups_are_drawn_in_parts_and_all_are_in_the_table(open_page, made):
    groups = [made.group(f"group {place}", 0.1 + place / 300) for place in range(70)]
    browser = open_page(report_page(made.usual() | {"groups": groups}))
    assert len(browser.find_elements("css selector", "[data-rate=accuracy] svg")) == 3
    assert len(browser.find_elements("css selector", "[data-rate=accuracy] .mark")) == 60
    assert len(browser.find_elements("css selector", "#group-table tbody tr")) == 70


def test_numpy_numbers_and_numbers_that_are_none_are_taken(made):
    summary = made.usual() | {"seconds": np.float64(1.5), "n_public": np.int64(7), "aware": np.bool_(True)}
    summary["accuracy"] = {"value": math.nan, "low": -math.inf, "high": np.float32(1.0)}
    page = report_page(summary)
    assert "NaN" not in page
    assert "Infinity" not in page


def test_half_a_character_does_not_keep_a_page_from_being_written(made):
    page = report_page(made.usual() | {"data": "half \ud800"})
    assert "half ?" in page.encode("utf-8").decode("utf-8")


def test_what_is_missing_is_refused_by_name(made):
    summary = made.usual()
    del summary["ledger"]
    with pytest.raises(InvalidParameterError, match="'ledger'"):
        report_page(summary)
    with pytest.raises(BadStructureError, match="'limit'"):
        report_page(made.usual(), made.trace().drop(columns="limit"))


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 9.9, 10.0, 1000.0])
def test_a_large_epsilon_is_called_what_it_is(epsilon):
    assert ("next to nothing" in privacy_promise(epsilon, 1e-5, neighbor_wording({"unit": "record"}))) == (
        epsilon >= 10
    )


def test_statements_over_the_noise_follow_the_certificate_with_a_caveat(open_page, made):
    browser = open_page(report_page(made.fairdp()))
    rows = browser.execute_script(
        "return [...document.querySelectorAll('#noise-statements tbody tr')].map((one) => one.innerText)"
    )
    assert len(rows) == 3
    assert all("over the training noise, not for this model" in row for row in rows)
    assert "unknown" in rows[1]
    assert "do not say how it treats anybody" in text_of(browser, "#not-this-model")
    order = (
        "const place = (one) => document.querySelector(one);"
        "return place('#sentence').compareDocumentPosition(place('#noise-statements'))"
    )
    assert browser.execute_script(order) & 4  # the statements follow


def test_without_a_certificate_no_statement_over_the_noise_is_shown(made):
    page = report_page(made.fairdp() | {"certificate": None})
    assert "Theorem 3.2" not in page.split('type="application/json"')[0]
    assert "noise-statements" not in page
    assert "noise-statements" not in report_page(made.usual())


def test_changed_decisions_are_stated_with_the_certificate(made):
    groups = [
        {"group": made.HOSTILE[0], "share": 0.05, "rate_before": 0.1},
        {"group": "m", "share": 0.05, "rate_before": 0.2},
    ]
    changes = {"groups": groups, "total": 0.1, "fewest": 0.1, "sentence": f"The rule changes {made.HOSTILE[0]}."}
    before_data = report_page(made.usual() | {"changes": changes}).split('type="application/json"')[0]
    assert 'id="changes"' in before_data
    assert made.HOSTILE[0] not in before_data
    assert 'id="changes"' not in report_page(made.usual())


# --- shapes of the model ----------------------------------------------------------------------------------------------

LEVELS = """
return [...document.querySelectorAll('#model .figures')].map((one) => ({
  column: one.dataset.column, note: (one.querySelector('.note') || {textContent: ''}).textContent,
  levels: [...one.querySelectorAll('.mark')].map((mark) => [mark.dataset.level, mark.dataset.points,
    [...mark.querySelectorAll('.shape')].filter((drawn) => drawn.getBoundingClientRect().width > 0).length])}))
"""


@pytest.mark.parametrize("kind", ["usual", "many"])
def test_influential_columns_are_drawn_with_their_points(open_page, made, kind):
    shapes = getattr(made, kind)()["shapes"]
    browser = open_page(report_page(getattr(made, kind)()))
    drawn = browser.execute_script(LEVELS)
    assert [one["column"] for one in drawn] == [one["column"] for one in shapes["columns"][:8]]
    for figure, facts in zip(drawn, shapes["columns"], strict=False):
        points = dict(zip(facts["levels"], zip(*facts["points"], strict=True), strict=True))
        assert len(figure["levels"]) == min(len(points), 18)
        for name, values, n_marks in figure["levels"]:
            assert tuple(map(float, values.split())) == points[name]
            assert n_marks == len(shapes["groups"]), "every mark has an area"
        least = min(max(map(abs, points[name])) for name, *_ in figure["levels"])
        left = [name for name in points if name not in {name for name, *_ in figure["levels"]}]
        assert all(max(map(abs, points[name])) <= least for name in left)
        said = f"18 of {facts['n_levels']} values are drawn" in figure["note"]
        assert said == (facts["n_levels"] > 18)


def test_the_other_columns_and_what_is_left_out_stand_in_a_table(open_page, made):
    summary = made.many()
    browser = open_page(report_page(summary))
    rows = browser.execute_script(
        "return [...document.querySelectorAll('#shape-table tbody tr')].map((one) => one.textContent.trim())"
    )
    assert len(rows) == 20 * 30 + 1
    assert sum("13 more values are left out" in row for row in rows) == 1
    assert "8 of 70 columns are drawn" in text_of(browser, "#shapes-cut")
    assert "the first 20 of 70 columns" in text_of(browser, "#all-shapes summary")
    assert not browser.execute_script("return document.getElementById('all-shapes').open")
    assert "Female" in text_of(browser, "#model .legend") and "model of its own" in text_of(browser, "#model .body")


def test_a_model_without_points_says_why_and_an_old_summary_is_still_shown(open_page, made):
    browser = open_page(report_page(made.not_private()))
    assert text_of(browser, "#no-shapes") == made.not_private()["shapes"]["sentence"]
    old = made.usual()
    del old["shapes"]
    browser = open_page(report_page(old))
    assert "without the points" in text_of(browser, "#model")
    assert browser.execute_script(LEVELS) == []


def test_marks_of_a_trace_keep_their_shapes_beside_those_of_the_model(open_page, made):
    browser = open_page(report_page(made.usual(), made.trace()))
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('#trace .mark .shape')].map((one) => one.getBoundingClientRect().width)"
    )
    assert sizes and min(sizes) > 0
