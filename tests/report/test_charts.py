"""Scales, numbers and charts without a browser: every value drawn is the value passed, unknown is no number."""

import math
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.report.charts import (
    EDGE,
    RIGHT,
    Dot,
    Line,
    Measurement,
    Point,
    Scale,
    clip_text,
    dot_chart,
    line_chart,
    measurement,
    runs,
    scale_over,
    scatter_chart,
    tag,
    thin,
    ticks,
)
from fairveil.report.formatting import compact, fixed, percent
from fairveil.report.page import day, marked

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)
fast = settings(max_examples=300)
UNIT = Scale(0.0, 1.0, (0.0, 0.5, 1.0))


def dots(count):
    values = np.linspace(0.1, 0.9, count)
    return [
        Dot(f"group {i}", Measurement(float(v), float(v) - 0.05, float(v) + 0.05), "x") for i, v in enumerate(values)
    ]


def marks(drawing):
    return [one for one in ET.fromstring(drawing).iter("g") if "mark" in one.get("class", "")]


@fast
@given(NUMBERS, NUMBERS, st.integers(2, 9))
def test_ticks_cover_the_values_are_even_and_few(one, other, about):
    low, high = min(one, other), max(one, other)
    places = ticks(low, high, about)
    slack = 1e-6 * (high - low) + 1e-12
    assert places[0] <= low + slack
    assert places[-1] >= high - slack
    assert 2 <= len(places) <= about + 3
    assert np.allclose(np.diff(places), places[1] - places[0])


@fast
@given(st.lists(st.one_of(st.none(), NUMBERS, st.just(math.nan), st.just(math.inf))))
def test_a_scale_puts_every_known_value_inside_and_keeps_their_order(values):
    scale = scale_over(values)
    known = sorted(value for value in values if value is not None and math.isfinite(value))
    places = [scale.at(value) for value in known]
    assert all(0 <= place <= 1 for place in places)
    assert places == sorted(places)
    if known and known[-1] - known[0] > 1e-5 * max(1e-5, *map(abs, known)):
        assert places[0] < places[-1]


def test_a_scale_of_rates_does_not_leave_zero_to_one():
    scale = scale_over([-0.3, 0.97, 1.2], lowest=0.0, highest=1.0)
    assert (scale.low, scale.high) == (0.0, 1.0)
    assert all(0 <= tick <= 1 for tick in scale.ticks)


@fast
@given(st.integers(0, 5000), st.integers(2, 300))
def test_thinning_keeps_the_ends_and_the_number(count, most):
    places = thin(count, most)
    assert len(places) == min(count, most)
    assert len(set(places)) == len(places)
    if count:
        assert (places[0], places[-1]) == (0, count - 1)


@fast
@given(st.lists(st.booleans()))
def test_runs_are_all_the_known_places_without_a_gap(known):
    subsets = runs(known)
    assert [place for subset in subsets for place in subset] == [i for i, one in enumerate(known) if one]
    assert all(one.stop < other.start for one, other in pairwise(subsets))


@fast
@given(st.text(max_size=400), st.integers(5, 40))
def test_clipped_text_is_short_and_says_that_it_was_clipped(text, most):
    clipped = clip_text(text, most)
    assert len(clipped) <= most
    assert clipped == " ".join(text.split()) or "…" in clipped


@pytest.mark.parametrize("words", [percent, fixed, compact])
@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_not_known_is_never_a_number(words, value):
    assert words(value) == "unknown"
    assert "data value" not in marked(value, words(value))


@fast
@given(st.floats(0, 1))
def test_a_marked_number_keeps_its_last_digit(value):
    assert float(ET.fromstring(marked(value, percent(value))).get("value")) == value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (181.3, "181.3"),
        (12345.6, "12,346"),
        (-0.5, "\N{MINUS SIGN}0.5"),
        (1e-8, "10⁻⁸"),
        (3.2e7, "3.2 \N{MULTIPLICATION SIGN} 10⁷"),
    ],
)
def test_compact_numbers(value, words):
    assert compact(value) == words
    assert "e" not in compact(value, 2)


def test_a_time_that_is_none_is_shown_as_it_is():
    assert day("<b>soon</b>") == "<b>soon</b>"
    assert day("2026-01-02T03:04:05+02:00") == "2 January 2026, 01:04 UTC"
    assert day("2026-01-02T03:04:05") == "2 January 2026, 03:04"


def test_missing_parts_of_an_interval_are_unknown():
    assert measurement({}) == measurement(None) == Measurement(None, None, None)
    assert Measurement(None, 0.0, 1.0).ends is None


@fast
@given(st.text(), st.text())
def test_no_text_becomes_markup(inside, attribute):
    drawing = str(tag("text", inside, data_group=attribute))
    assert drawing.count("<") == 2
    assert drawing.count('"') == 2


@pytest.mark.parametrize("count", [0, 1, 2, 18])
def test_a_dot_chart_has_one_mark_a_group_with_its_exact_values(count):
    rows = dots(count)
    found = marks(dot_chart("a", "Title", "Words", rows, UNIT, percent))
    assert [one.get("data-group") for one in found] == [row.label for row in rows]
    for mark, row in zip(found, rows, strict=True):
        assert float(mark.get("data-value")) == row.interval.value
        assert (float(mark.get("data-low")), float(mark.get("data-high"))) == row.interval.ends
        place = float(mark.find("circle").get("cx").rstrip("%"))
        assert place == pytest.approx(EDGE + (RIGHT - EDGE) * row.interval.value, abs=1e-3)


def test_an_unknown_group_has_words_but_no_dot():
    (mark,) = marks(dot_chart("a", "T", "D", [Dot("g", Measurement(None, 0.0, 1.0), "unknown")], UNIT, percent))
    assert mark.find("circle") is None
    assert not [one for one in mark.iter("line") if one.get("class") == "whisker"]
    assert mark.get("data-value") == ""
    assert "unknown" in mark.get("aria-label")


def test_band_and_rule_stand_where_they_should():
    drawing = ET.fromstring(
        dot_chart("a", "T", "D", dots(1), UNIT, percent, band=(0.4, 0.6), rule=0.8)
    )  # fmt: skip
    (band,) = (one for one in drawing.iter("rect") if one.get("class") == "band")
    assert (band.get("data-low"), band.get("data-high")) == ("0.4", "0.6")
    assert float(band.get("width").rstrip("%")) == pytest.approx((RIGHT - EDGE) * 0.2, abs=1e-2)
    (rule,) = (one for one in drawing.iter("line") if one.get("class") == "rule")
    assert rule.get("data-value") == "0.8"


def test_a_line_does_not_cross_what_is_unknown():
    line = Line("b", (1, 2, 3, 4), (0.1, None, 0.3, 0.4), (0.0, None, 0.2, 0.3), (0.2, None, 0.4, 0.5))
    drawing = ET.fromstring(
        line_chart("a", "T", "D", [line], Scale(1, 4, (1, 4)), UNIT, compact, rule=0.2)
    )  # fmt: skip
    assert [len(one.get("points").split()) for one in drawing.iter("polyline")] == [1, 2]
    assert [len(one.get("points").split()) for one in drawing.iter("polygon")] == [2, 4]


def test_the_last_known_value_of_a_line_takes_the_focus():
    line = Line("b", (1, 2, 3), (0.1, 0.25, None))
    (mark,) = marks(line_chart("a", "T", "D", [line], Scale(1, 3), UNIT, compact))
    assert (mark.get("data-step"), mark.get("data-value"), mark.get("tabindex")) == ("2.0", "0.25", "0")


def test_a_line_without_values_and_no_lines_at_all():
    assert not marks(line_chart("a", "T", "D", [Line("b", (1, 2), (None, None))], UNIT, UNIT, compact))
    assert not marks(line_chart("a", "T", "D", [], UNIT, UNIT, compact))


def test_points_keep_their_values_and_unknown_ones_are_not_drawn():
    one = Point(3, "one", Measurement(0.02, 0.01, 0.03), Measurement(0.84, 0.83, 0.85), 0)
    two = Point(4, "two", Measurement(0.04, None, None), Measurement(0.86, 0.85, 0.87), 0)
    lost = Point(5, "lost", Measurement(None, None, None), Measurement(0.86, 0.85, 0.87), 1)
    drawing = scatter_chart("a", "T", "D", [one, two, lost], UNIT, UNIT, percent, percent)
    assert [(m.get("data-index"), m.get("data-gap-value"), m.get("data-accuracy-low")) for m in marks(drawing)] == [
        ("3", "0.02", "0.83"),
        ("4", "0.04", "0.85"),
    ]
    kinds = [line.get("class").split()[0] for line in ET.fromstring(drawing).iter("line")]
    assert (kinds.count("join"), kinds.count("error")) == (1, 3)


def test_every_chart_has_a_title_and_a_description():
    for drawing in (
        dot_chart("a", "Title", "Words", [], UNIT, percent),
        line_chart("a", "Title", "Words", [], UNIT, UNIT, compact),
        scatter_chart("a", "Title", "Words", [], UNIT, UNIT, percent, percent),
    ):
        root = ET.fromstring(drawing)
        assert (root.find("title").text, root.find("desc").text, root.get("role")) == (
            "Title",
            "Words",
            "img",
        )
