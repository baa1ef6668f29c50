"""The page of a training with very many groups: small, and it says what it leaves out."""

import json
import re

import pytest

from fairveil.cli.verify import EMBEDDED
from fairveil.report.headlines import LISTED_CLAIMS, MANY_CLAIMS, embedded_summary, ordered_claims
from fairveil.report.page import report_page

MOST_BYTES = 10**6


def test_fifty_groups_take_less_than_a_megabyte(made):
    summary = made.fifty()
    for trace in (None, made.trace(len(summary["asked"]), 80)):
        assert len(report_page(summary, trace).encode()) < MOST_BYTES


def test_the_claims_that_need_attention_are_shown_and_the_cut_is_said(made):
    summary = made.fifty()
    claims = summary["certificate"]["claims"]
    page = report_page(summary)
    shown = re.findall(r'<tr class="claim" data-bound="([^"]*)"', page)
    worst = [one for one in claims if one["verdict"] == "does not hold"]
    worst = sorted(worst, key=lambda one: -one["value"])[:LISTED_CLAIMS]
    assert len(worst) == LISTED_CLAIMS
    assert [bound.replace("&lt;", "<").replace("&amp;", "&") for bound in shown] == [one["bound"] for one in worst]
    assert f"has the {LISTED_CLAIMS} of {len(claims)} claims that need attention first" in page
    assert "<code>summary.json</code> has all" in page
    assert f"The first 4 of {len(claims)} claims" in page
    assert all(f'<tr data-group="{one["group"]}">' in page for one in summary["groups"])


def test_the_page_carries_what_it_shows(made):
    summary = made.fifty()
    carried = json.loads(EMBEDDED.search(report_page(summary).encode())[1])
    assert carried == embedded_summary(summary)
    assert carried["certificate"]["claims"] == ordered_claims(summary["certificate"]["claims"])[:LISTED_CLAIMS]
    left_out = {"certificate", "asked", "bounds"}
    assert {name: carried[name] for name in carried if name not in left_out} == {
        name: summary[name] for name in summary if name not in left_out
    }
    assert len(carried["asked"]) == len(carried["bounds"]) == LISTED_CLAIMS


@pytest.mark.parametrize("kind", ["usual", "many"])
def test_a_page_of_fewer_claims_leaves_nothing_out(made, kind):
    summary = getattr(made, kind)()
    n_claims = len(summary["certificate"]["claims"])
    assert n_claims <= MANY_CLAIMS
    page = report_page(summary, made.trace(20))
    assert embedded_summary(summary) == summary
    assert page.count('<tr class="claim"') == n_claims and "claims-cut" not in page
    assert "all are in the table" in page and "The other 12 bounds" in page


def test_a_trace_of_very_many_bounds_lists_those_that_ended_highest(made):
    page = report_page(made.usual(), made.trace(MANY_CLAIMS + 1, 100))
    assert f"8 of {MANY_CLAIMS + 1} bounds are drawn" in page and f"the tables have the first {LISTED_CLAIMS}" in page
    assert f"The next {LISTED_CLAIMS - 8} bounds" in page
