"""Do the tables of rivals and of methods say what the runs of a bench say?"""

import csv

import pytest

import bench_tables
from fairveil.bench.analysis import Estimate

RUNS = [
    {"data": "adult", "label": label, "epsilon": epsilon, "tolerance": tolerance, "accuracy": accuracy, "gap": gap}
    for label, epsilon, tolerance, accuracy, gap in (
        ("auto", "1.0", "0.0", "0.84", "0.01"),
        ("auto", "1.0", "0.0", "0.86", "0.03"),
        ("auto", "1.0", "0.05", "0.87", "0.05"),
        ("oxonfair", "", "0.0", "0.85", "0.02"),
        ("dpsgd", "1.0", "", "0.88", "0.2"),
        ("dp-ebm", "1.0", "", "0.83", "0.1"),
    )
]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_words_are_a_mean_and_half_an_interval():
    assert bench_tables.words(Estimate(0.85, 0.84, 0.86)) == "0.850 ± 0.010"
    assert bench_tables.words(Estimate(0.85)) == "0.850"


def test_rivals_have_one_row_each_and_say_what_they_hide():
    ours, theirs = bench_tables.rivals_table("rivals", "", RUNS, []).rows
    assert (ours["method"], ours["hides"]) == ("fairveil", "a row, at epsilon 1")
    assert ours["accuracy, tolerance 0"] == "0.850 ± 0.127"  # t of one degree of freedom: 12.7 x .01
    assert ours["gap, tolerance 5 %"] == "0.050"
    assert (theirs["method"], theirs["hides"], theirs["gap, tolerance 0"]) == ("OxonFair", "nothing", "0.020")


def test_methods_without_a_tolerance_stand_apart():
    rows = bench_tables.unbounded_table([*RUNS, RUNS[-1] | {"label": "fermi 4"}]).rows
    assert list(rows[0].values()) == ["Adult, sex", "DP-SGD of fairveil", "0.880", "0.200"]
    assert [row["method"] for row in rows[1:]] == ["DP-EBM of interpret", "fermi of fairveil, knob 4"]
    assert len(bench_tables.rivals_table("rivals", "", [*RUNS, RUNS[-1] | {"label": "fermi 4"}], []).rows) == 2


def test_the_choice_of_a_method_names_its_figures(tmp_path):
    labels = ("auto", "raco", "functional", "parity")
    areas = [
        {"data": data, "label": label, "epsilon": "1.0", "accuracy_at_0.05": 0.8 + place / 100, "accuracy_at_0.1": 0.9}
        for data in ("adult", "compas")
        for place, label in enumerate(labels)
    ]
    bounds = [
        {"data": f"{data}{hidden}", "label": label, "constraint": constraint, "tolerance": "0.05", "accuracy": 0.7,
         "gap": 0.06}
        for data in ("adult", "compas") for hidden in ("", ", group hidden") for label in ("dp2dp", "raco")
        for constraint in ("demographic_parity", "equalized_odds")
    ]  # fmt: skip
    write(tmp_path / "frontier" / "areas.csv", areas)
    write(tmp_path / "frontier" / "runs.csv", RUNS)
    write(tmp_path / "choose" / "runs.csv", bounds)
    rows = bench_tables.choices_table(tmp_path / "frontier", tmp_path / "choose", bench_tables.FIGURES).rows
    figures = {row["situation"]: row["figures"] for row in rows}
    assert "`dp2dp` 0.800, `raco` 0.810" in figures["demographic parity, decisions may read the group"]
    assert "`raco` 0.700 at 0.060, `dp2dp`" in figures["equalized odds, decisions may not read the group"]
    assert figures["privacy only; the gap is measured and not bounded"].endswith("`dpsgd` 0.880 at a gap of 0.200")


def test_a_method_that_a_bench_left_out_is_an_error(tmp_path):
    write(tmp_path / "frontier" / "areas.csv", [{"data": "adult", "label": "auto", "epsilon": "3.0"}])
    write(tmp_path / "frontier" / "runs.csv", RUNS)
    write(tmp_path / "choose" / "runs.csv", [RUNS[0] | {"constraint": "equalized_odds"}])
    with pytest.raises(ValueError, match="unpack"):
        bench_tables.choices_table(tmp_path / "frontier", tmp_path / "choose", bench_tables.FIGURES)
