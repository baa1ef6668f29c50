"""Points by column and reasons for decisions: what they state is exactly what the model does."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from fairveil import (
    DemographicParity,
    Descent,
    FairClassifier,
    FeatureDesign,
    ParityPostprocessor,
    PrivateClassifier,
    RandomizedParityPostprocessor,
    Schema,
    load_dataset,
)
from fairveil.data.schema import Category, Number, Sensitive, Target
from fairveil.errors import InvalidParameterError, UnknownGroupWarning
from fairveil.methods.dp2dp import ParityTraining
from fairveil.methods.explanations import (
    MOST_COLUMNS,
    MOST_LEVELS,
    column_values,
    explain_decisions,
    shape_facts,
)
from fairveil.methods.pf_ld import LagrangianClassifier

N_ROWS = 2000


@pytest.fixture(scope="module")
def people():
    """Rows of Adult with their public schema."""
    found = load_dataset("adult")
    return found.X.head(N_ROWS), found.y.head(N_ROWS), found.schema.model_copy(update={"n_public": N_ROWS})


@pytest.fixture(scope="module")
def mixed():
    """A made table with every way to encode a column, a group, and three classes."""
    rng = np.random.default_rng(7)
    X = pd.DataFrame(
        {
            "age": rng.integers(18, 80, N_ROWS), "score": rng.normal(size=N_ROWS), "both": rng.uniform(-3, 3, N_ROWS),
            "town": rng.choice(["a", "b", "c", "d"], N_ROWS), "sex": rng.choice(["f", "m"], N_ROWS),
        }
    )  # fmt: skip
    signal = X["score"] + 0.05 * X["age"] + X["both"].abs() + (X["town"] == "a") - 3.5
    y = pd.Series(np.digitize(signal + rng.normal(size=N_ROWS), [-0.5, 1.0])).map({0: "no", 1: "maybe", 2: "yes"})
    columns = {
        "age": Number(bounds=(18, 80), cuts=(30, 50)), "score": Number(bounds=(-3, 3), encode="scale"),
        "both": Number(bounds=(-3, 3), cuts=(-1, 1), encode="both"), "town": Category(categories=("a", "b", "c")),
    }  # fmt: skip
    schema = Schema(
        target=Target(column="y", classes=("no", "maybe", "yes")), columns=columns, n_public=N_ROWS,
        sensitive=(Sensitive(column="sex", groups=("f", "m")),),
    )  # fmt: skip
    return X, y, schema


def two_classes(mixed):
    X, y, schema = mixed
    target = Target(column="y", classes=("no", "yes"))
    return X, y.replace({"maybe": "no"}), schema.model_copy(update={"target": target})


def log_odds(clf, X, groups=None):
    law = clf._predictor.probabilities(X, groups)
    return np.log(law[:, -1]) - np.log(law[:, 0])


def level_names(clf, X):
    """Return the level of each row in each column, by the names of the encoded features."""
    names, rows = np.array(clf.inputs_.encoder.feature_levels), clf.inputs_.encoder.rows(X)
    levels = {}
    for column in clf.inputs_.schema.columns:
        own = [place for place, name in enumerate(names) if name.startswith((f"{column}=", f"{column} in "))]
        label = names[own][rows[:, own].argmax(axis=1)]
        levels[column] = [text.removeprefix(f"{column}=").removeprefix(f"{column} in ") for text in label]
    return levels


# --- points -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decoupled", [False, True])
def test_points_and_intercept_add_up_to_the_score_of_real_people(people, decoupled):
    X, y, schema = people
    training = ParityTraining(decoupled=decoupled)
    clf = ParityPostprocessor(DemographicParity(0.05), schema=schema, sensitive="sex", training=training).fit(X, y)
    shapes = clf.shapes().set_index(["group", "column", "level"])["points"]
    groups = X["sex"] if decoupled else pd.Series("", index=X.index)
    levels = level_names(clf, X)
    total = np.array([shapes[group, "intercept", ""] for group in groups])
    for column, names in levels.items():
        total += [shapes[group, column, name] for group, name in zip(groups, names, strict=True)]
    logits = clf.model_.logits(clf.params_.astype(float), np.asarray(clf.inputs_.rows(X, clf.inputs_.groups(X)), float))
    assert np.abs(total - (logits[1] - logits[0])).max() < 1e-6
    if decoupled:
        assert set(clf.shapes()["group"]) == {"Female", "Male", "unknown group"}


def test_scaled_columns_have_points_at_numbers(mixed):
    X, y, schema = two_classes(mixed)
    clf = PrivateClassifier(schema=schema, epsilon=math.inf).fit(X, y)
    shapes = clf.shapes().set_index(["column", "level"])["points"]
    assert list(shapes["score"].index) == ["-3", "-1.5", "0", "1.5", "3", "missing"]
    assert list(shapes["both"].index)[:3] == ["[-3, -1) at -3", "[-3, -1) at -1", "[-1, 1) at -1"]
    bare = X.assign(age=np.nan, town=None, both=np.nan)
    rest = shapes["intercept"].sum() + sum(shapes[name, "missing"] for name in ("age", "town", "both"))
    for number in ("-3", "-1.5", "3"):
        row = bare.head(1).assign(score=float(number))
        assert log_odds(clf, row)[0] == pytest.approx(rest + shapes["score", number], abs=1e-6)
    row = bare.head(1).assign(score=np.nan, both=np.nextafter(-1.0, -2.0))
    rest = shapes["intercept"].sum() + sum(shapes[name, "missing"] for name in ("age", "town", "score"))
    assert log_odds(clf, row)[0] == pytest.approx(rest + shapes["both", "[-3, -1) at -1"], abs=1e-6)


@pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning")
def test_models_without_points_say_so(people):
    X, y, schema = people
    for options in ({"training": Descent(model="mlp")}, {}):
        clf = FairClassifier(
            schema=schema, sensitive="sex", aware=False, method="auto" if not options else "dpsgd", **options
        ).fit(X, y)
        with pytest.raises(InvalidParameterError, match=r"^Expected a linear model, .* got another one; use reasons"):
            clf.shapes()
        facts = clf.summary()["shapes"]
        assert facts["columns"] == [] and facts["sentence"].endswith("so there are no shapes to draw.")


def test_a_summary_keeps_a_bounded_part_of_the_shapes():
    rng = np.random.default_rng(0)
    columns = {f"c{place}": Category(categories=tuple(map(str, range(40)))) for place in range(MOST_COLUMNS + 5)}
    schema = Schema(target=Target(column="y", classes=("0", "1")), columns=columns, n_public=200)
    X = pd.DataFrame({name: rng.integers(0, 40, 200) for name in columns})
    clf = PrivateClassifier(schema=schema, epsilon=math.inf).fit(X, rng.integers(0, 2, 200))
    facts = shape_facts(clf._predictor, is_bounded=True)
    assert len(facts["columns"]) == MOST_COLUMNS and facts["n_columns"] == MOST_COLUMNS + 5
    assert {(len(one["levels"]), one["n_levels"]) for one in facts["columns"]} == {(MOST_LEVELS, 42)}
    ranges = [one["range"] for one in facts["columns"]]
    assert ranges == sorted(ranges, reverse=True)
    assert len(clf.shapes()) == (MOST_COLUMNS + 5) * 42 + 1


# --- reasons ----------------------------------------------------------------------------------------------------------


def raised(X, reasons, value_of):
    """Return the rows with the first reason's column set to a value, by the column."""
    changed = X.astype(object).copy()
    for column, value in value_of.items():
        own = (reasons["reason_1"] == column).to_numpy()
        changed.loc[own, column] = value
    return changed


@pytest.mark.parametrize("decoupled", [False, True])
def test_the_best_value_raises_the_score_by_the_stated_points(people, decoupled):
    X, y, schema = people
    training = ParityTraining(decoupled=decoupled)
    clf = ParityPostprocessor(DemographicParity(0.05), schema=schema, sensitive="sex", training=training).fit(X, y)
    reasons, before = clf.reasons(X, n=2), log_odds(clf, X)
    denied = (reasons["prediction"] == "<=50K").to_numpy()
    assert denied.sum() > 1000
    shapes = clf.shapes()
    named = shapes[~shapes["level"].isin(["other", "missing"])]
    for group in ["Female", "Male"]:
        own = denied & (X["sex"] == group).to_numpy()
        table = named[named["group"] == (group if decoupled else "")].set_index("level")
        best = table.groupby("column")["points"].idxmax().drop("intercept")
        values = {
            column: float(level[1:].split(",")[0]) if level[0] in "[" else level for column, level in best.items()
        }
        changed = raised(X[own], reasons[own], values)
        # the group stays what it is even where the column that names it is the reason
        gained = log_odds(clf, changed, X.loc[own, "sex"]) - before[own]
        assert np.abs(gained - reasons.loc[own, "points_1"]).max() < 1e-6
    assert (reasons.loc[denied, "points_1"] >= reasons.loc[denied, "points_2"]).all()
    assert (reasons.loc[denied, "points_2"] >= 0).all()


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_no_single_named_value_of_a_column_gains_more_than_is_stated(mixed, model):
    X, y, schema = two_classes(mixed)
    clf = PrivateClassifier(schema=schema, epsilon=math.inf, training=Descent(model=model)).fit(X, y)
    few = X.head(300)
    reasons, before = clf.reasons(few, n=4), log_odds(clf, few)
    denied = (reasons["prediction"] == "no").to_numpy()
    tried = {
        "age": [18, 30, 50, 80], "town": ["a", "b", "c"], "score": [-3, -1.5, 0, 1.5, 3],
        "both": [-3, np.nextafter(-1, -2), -1, np.nextafter(1, 0), 1, 3],
    }  # fmt: skip
    stated = pd.DataFrame(0.0, index=few.index, columns=list(tried))
    for place in range(1, 5):
        for column in tried:
            own = reasons[f"reason_{place}"] == column
            stated.loc[own, column] = reasons.loc[own, f"points_{place}"]
    for column, values in tried.items():
        gains = np.max(
            [log_odds(clf, few.astype(object).assign(**{column: value})) - before for value in values], axis=0
        )
        assert np.abs(np.maximum(gains, 0) - stated[column])[denied].max() < 1e-5
    assert denied.sum() > 50


FINE = {"fine": (4, 0), "pairs": (1, 3), "fine and pairs": (4, 3)}


@pytest.mark.parametrize("detail", FINE)
def test_reasons_of_fine_bins_and_pairs_are_those_of_trials(mixed, detail):
    """Change the cell in the table, encode, score: for every named value of every column."""
    X, y, schema = two_classes(mixed)
    resolution, pair_bins = FINE[detail]
    training = Descent(features=FeatureDesign(resolution=resolution, pair_bins=pair_bins))
    clf = PrivateClassifier(schema=schema, epsilon=math.inf, training=training).fit(X, y)
    encoder, few = clf.inputs_.encoder, X.head(300)
    assert (encoder.detail.resolution, encoder.detail.pair_bins) == FINE[detail]
    reasons, before = clf.reasons(few, n=4), log_odds(clf, few)
    denied = (reasons["prediction"] == "no").to_numpy()
    stated = pd.DataFrame(0.0, index=few.index, columns=list(schema.columns))
    for place in range(1, 5):
        for column in stated:
            own = reasons[f"reason_{place}"] == column
            stated.loc[own, column] = reasons.loc[own, f"points_{place}"]
    tried = {"town": ["a", "b", "c"], "score": [-3, -1.5, 0, 1.5, 3]}
    for column, bounds in {"age": (18, 80), "both": (-3, 3)}.items():
        cuts = encoder.slots[list(schema.columns).index(column)].edges
        tried[column] = [bounds[0], *cuts, *(np.nextafter(cut, -100) for cut in cuts), bounds[1]]
    for column, values in tried.items():
        gains = [log_odds(clf, few.astype(object).assign(**{column: value})) - before for value in values]
        assert np.abs(np.maximum(np.max(gains, axis=0), 0) - stated[column])[denied].max() < 1e-5
    assert denied.sum() > 50
    if pair_bins:
        with pytest.raises(InvalidParameterError, match="Expected a linear model, whose score is a sum of points"):
            clf.shapes()
        facts = shape_facts(clf._predictor)
        assert facts["sentence"].startswith("The model weighs pairs of columns") and not facts["columns"]
        return
    shapes = clf.shapes().set_index(["column", "level"])["points"]
    assert len(shapes["age"]) == 4 * 3 + 1 and len(shapes["both"]) == 2 * 4 * 3 + 1
    rest = shapes["intercept"].sum() + sum(shapes[name, "missing"] for name in ("age", "town", "score"))
    bare = few.head(1).assign(age=np.nan, town=None, score=np.nan)
    for number, level in ((-3, "[-3, -2.5) at -3"), (0.5, "[0.5, 1) at 0.5"), (3, "[2.5, 3] at 3")):
        assert log_odds(clf, bare.assign(both=number))[0] == pytest.approx(rest + shapes["both", level], abs=1e-6)


def test_unlisted_categories_are_counted_where_rows_have_pairs(mixed):
    X, y, schema = two_classes(mixed)
    training = Descent(n_steps=5, features=FeatureDesign(pair_bins=3))
    clf = PrivateClassifier(schema=schema, training=training, epsilon=math.inf).fit(X, y)
    found = explain_decisions(clf._predictor, clf.classes_, X, 1, column_values(clf.inputs_.encoder))
    assert found.unknown_categories["town"] == int((X["town"] == "d").sum()) > 0


def test_an_unaware_rule_gets_reasons_in_its_own_score(people):
    X, y, schema = people
    clf = FairClassifier(DemographicParity(0.05), schema=schema, sensitive="sex", aware=False).fit(X, y)
    est, few = clf.estimator_, X.head(50)
    reasons = clf.reasons(few, n=1)
    rows = np.asarray(est.inputs_.rows(few, np.zeros(50, dtype=int)), float)

    def score(rows):
        scores = est.rule_.scores(est.model_.logits(est.params_.astype(float), rows), np.zeros(len(rows), dtype=int))
        return scores[1] - scores[0]

    names = np.array(est.inputs_.encoder.feature_levels)
    for place in np.flatnonzero(reasons["reason_1"] != ""):
        column, gains = reasons["reason_1"].iloc[place], []
        own = np.array([name.startswith((f"{column}=", f"{column} in ")) for name in names])
        for level in np.flatnonzero(own & ~np.isin(names, [f"{column}=other", f"{column}=missing"])):
            row = rows[place : place + 1].copy()
            row[:, own] = 0
            row[:, level] = 1
            gains.append(score(row)[0] - score(rows[place : place + 1])[0])
        assert max(gains) == pytest.approx(reasons["points_1"].iloc[place], abs=1e-9)
    assert "sex" not in set(reasons["reason_1"])


def test_favorable_decisions_have_no_reasons(people):
    X, y, schema = people
    clf = PrivateClassifier(schema=schema).fit(X, y)
    reasons = clf.reasons(X, n=3)
    favorable = reasons["prediction"] == ">50K"
    assert favorable.any() and not favorable.all()
    for place in (1, 2, 3):
        assert (reasons.loc[favorable, f"reason_{place}"] == "").all()
        assert (reasons.loc[favorable, f"points_{place}"] == 0).all()
    assert (reasons.loc[~favorable, "reason_1"] != "").all()
    assert list(reasons.columns)[:2] == ["prediction", "note"] and reasons.index.equals(X.index)
    assert np.array_equal(reasons["prediction"], clf.predict(X))


def test_with_several_classes_points_are_those_against_the_decided_class(mixed):
    X, y, schema = mixed
    clf = PrivateClassifier(schema=schema, epsilon=math.inf).fit(X, y)
    reasons, shown = clf.reasons(X, n=1), {"no": 0, "maybe": 1}
    logits = lambda table: clf.model_.logits(clf.params_.astype(float), clf.inputs_.encoder.rows(table).astype(float))  # noqa: E731
    before = logits(X)
    for name, code in shown.items():
        own = ((reasons["prediction"] == name) & (reasons["reason_1"] == "town")).to_numpy()
        gains = []
        for town in "abc":
            after = logits(X.assign(town=town))
            gains.append((after[2] - after[code]) - (before[2] - before[code]))
        assert np.allclose(np.max(gains, axis=0)[own], reasons.loc[own, "points_1"], atol=1e-6)
    assert (reasons.loc[reasons["prediction"] == "yes", "reason_1"] == "").all()


def test_a_typical_value_takes_the_place_of_the_best_one(people):
    X, y, schema = people
    clf = PrivateClassifier(epsilon=50.0, schema=schema).fit(X, y)  # noise makes no level of education the lowest
    typical = {"capital_gain": 0, "education": "HS-grad"}
    usual, reasons = clf.reasons(X, n=12), clf.reasons(X, n=12, typical=typical)
    points = [
        table.filter(like="points").to_numpy()[table.filter(like="reason").to_numpy() == "education"].max()
        for table in (usual, reasons)
    ]
    assert points[1] < points[0]
    before, after = log_odds(clf, X), log_odds(clf, X.assign(education="HS-grad"))
    for place in range(1, 13):
        own = (reasons[f"reason_{place}"] == "education").to_numpy()
        assert np.allclose((after - before)[own], reasons.loc[own, f"points_{place}"], atol=1e-6)
    is_named = (reasons.filter(like="reason") == "capital_gain").any(axis=1).to_numpy()
    assert not is_named[(X["capital_gain"] == 0).to_numpy()].any()


def test_missing_and_other_are_never_what_a_person_should_have_been():
    columns = {"town": Category(categories=("a", "b")), "age": Number(bounds=(0, 10), bins=2)}
    schema = Schema(target=Target(column="y", classes=("0", "1")), columns=columns, n_public=3000)
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"town": rng.choice(["a", "b", "x", None], 3000), "age": rng.choice([1.0, 9.0, np.nan], 3000)})
    y = (~X["town"].isin(["a", "b"]) | X["age"].isna()).astype(int)
    y = y.where(rng.random(3000) < 0.7, 0)
    clf = PrivateClassifier(schema=schema, epsilon=math.inf).fit(X, y)
    shapes = clf.shapes().set_index(["column", "level"])["points"]
    assert shapes["town", "other"] > shapes["town"][["a", "b"]].max()
    row = pd.DataFrame({"town": ["a", "b"], "age": [1.0, 9.0]})
    reasons = clf.reasons(row, n=2)
    most = shapes["town"][["a", "b"]].max() - shapes["town"][["a", "b"]].min()
    found = reasons.filter(like="points").to_numpy()[reasons.filter(like="reason").to_numpy() == "town"]
    assert found.max(initial=0.0) == pytest.approx(most, abs=1e-6)


@pytest.mark.parametrize("n", [0, -1, 13, 1.5, True, "3"])
def test_a_number_of_reasons_that_cannot_be(people, n):
    X, y, schema = people
    clf = PrivateClassifier(schema=schema, epsilon=math.inf, training=Descent(n_steps=5)).fit(X, y)
    with pytest.raises(InvalidParameterError, match=r"^Expected .* reason"):
        clf.reasons(X, n=n)


@pytest.mark.parametrize("typical", [{"capital_gian": 0}, {"education": "Astronaut"}, {"age": "forty"}, {"age": None}])
def test_a_typical_value_that_cannot_be(people, typical):
    X, y, schema = people
    clf = PrivateClassifier(schema=schema, epsilon=math.inf, training=Descent(n_steps=5)).fit(X, y)
    with pytest.raises(InvalidParameterError, match=f"^Expected .*{next(iter(typical))}"):
        clf.reasons(X, typical=typical)


def test_a_classifier_fitted_elsewhere_is_refused(mixed):
    X, y, schema = two_classes(mixed)
    inner = LogisticRegression().fit(X[["age", "score", "both"]].to_numpy(), y)
    numbers = schema.without("town")
    clf = ParityPostprocessor(schema=numbers, sensitive="sex", estimator=inner)
    clf.fit(X[["age", "score", "both"]].to_numpy(), y, sensitive_features=X["sex"])
    with pytest.raises(InvalidParameterError, match="got a LogisticRegression that was fitted elsewhere"):
        clf.reasons(X[["age", "score", "both"]].to_numpy(), sensitive_features=X["sex"])


def test_bad_values_change_no_reason_of_others_and_never_leave_their_row(people):
    X, y, schema = people
    clf = PrivateClassifier(schema=schema).fit(X, y)
    few = X.head(50).astype(object)
    before = clf.reasons(few, n=3)
    bad = few.copy()
    bad.iloc[7] = [
        "\x1b[31m" * 9,
        float("inf"),
        None,
        "=cmd()",
        b"\xff",
        {},
        [1],
        "x" * 10**6,
        1e999,
        "",
        "<b>",
        np.nan,
    ]
    after = clf.reasons(bad, n=3)
    others = np.arange(50) != 7
    assert after[others].equals(before[others])
    assert set(after.filter(like="reason").to_numpy().ravel()) <= {"", *schema.columns}
    assert np.isfinite(after.filter(like="points").to_numpy(dtype=float)).all()


def test_a_column_of_very_many_categories_needs_no_square_of_memory():
    names = tuple(f"n{place}" for place in range(60_000))
    columns = {"city": Category(categories=names), "x": Number(bounds=(0, 1), bins=2)}
    schema = Schema(target=Target(column="y", classes=("0", "1")), columns=columns, n_public=100)
    X = pd.DataFrame({"city": names[:20], "x": 0.3})
    clf = PrivateClassifier(schema=schema, epsilon=math.inf, training=Descent(n_steps=2)).fit(X, np.arange(20) % 2)
    assert len(clf.reasons(X, n=1)) == 20
    assert len(clf.shapes()) == 60_002 + 3 + 1


# --- notes ------------------------------------------------------------------------------------------------------------


def test_the_note_says_where_a_group_threshold_decides(people):
    X, y, schema = people
    clf = FairClassifier(DemographicParity(0.01), schema=schema, sensitive="sex", aware=True, epsilon=math.inf).fit(
        X, y
    )
    reasons = clf.reasons(X)
    differs = clf.classes_[clf.predict_proba(X).argmax(axis=1)] != reasons["prediction"].to_numpy()
    assert differs.any()
    assert np.array_equal(reasons["note"], np.where(differs, "fairness rule", ""))


def test_decisions_drawn_against_the_score_have_a_note_and_no_reasons(people):
    X, y, schema = people
    clf = RandomizedParityPostprocessor(schema=schema, sensitive="sex").fit(X, y)
    reasons, law = clf.reasons(X), clf.predict_proba(X)
    drawn = law.max(axis=1) < 1
    assert drawn.any() and not drawn.all()
    assert np.array_equal(reasons["note"].str.startswith("randomized"), drawn)
    against = reasons["note"] == "randomized against the score"
    logits = clf.model_.logits(clf.params_.astype(float), clf.inputs_.encoder.rows(X).astype(float))
    assert np.array_equal(against, drawn & ((logits[1] > logits[0]) != (reasons["prediction"] == ">50K")))
    assert against.any()
    assert (reasons.loc[against, ["reason_1", "reason_2", "reason_3"]] == "").all(axis=None)
    rest = (reasons["prediction"] == "<=50K") & ~against
    assert (reasons.loc[rest, "reason_1"] != "").all()


# --- unknown groups ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["thresholds", "decoupled", "feature", "front"])
def test_predict_warns_of_groups_that_the_schema_does_not_name(people, kind):
    X, y, schema = people
    facts = {"schema": schema, "sensitive": "sex"}
    clf = {
        "thresholds": ParityPostprocessor(DemographicParity(0.05), **facts),
        "decoupled": ParityPostprocessor(DemographicParity(0.05), training=ParityTraining(decoupled=True), **facts),
        "feature": PrivateClassifier(**facts),
        "front": FairClassifier(DemographicParity(0.05), aware=True, **facts),
    }[kind].fit(X, y)
    clf.predict(X)  # warnings are errors here
    spelled = X.assign(sex=X["sex"].str.lower().where(X["sex"] == "Female", X["sex"]))
    n_unknown = int((X["sex"] == "Female").sum())
    with pytest.warns(UnknownGroupWarning, match=rf"^{n_unknown} of 2000 rows .*sex \(Female, Male\)") as raised:
        clf.predict(spelled)
    assert raised[0].filename == __file__
    assert (clf.reasons(spelled)["note"].str.endswith("unknown group") == (X["sex"] == "Female")).all()
    few = X.assign(sex=X["sex"].astype(object).where(np.arange(N_ROWS) >= 20, "?"))
    clf.predict(few)  # one in a hundred is no caution


def test_who_does_not_read_the_group_is_not_warned(people):
    X, y, schema = people
    clf = FairClassifier(DemographicParity(0.05), schema=schema, sensitive="sex", aware=False).fit(X, y)
    clf.predict(X.assign(sex="x"))
    assert not clf.reasons(X.assign(sex="x"))["note"].str.contains("unknown").any()


def test_fit_states_no_count_of_unknown_groups(people):
    X, y, schema = people
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        PrivateClassifier(schema=schema, sensitive="sex").fit(X.assign(sex="x"), y)
        LagrangianClassifier(schema=schema.without("sex"), sensitive="sex").fit(X.assign(sex="x"), y)
    assert not any(issubclass(one.category, UnknownGroupWarning) for one in raised)
