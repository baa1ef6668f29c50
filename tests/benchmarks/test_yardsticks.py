"""What stands beside a private rule: boosted trees and fair rules on known probabilities keep what they promise."""

import numpy as np
import pandas as pd
import pytest

import _harness
import _yardsticks
import quality
from _support.benchmarking import last_line
from fairveil import DemographicParity, EqualizedOdds, Schema
from fairveil.data.schema import Category, Number, Sensitive, Target
from fairveil.fairness.constraints import CONSTRAINT_TYPES, constrain
from fairveil.research import boosting, fair_rules
from fairveil.research.dp2dp_forms import ExactProblem


def bench_of(rng, n_rows=6000, aware=True) -> _harness.Bench:
    """People whose group shifts a number and a category, and whose label depends on both in a curve."""
    is_b = rng.random(n_rows) < 0.4
    x = rng.normal(size=n_rows) + 0.8 * is_b
    kind = np.where(rng.random(n_rows) < 0.3 + 0.3 * is_b, "u", "v")
    chance = 1 / (1 + np.exp(-(1.5 * np.abs(x) + (kind == "u") - 1.5)))
    y = np.where(rng.random(n_rows) < chance, "yes", "no")
    x[::50] = np.nan
    frame = pd.DataFrame({"x": x, "kind": kind, "group": np.where(is_b, "b", "a"), "y": y})
    schema = Schema(
        target=Target(column="y", classes=("no", "yes")),
        sensitive=(Sensitive(column="group", groups=("a", "b")),),
        columns={
            "x": Number(bounds=(-1, 1), bins=2),
            "kind": Category(categories=("u", "v")),
            "group": Category(categories=("a", "b")),
        },
    )
    return _harness.Bench.of(frame, schema, aware=aware)


def search_of(bench, twin, train, asked) -> fair_rules.RuleSearch:
    bounds = constrain(asked, bench.people)
    chances = fair_rules.chances_of_known(twin.train, bench.groups[train], bounds)
    return fair_rules.RuleSearch(twin.train, chances, bounds.cells[bench.groups[train], bench.y[train]], bounds)


def test_trees_read_numbers_beyond_bounds_and_missing_cells(rng):
    bench = bench_of(rng, 300)
    table = boosting.RawTable.of(bench.frame, bench.schema)
    assert table.is_category == (False, True, True)
    np.testing.assert_array_equal(table.rows[:, 0], bench.frame["x"])
    assert np.isnan(table.rows[0, 0]) and np.nanmax(table.rows[:, 0]) > 1
    assert set(table.rows[:, 1]) == {0.0, 1.0}


def test_each_training_row_is_judged_by_a_model_that_has_not_seen_it():
    """The model returns how many of the asked rows it was fitted on, and who they are."""
    train, test = np.arange(20, 43), np.arange(7)
    known_of, asked_of = [], []

    def predict(known, asked):
        known_of.append(set(known.tolist()))
        asked_of.append(set(asked.tolist()) - set(test.tolist()))
        return asked[:, None].astype(float)

    out, held = boosting.crossed(predict, train, test)
    assert out[:, 0].tolist() == train.tolist() and held[:, 0] == pytest.approx(test)
    assert not any(known & asked for known, asked in zip(known_of, asked_of, strict=True))
    assert set.union(*asked_of) == set(train.tolist())
    assert all(known | asked == set(train.tolist()) for known, asked in zip(known_of, asked_of, strict=True))


def test_trees_find_the_curve_that_a_linear_model_of_two_bins_misses(rng):
    splits = _harness.Splits(bench_of(rng), "random", 0)
    sticks = _yardsticks.Yardsticks.of(splits, 1, has_boosting=True, hides_group=False)
    y = splits.bench.y[splits(0)[1]]
    plain, boosted = (np.mean(twins[0].answer(1).decisions == y) for twins in (sticks.plain, sticks.boosted))
    assert boosted > plain + 0.05
    assert not sticks.pairs and not sticks.boosted_pairs


@pytest.mark.parametrize("name", sorted(set(CONSTRAINT_TYPES) - {"precision_parity"}))
@pytest.mark.parametrize("tolerance", [0.02, 0.1])
def test_the_fair_boosting_rule_keeps_its_bound_on_the_training_rows(rng, name, tolerance):
    bench = bench_of(rng)
    train, test = bench.random_split(0, 0.75)
    table = boosting.RawTable.of(bench.frame, bench.schema)
    twin = _harness.Twin(*boosting.crossed(boosting.labels_of(table, bench.y, 2), train, test))
    asked = CONSTRAINT_TYPES[name](tolerance)
    search = search_of(bench, twin, train, asked)
    now = search.multipliers()
    values = search.true_values(now)
    assert np.all(values <= search.bounds.limits + 3e-3)
    assert np.all(values[now > 0.01] >= search.bounds.limits[now > 0.01] - 3e-3)


def test_the_smoothed_optimum_is_that_of_the_linear_program(rng):
    bench = bench_of(rng, 2000)
    rows, train = bench.frame["x"].fillna(0).to_numpy()[:, None], np.arange(2000)
    twin = _harness.Twin.on(np.column_stack([rows, np.abs(rows)]), bench.y, train, train)
    search = search_of(bench, twin, train, DemographicParity(0.02))
    exact = ExactProblem(twin.train, search.cells, search.bounds).distribution()
    decided = fair_rules.law(search.probabilities, search.chances, search.tilts(search.multipliers()))
    assert np.sum(decided * twin.train) == pytest.approx(np.sum(exact * twin.train), abs=2e-3 * len(train))


def test_the_chances_of_cells_are_the_group_itself_or_its_probability(rng):
    people = bench_of(rng, 50).people
    by_group, by_pair = (constrain(kind(0.1), people) for kind in (DemographicParity, EqualizedOdds))
    joint = rng.dirichlet(np.ones(people.n_groups * 2), size=9).reshape(9, people.n_groups, 2)
    labels, groups = joint.sum(axis=1), rng.integers(people.n_groups, size=9)
    known = fair_rules.chances_of_known(labels, groups, by_group)
    for code in people.codes:
        cells = by_pair.cells[code]
        cell = by_group.cells[code, 0]
        np.testing.assert_allclose(known[:, cell], groups == code)
        np.testing.assert_allclose(fair_rules.chances_of_hidden(joint, by_group)[:, cell], joint[:, code].sum(axis=1))
        np.testing.assert_allclose(fair_rules.chances_of_hidden(joint, by_pair)[:, cells], joint[:, code])


def test_decisions_follow_their_law():
    chances = np.tile([0.25, 0.0, 0.75], (4000, 1))
    counts = np.bincount(fair_rules.drawn(chances, 3), minlength=3)
    assert counts[1] == 0 and counts[0] == pytest.approx(1000, abs=150)  # 5.5 standard deviations; the seed is fixed


@pytest.mark.slow
def test_a_rule_without_the_group_halves_the_gap_of_its_own_model(rng):
    splits, asked = _harness.Splits(bench_of(rng, aware=False), "random", 0), DemographicParity(0.02)
    sticks = _yardsticks.Yardsticks.of(splits, 1, has_boosting=True, hides_group=True)
    bench, test = splits.bench, splits(0)[1]
    for twin in (sticks.pairs[0], sticks.boosted_pairs[0]):
        np.testing.assert_allclose(twin.test.sum(axis=(1, 2)), 1.0)
        plain, fair = twin.labels.answer(1), twin.fair_answer(splits, 0, asked)
        gaps = [bench.largest_bound(one.decisions, test, asked) for one in (plain, fair)]
        assert gaps[1] < gaps[0] / 2


def test_only_bounds_on_fixed_denominators_have_an_optimum(rng):
    splits = _harness.Splits(bench_of(rng, 50), "random", 0)
    found = {name: _yardsticks.has_optimum(kind(0.1), splits) for name, kind in CONSTRAINT_TYPES.items()}
    assert [name for name, has in found.items() if not has] == ["precision_parity"]
    assert _yardsticks.tells_labels_apart(EqualizedOdds(0.1), splits)
    assert not _yardsticks.tells_labels_apart(DemographicParity(0.1), splits)


def test_a_subset_is_the_same_every_time_and_keeps_codes_with_their_rows(rng):
    bench = bench_of(rng, 300)
    part = bench.subset(40)
    assert part.frame.equals(bench.subset(40).frame) and len(part.y) == len(part.groups) == 40
    np.testing.assert_array_equal(part.y, (part.frame["y"] == "yes").to_numpy())
    np.testing.assert_array_equal(part.groups, (part.frame["group"] == "b").to_numpy())
    assert bench.subset(300) is bench.subset(None) is bench


def test_differences_are_paired_by_split():
    before = [0.1, 0.5, 0.9]
    gain = _harness.paired([one + 0.01 for one in before], before)
    assert gain == pytest.approx((0.01, 0.01, 0.01))


def test_all_stands_for_the_data_sets_whose_rows_are_there(monkeypatch, tmp_path):
    monkeypatch.setenv("FAIRVEIL_DATA", str(tmp_path))
    (tmp_path / "compas.parquet").touch()
    assert quality.names_of(quality.options_of(["--dataset", "all"])) == ["adult", "compas"]
    assert quality.names_of(quality.options_of(["--dataset", "bank"])) == ["bank"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--before --method output", "--before with one of"),
        ("--dataset all --schema some.toml", "one data set for --schema"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words, message, capsys):
    with pytest.raises(SystemExit):
        quality.options_of(words.split())
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_prints_every_yardstick_of_its_rule():
    common = ("--method", "dp2dp", "--rows", "3000", "--runs", "2")
    (aware,) = last_line(quality, *common, "--before")["rows"]
    assert aware["rows"] == 3000
    assert aware["gain"] == pytest.approx(aware["accuracy_mean"] - aware["before_accuracy"], abs=2e-5)
    assert aware["gain_low"] < aware["gain"] < aware["gain_high"]
    assert 0 <= aware["floor"] < 0.1 and 0 <= aware["boosting_floor"] < 0.1 < aware["boosting_gap"]
    (hidden,) = last_line(quality, *common, "--unaware", "--no-boosting")["rows"]
    assert hidden["unaware_twin_gap"] < hidden["nonprivate_gap"]
    assert not [name for name in hidden if "boosting" in name or name == "floor"]
