"""The figures that the benchmarks print: metrics against fairlearn and by hand, splits, schemas, and that they run."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
)
from scipy.stats import ttest_1samp

import _harness
import fairdp
import quality
from _support.benchmarking import last_line
from fairveil import (
    DemographicParity,
    Descent,
    EqualizedOdds,
    Groupwise,
    GroupwiseClassifier,
    Ledger,
    Schema,
    load_dataset,
)
from fairveil.data.encoding import Encoder
from fairveil.errors import BadStructureError

SCHEMAS = Path(__file__).parents[2] / "benchmarks" / "schemas"


@pytest.fixture(scope="module")
def bench():
    frame = _harness.with_source_split(load_dataset("adult").frame, Path("adult.parquet"))
    return _harness.Bench.of(frame, Schema.read(SCHEMAS / "adult_fairdp.toml"))


@pytest.mark.parametrize("n_groups", [2, 5])
def test_gaps_are_those_of_fairlearn(rng, n_groups):
    y, chosen = rng.random(500) < 0.4, rng.random(500) < 0.3
    groups = rng.integers(n_groups, size=500)
    gaps, those = _harness.gaps_of(chosen, y, groups), {"sensitive_features": groups}
    assert gaps == pytest.approx(
        {
            "demographic_parity": demographic_parity_difference(y, chosen, **those),
            "equal_opportunity": equal_opportunity_difference(y, chosen, **those),
            "equalized_odds_max": equalized_odds_difference(y, chosen, **those),
            "equalized_odds_mean": equalized_odds_difference(y, chosen, agg="mean", **those),
        }
    )


def test_gaps_of_probabilities_are_those_of_the_decisions_they_stand_for():
    law, y, groups = (
        np.array([0.25, 0.75, 1.0, 0.5]),
        np.array([True, True, True, True]),
        np.array([0, 0, 1, 1]),
    )
    assert _harness.gaps_of(law, y, groups)["demographic_parity"] == 0.25


@pytest.mark.parametrize("divisors", ["group", "common"])
def test_the_papers_tau_without_noise_is_the_gap_on_the_training_rows(bench, divisors):
    """With everyone in every batch and no noise, the mean of the last step is the model itself."""
    train, _ = bench.source_split()
    rows, labels = bench.frame.iloc[train], bench.frame["income"].iloc[train]
    recipe = Groupwise(Descent(n_steps=20, sampling_rate=1.0, learning_rate=0.3, clip_norm=0.5), divisors=divisors)
    clf = GroupwiseClassifier(math.inf, 1e-5, recipe, bench.public(len(train)), "sex", ledger=Ledger(), random_state=0)
    decisions = clf.fit(rows, labels).predict(rows) == ">50K"
    gaps = _harness.gaps_of(decisions, bench.y[train] == 1, bench.groups[train])
    assert gaps["demographic_parity"] > 0.01
    found = _harness.paper_taus(clf, recipe, rows, labels, seed=1)
    assert found == pytest.approx(gaps, abs=2e-3)


def test_misses_are_distances_from_the_papers_tau_and_from_the_gap():
    figures = {"tau_a": 0.5, "paper_tau_a": 0.25, "a": 0.75}
    assert _harness.misses(figures, ["a"]) == {"miss_paper_tau_a": 0.25, "miss_a": 0.25}
    row = _harness.mean_row([{"miss_a": 0.25}, {"miss_a": 0.75}])
    assert (row["miss_a"], row["miss_a_largest"]) == (0.5, 0.75)


def test_a_gap_between_a_group_and_nobody_is_unknown():
    nobody = _harness.gaps_of(np.ones(3, bool), np.array([True, True, False]), np.array([0, 1, 1]))
    assert nobody["equal_opportunity"] == 0
    assert math.isnan(nobody["equalized_odds_max"]) and math.isnan(nobody["equalized_odds_mean"])


def test_the_area_under_the_roc_curve_is_the_share_of_pairs_in_order(rng):
    scores, is_positive = rng.integers(20, size=200) / 20, rng.random(200) < 0.3
    pairs = scores[is_positive][:, None] - scores[~is_positive][None, :]
    areas = _harness.areas_of(scores, is_positive)
    assert areas["roc_auc"] == pytest.approx(np.mean((pairs > 0) + 0.5 * (pairs == 0)))
    assert math.isnan(_harness.areas_of(scores, np.ones(200, bool))["auc_pr"])


def test_average_precision_of_four_people_by_hand():
    areas = _harness.areas_of(np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, False]))
    assert areas["auc_pr"] == pytest.approx((1 + 2 / 3) / 2)


def test_intervals_are_students(rng):
    values = rng.normal(size=7).tolist()
    ends = ttest_1samp(values, 0).confidence_interval(0.95)
    assert _harness.interval(values) == pytest.approx((np.mean(values), ends.low, ends.high))
    assert _harness.interval([0.5])[0] == 0.5


def test_figures_of_a_perfect_and_of_a_one_sided_answer(bench):
    rows = bench.source_split()[1]
    truth = _harness.Answer(bench.y[rows], bench.y[rows].astype(float))
    figures = bench.figures(truth, rows)
    assert figures["accuracy"] == figures["roc_auc"] == figures["auc_pr"] == 1
    assert figures["equalized_odds_max"] == 0 and figures["demographic_parity"] == pytest.approx(0.19, abs=0.02)
    sided = _harness.Answer((bench.groups[rows] == 1).astype(int), np.zeros(len(rows)))
    assert bench.figures(sided, rows)["equalized_odds_mean"] == 1
    assert bench.largest_bound(sided.decisions, rows, EqualizedOdds(0.0)) == 1


def test_the_split_of_the_source_is_that_of_adult(bench):
    train, test = bench.source_split()
    assert (len(train), len(test)) == (32_561, 16_281)
    assert set(bench.frame["split"].iloc[train]) == {"train"}


def test_a_list_of_rows_beside_the_file_serves_as_split(tmp_path):
    frame = pd.DataFrame({"x": range(10)})
    pd.DataFrame({"row": [7, 2, 5], "is_train": [True, False, True]}).to_parquet(tmp_path / "some_fairdp_rows.parquet")
    found = _harness.with_source_split(frame, tmp_path / "some.parquet")
    assert found["x"].tolist() == [7, 2, 5] and found["is_train"].tolist() == [True, False, True]
    with pytest.raises(BadStructureError, match="split at random"):
        _harness.with_source_split(frame, tmp_path / "other.parquet")


def test_a_stratified_split_keeps_every_share_and_every_row_once(bench):
    train, test = bench.stratified_split(3, 0.8)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(bench.y)))
    for group in (0, 1):
        for label in (0, 1):
            is_in = (bench.groups == group) & (bench.y == label)
            assert np.count_nonzero(is_in[train]) == round(0.8 * np.count_nonzero(is_in))
    assert not np.array_equal(train, bench.stratified_split(4, 0.8)[0])


@pytest.mark.parametrize("ratio", [1.0, 1.5, 100.0])
def test_a_ratio_cuts_down_the_larger_group_alone(bench, ratio):
    train, _ = bench.source_split()
    kept = bench.at_ratio(train, ratio, seed=5)
    assert len(np.unique(kept)) == len(kept) and np.isin(kept, train).all()
    n_women = np.count_nonzero(bench.groups[train] == 0)
    assert np.count_nonzero(bench.groups[kept] == 0) == n_women == 10_771
    assert bench.full_ratio(kept) == pytest.approx(min(ratio, bench.full_ratio(train)), abs=1e-4)


def test_adult_as_in_fairdp_has_41_inputs_without_levels_for_missing(bench):
    encoder = Encoder(bench.schema)
    spare = [name for name in encoder.feature_levels if name.endswith(("=missing", "=other"))]
    spare.remove("native_country=other")
    assert encoder.n_features - len(spare) == 41 and encoder.n_features == 50
    seen = encoder.rows(bench.frame)[:, [encoder.feature_levels.index(name) for name in spare]].sum(axis=0)
    counts = {name: n for name, n in zip(spare, seen.tolist(), strict=True) if n}
    assert counts == {"workclass=missing": 2799, "native_country=missing": 857}


@pytest.mark.parametrize(
    ("name", "n_rows", "n_positive", "n_smaller"),
    [("abalone", 1418, 915, 654), ("law_school", 49_449, 12_496, 9802)],
)
def test_other_forms_of_fairdp_keep_the_rows_that_were_counted(data_folder, name, n_rows, n_positive, n_smaller):
    path = data_folder / f"{name}.parquet"
    frame = pd.read_parquet(path)
    frame = _harness.with_source_split(frame, path) if name == "abalone" else frame
    schema = Schema.read(SCHEMAS / f"{name}_fairdp.toml")
    bench = _harness.Bench.of(frame, schema)
    assert (len(bench.y), int(bench.y.sum())) == (n_rows, n_positive)
    assert min(np.bincount(bench.groups)) == n_smaller and schema.n_public == n_rows


def test_published_rows_are_of_one_paper_with_numbers_where_present(tmp_path):
    (tmp_path / "prints.csv").write_text("paper,metric,value\nours,gap,0.25\ntheirs,gap,0.5\nours,tau,N/A\n")
    first, second = _harness.published_rows(tmp_path / "prints.csv", "ours")
    assert first == {"paper": "ours", "metric": "gap", "value": 0.25} and math.isnan(second["value"])
    assert _harness.rounded([second, 1 / 3]) == [{"paper": "ours", "metric": "tau", "value": None}, 0.33333]


def test_a_cell_is_found_by_table_data_set_and_start_of_its_setting(tmp_path):
    (tmp_path / "prints.csv").write_text(
        "paper,table,dataset,method,setting,metric,value\n"
        "p,Table 1,Some (3 rows),ours,eps=1.0,gap,0.25\np,Table 1,Some (3 rows),ours,eps=1.0,tau,0.5\n"
        "p,Table 1,Some (3 rows),ours,eps=2.0,gap,0.75\np,Table 2,Some (3 rows),ours,eps=1.0,gap,1\n"
    )
    asked = (tmp_path / "prints.csv", "p", "Table 1", "Some")
    assert _harness.published_cell(*asked, "eps=1.0") == {"method": "ours", "gap": 0.25, "tau": 0.5}
    assert _harness.published_cell(*asked, "eps=3.0") == {}


def test_published_points_are_of_one_data_set_constraint_and_epsilon(tmp_path):
    (tmp_path / "curves.csv").write_text(
        "method,dataset,constraint,epsilon,error_or_accuracy,gap\n"
        "ours,some,demographic_parity,1,0.25,0.5\nours,some,demographic_parity,3,0.5,0.5\n"
    )
    found = _harness.published_curves(tmp_path / "curves.csv", "some", "demographic_parity", 1.0)
    assert found == [{"method": "ours", "accuracy": 0.75, "gap": 0.5}]


def test_the_fair_twin_keeps_the_bound_that_the_plain_twin_breaks(bench):
    splits = _harness.Splits(bench, "original", 0)
    twin = _harness.twins_of(splits, 1)[0]
    asked, (_, test) = DemographicParity(0.02), splits(0)
    plain, fair = twin.answer(1), twin.fair_answer(splits, 0, asked)
    assert bench.largest_bound(plain.decisions, test, asked) > 0.07
    assert bench.largest_bound(fair.decisions, test, asked) < 0.04
    assert splits.n_public == 32_561


@pytest.mark.parametrize(
    ("script", "command", "key", "clean"),
    [
        (fairdp, "--table synthetic --methods clean,dpsgd --epsilon 1 --model linear", "accuracy", 0.828),
        (
            quality,
            "--method dpsgd --split original --schema {schemas}/adult_fairdp.toml",
            "nonprivate_accuracy",
            0.8002,
        ),
    ],
    ids=["fairdp", "quality"],
)
def test_the_last_line_is_one_json_object_with_a_sound_clean_model(script, command, key, clean):
    """On synthetic rows the best rule is right with probability Phi(1.896 / 2); the rows are the same every time."""
    first, *others = rows_of(script, command)
    assert first[key] == pytest.approx(clean, abs=0.02)
    for row in (first, *others):
        assert 0 <= row["roc_auc"] <= 1 and row["runs"] == 1 and row["seconds_per_run"] > 0


def rows_of(script, command):
    return last_line(script, *command.format(schemas=SCHEMAS).split(), "--runs", "1")["rows"]


def test_a_frontier_spends_what_its_one_fit_spends():
    rows = rows_of(quality, "--method functional --epsilon 1 --frontier 0,0.1")
    assert [row["tolerance"] for row in rows] == [0, 0.1]
    for row in rows:
        assert 0.9 < row["fitted_epsilon"] == row["ledger_epsilon"] <= 1
        assert row["accuracy_over_retrained"] == pytest.approx(
            row["accuracy_mean"] - row["retrained_accuracy"], abs=1e-4
        )


def test_what_no_option_sets_is_the_estimators_own_default():
    (row,) = rows_of(quality, "--method fairdp --split original --schema {schemas}/adult_fairdp.toml --epsilon 2")
    own = Groupwise()
    assert (row["model"], row["norm_bound"], row["divisors"]) == (
        own.descent.model,
        own.largest_norm,
        own.divisors,
    )


def test_the_table_of_taus_has_all_three_figures_of_every_gap():
    (row,) = rows_of(fairdp, "--table tau --epsilon 2")
    for name in ("demographic_parity", "equal_opportunity", "equalized_odds_max"):
        assert all(0 <= row[f"{kind}{name}"] <= 1 for kind in ("", "tau_", "paper_tau_", "miss_"))
    assert row["worst_case_tau"] <= 1
