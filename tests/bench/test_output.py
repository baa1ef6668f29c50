"""Files of a comparison: whole, consistent, honest about what they are, and safe whatever a name holds."""

import csv
import io
from xml.etree import ElementTree

import pytest

from fairveil.bench import output
from fairveil.bench.comparison import compare
from fairveil.bench.grid import read_grid
from fairveil.bench.output import (
    NOT_PRIVATE,
    area_table,
    bench_page,
    epsilon_words,
    headline_table,
    markdown,
    panels_of,
    series_of,
    svg_text,
    with_half,
    write_outputs,
)

ABOUT = {
    "created": "2026-11-16T12:00:00+00:00", "version": "0.1.0", "command": "fairveil bench grid.toml",
    "failures": [{"id": "small-raco", "error": "Expected <b>more</b> | rows, got few."}], "missing": ["compas"],
}  # fmt: skip


def result_of(run):
    """A figure that follows from the setting, and differs a little by seed."""
    tolerance, noise = 0.2 if run.tolerance is None else run.tolerance, (run.seed - 1001) * 0.002
    accuracy = 0.8 + 0.2 * tolerance - (0.02 if run.contender == "raco" else 0.0) + noise
    figures = {"accuracy": accuracy, "constant_accuracy": 0.7, "gap": tolerance / 2 + noise / 10, "roc_auc": 0.9}
    is_private = run.epsilon is not None
    return {
        "id": run.identity, **run.facts, "figures": figures, "seconds": 1.0, "n_train": 900, "n_test": 300,
        "epsilon_spent": 0.99 if is_private else None, "protects": "record" if is_private else "nothing", "notes": {},
        "ledger": None, "versions": {"fairveil": "0.1.0"}, "command": "fairveil bench grid.toml",
    }  # fmt: skip


@pytest.fixture
def compared(write_grid):
    """A grid, its results and what is shown of them."""

    def make(**changes):
        usual = {"methods": ["dp2dp", "raco", "dpsgd", "logistic", "fair-logistic"], "epsilons": [1.0, 3.0],
                 "tolerances": [0.0, 0.1], "seeds": 3}  # fmt: skip
        grid = read_grid(write_grid(**usual | changes))
        results = [result_of(run) for run in grid.runs()]
        counts = {"n_planned": len(results) + 1, "n_done": len(results)}
        return grid, results, compare(grid, results, ABOUT | counts)

    return make


def test_the_headline_stands_beside_the_same_bound(compared):
    facts = compared()[2]
    found = {(one["label"], one["epsilon"], one["tolerance"]): one for one in facts["headline"]}
    assert len(found) == 2 * 2 * 2 + 2
    assert found["dp2dp", 1.0, 0.1]["accuracy"]["value"] == pytest.approx(0.82)
    assert found["dp2dp", 1.0, 0.1]["optimum"]["label"] == "fair-logistic"
    assert found["dpsgd", 3.0, None]["optimum"]["label"] == "logistic"
    header, rows = headline_table(facts)
    assert ("small", "demographic parity", "raco", "3", "0.1") in {row[:5] for row in rows}
    assert all(len(row) == len(header) for row in rows)


def test_areas_and_accuracies_at_gaps_follow_from_the_means(compared):
    header, rows = area_table(compared(reference_gap=0.1, gaps=[0.01, 0.06])[2])
    by_name = {(row[2], row[3]): row for row in rows}
    # .80 at gap 0, .82 from gap .05 on; the best constant decision is right in .7
    assert by_name["1", "dp2dp"][5].startswith("0.1100 ±")
    assert by_name["1", "dp2dp"][6:] == (
        with_half({"value": 0.8, "low": 0.795, "high": 0.805}),
        by_name["1", "dp2dp"][7],
    )
    assert by_name["1", "raco"][5].startswith("0.0900 ±")
    assert ("not private", "fair-logistic") in by_name and header[-1] == "accuracy at gap <= 0.06"
    assert len(rows) == 2 * 3 + 2  # those without a budget once


def test_every_contender_is_tested_against_the_baseline(compared):
    facts = compared()[2]
    rows = [one for one in facts["tests"] if one["label"] == "raco" and one["figure"] == "accuracy"]
    assert {(one["epsilon"], one["tolerance"]) for one in rows} == {(e, t) for e in (1.0, 3.0) for t in (0.0, 0.1)}
    assert all(one["difference"]["value"] == pytest.approx(-0.02) and one["n"] == 3 for one in rows)
    assert all(one["p"] <= one["p_holm"] <= 1 for one in facts["tests"])
    assert {one["label"] for one in facts["tests"]} == {"raco", "fair-logistic"}
    assert "corrected" in facts["test"] and "Holm" in facts["family"]
    assert "signed-rank" in compared(test="wilcoxon")[2]["test"]
    assert len(output.tests_table(facts)[1]) == len(facts["tests"])


def test_a_method_with_one_split_has_no_interval_and_no_test(compared):
    facts = compared(seeds=1)[2]
    assert facts["headline"][0]["accuracy"]["low"] is None
    assert {one["p"] for one in facts["tests"]} == {None}
    assert bench_page(facts) and markdown(facts)


def test_no_privacy_is_never_shown_as_an_epsilon():
    assert epsilon_words(None) == "not private" and epsilon_words("inf") == "infinite"


def test_all_files_are_written_together(compared, tmp_path):
    _, results, facts = compared()
    written = write_outputs(tmp_path, facts, results)
    assert set(written) == {"bench.md", "bench.html", "headline.csv", "areas.csv", "tests.csv", "runs.csv", "figures"}
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(results) and {float(row["accuracy"]) for row in rows} == {
        one["figures"]["accuracy"] for one in results
    }
    with (tmp_path / "headline.csv").open() as file:
        first = next(csv.DictReader(file))
    assert float(first["accuracy_low"]) < float(first["accuracy"]) < float(first["accuracy_high"])
    assert first["optimum"] == "fair-logistic"
    for name, column in (("areas.csv", "accuracy_at_0.05"), ("tests.csv", "difference_high")):
        assert column in (tmp_path / name).read_text().splitlines()[0].split(",")
    figures = sorted((tmp_path / "figures").iterdir())
    assert [one.suffix for one in figures] == [".svg", ".svg"]
    write_outputs(tmp_path, facts, results)
    assert sorted((tmp_path / "figures").iterdir()) == figures


def test_every_file_says_that_figures_are_not_private(compared):
    facts = compared()[2]
    page, text = bench_page(facts), markdown(facts)
    assert "bench is for public data" in NOT_PRIVATE
    assert "bench is for public data" in page and NOT_PRIVATE in text
    for shown in (page, text):
        assert "compas was left out" in shown and "small-raco" in shown
    assert "<b>more</b>" not in page and "<b>more</b>" not in text


def test_a_figure_is_an_image_of_its_own(compared):
    facts = compared()[2]
    series = series_of(facts)
    for panel in panels_of(facts):
        text = svg_text(panel, series.values())
        root = ElementTree.parse(io.StringIO(text)).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        uses = [one for one in root.iter() if one.tag.endswith("}use")]
        known = {one.get("id") for one in root.iter()}
        assert uses and all(one.get("href").removeprefix("#") in known for one in uses)
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_hostile_names_stay_text(compared):
    hostile = '"><script>alert(1)</script>|\n{{7*7}}'
    data = [{"source": "small.csv", "schema": "small.toml", "name": hostile}]
    facts = compared(data=data, methods=[{"name": "dpsgd", "label": hostile}])[2]
    page, text = bench_page(facts), markdown(facts)
    assert "<script>alert" not in page and "}}" in page and "{{7*7}}" in page
    assert "<script>" not in text
    (panel,) = panels_of(facts)[:1]
    assert "/" not in panel.name and "<" not in panel.name
    ElementTree.parse(io.StringIO(svg_text(panel, series_of(facts).values())))
