"""Every method takes tables of any kind, sensitive features inside and outside of them, and a schema by its file."""

import math
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from _support.methods import NAMES, parameters_of
from fairveil import DemographicParity, FairClassifier, Ledger, PrivateClassifier
from fairveil.errors import BadStructureError, InvalidParameterError
from fairveil.methods.registry import METHODS

pytestmark = pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning")

N_ROWS = 500
RECORDS = [name for name in NAMES if METHODS[name].protects == "record"]


@pytest.fixture(scope="module")
def some(people):
    return people.X.head(N_ROWS), people.y.head(N_ROWS)


def classifier(people, name, **choices):
    """A classifier without noise, so that two fits on the same rows agree to the bit."""
    schema = people.schema.model_copy(update={"n_public": N_ROWS})
    facts = {"schema": schema, "ledger": Ledger(), "holdout": 0.3, "epsilon": math.inf}
    return FairClassifier(**(parameters_of(name) | facts | choices))


def one_sentence(error):
    text = str(error.value)
    return text.startswith("Expected ") and text[-1] == "." and "\n" not in text


# --- frames -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_polars_and_arrow_give_what_pandas_gives(people, some, name):
    X, y = some
    clf = classifier(people, name)
    expected = clone(clf).fit(X, y)
    certified = expected.certify(X, y, math.inf, ledger=Ledger())
    for table, labels in (
        (pl.from_pandas(X), pl.from_pandas(y)),
        (pa.Table.from_pandas(X, preserve_index=False), pa.array(y)),
        (pl.from_pandas(X), y.to_numpy()),
    ):
        found = clone(clf).fit(table, labels)
        assert np.array_equal(found.predict_proba(table), expected.predict_proba(X))
        if expected.key_ is not None:
            found.estimator_.use_key(expected.key_)
        assert np.array_equal(found.predict(table), expected.predict(X))
        if expected.key_ is None:  # secret draws decide otherwise
            assert found.certify(table, labels, math.inf, ledger=Ledger()) == certified
        assert found.evaluation_.counts.tolist() == expected.evaluation_.counts.tolist()


def test_ids_of_any_kind_decide_as_ids_of_pandas(people, some):
    X, y = some
    clf = classifier(people, "parity", constraint=DemographicParity(0.0)).fit(X, y)
    ids = pd.Series(np.arange(N_ROWS) + 2**60)
    expected = clf.predict(X, record_ids=ids)
    assert not np.array_equal(expected, clf.predict(X, record_ids=ids + 1))
    for other in (pl.from_pandas(ids), pa.array(ids), ids.to_list()):
        assert np.array_equal(clf.predict(pl.from_pandas(X), record_ids=other), expected)


def test_the_id_column_of_a_frame_is_read(people, some):
    X = some[0].assign(who=np.arange(N_ROWS) + 2**60)
    schema = people.schema.model_copy(update={"n_public": N_ROWS, "id_column": "who"})
    clf = classifier(people, "parity", schema=schema).fit(X, some[1])
    assert np.array_equal(clf.predict(pl.from_pandas(X)), clf.predict(X))
    assert np.array_equal(clf.predict(pl.from_pandas(X)), clf.predict(X, record_ids=X["who"]))


def test_lazy_frames_are_refused_before_anything_is_debited(people, some):
    X, y = some
    clf = classifier(people, "dp2dp", epsilon=1.0)
    with pytest.raises(BadStructureError, match="collect") as told:
        clf.fit(pl.from_pandas(X).lazy(), y)
    assert one_sentence(told) and clf.ledger.entries == ()


def test_columns_that_the_schema_does_not_read_may_have_any_type(people, some):
    X, y = some
    table = pl.from_pandas(X).with_columns(pl.lit([1, 2]).alias("tags"), pl.Series("any", [object()] * N_ROWS))
    clf = classifier(people, "dp2dp").fit(table, y)
    assert np.array_equal(clf.predict(table), clf.predict(X))
    with pytest.raises(BadStructureError, match='"age"') as told:
        clf.predict(table.with_columns(pl.lit([1, 2]).alias("age")))
    assert one_sentence(told)


def test_labels_of_a_wrong_type_are_refused_in_any_frame(people, some):
    with pytest.raises(BadStructureError, match="type of the schema's classes") as told:
        classifier(people, "dp2dp").fit(some[0], pl.Series([True] * N_ROWS))
    assert one_sentence(told)


def test_a_classifier_that_was_fitted_elsewhere_gets_pandas(people, some):
    X, y = some
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression(max_iter=300)).fit(X, y)
    clf = classifier(people, "dp2dp", estimator=FrozenEstimator(model))
    expected, found = clone(clf).fit(X, y), clone(clf).fit(pl.from_pandas(X), pl.from_pandas(y))
    assert np.array_equal(found.predict_proba(pl.from_pandas(X)), expected.predict_proba(X))


# --- sensitive features -----------------------------------------------------------------------------------------------


AWARE = [*((name, True) for name in RECORDS), *((name, False) for name in RECORDS if not METHODS[name].reads_group)]


@pytest.mark.parametrize("name, aware", AWARE)
def test_sensitive_features_apart_give_what_the_column_inside_gives(people, some, name, aware):
    X, y = some
    bare, sex = X.drop(columns="sex"), X["sex"]
    clf = classifier(people, name, aware=aware)
    inside = clone(clf).fit(X, y)
    law = inside.predict_proba(X)
    for table, apart in (
        (bare, sex),
        (bare, sex.to_numpy()),
        (bare, sex.to_list()),
        (bare, X[["race", "sex"]]),
        (bare.set_axis(np.arange(N_ROWS)[::-1]), sex),  # rows belong together by their places
        (pl.from_pandas(bare), pl.from_pandas(sex)),
        (pl.from_pandas(bare), pl.from_pandas(X[["sex"]])),
        (bare.to_numpy(dtype=object), sex),
    ):
        if not aware and isinstance(table, np.ndarray):
            continue  # the column is then no feature, and an array has no names to find others by
        outside = clone(clf).fit(table, y, sensitive_features=apart)
        assert np.array_equal(outside.predict_proba(table, apart), law)
        assert np.array_equal(outside.predict_proba(X), law)
        counted = outside.certify(table, y, math.inf, sensitive_features=apart, ledger=Ledger())
        if inside.key_ is None:  # secret draws decide otherwise
            assert counted == inside.certify(X, y, math.inf, ledger=Ledger())


@pytest.mark.parametrize("name", [name for name in ("dp2dp", "raco") if name in NAMES])
def test_several_sensitive_columns_come_as_a_frame(people, some, name):
    X, y = some
    names = ["race", "sex"]
    clf = classifier(people, name, aware=True, sensitive=names)
    inside = clone(clf).fit(X, y)
    bare = X.drop(columns=names)
    for apart in (X[names], X[names[::-1]], pl.from_pandas(X[names])):
        outside = clone(clf).fit(bare, y, sensitive_features=apart)
        assert np.array_equal(outside.predict(bare, apart), inside.predict(X))
    with pytest.raises(BadStructureError, match="as a DataFrame with the columns") as told:
        clone(clf).fit(bare, y, sensitive_features=X["sex"])
    assert one_sentence(told)


def test_the_column_of_the_table_stays_the_feature(people, some):
    """Features passed separately decide the group; the model reads its own column where the table has it."""
    X, y = some
    swapped = X["sex"].map({"Male": "Female", "Female": "Male"})
    model = classifier(people, "dpsgd", aware=True).fit(X, y)
    assert np.array_equal(model.predict_proba(X, swapped), model.predict_proba(X))
    assert not np.array_equal(model.predict_proba(X.drop(columns="sex"), swapped), model.predict_proba(X))


def test_sensitive_features_of_another_length_are_refused(people, some):
    X, y = some
    bare, short = X.drop(columns="sex"), X["sex"].head(7)
    clf = classifier(people, "dp2dp", aware=True, epsilon=1.0)
    with pytest.raises(BadStructureError, match="length") as told:
        clf.fit(bare, y, sensitive_features=short)
    assert one_sentence(told) and clf.ledger.entries == () and not any(char.isdigit() for char in str(told.value))
    fitted = classifier(people, "dp2dp", aware=True).fit(X, y)
    with pytest.raises(BadStructureError, match="length"):
        fitted.predict(bare, short)


def test_without_the_column_and_without_features_it_is_missed(people, some):
    X, y = some
    clf = classifier(people, "raco", aware=True).fit(X, y)
    with pytest.raises(BadStructureError, match='Expected a column "sex"'):
        clf.predict(X.drop(columns="sex"))


# --- the schema by its file -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def file(people, tmp_path_factory):
    place = tmp_path_factory.mktemp("schema") / "people.toml"
    people.schema.model_copy(update={"n_public": N_ROWS}).write(place)
    return place


def written(schema, folder):
    schema.write(folder / "own.toml")
    return folder / "own.toml"


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_taken_by_its_file(people, some, file, name, tmp_path):
    X, y = some
    for path in (file, str(file)):
        clf = clone(classifier(people, name, schema=path))
        assert clf.get_params()["schema"] == path and clf.planned() == classifier(people, name).planned()
        assert np.array_equal(clf.fit(X, y).predict_proba(X), classifier(people, name).fit(X, y).predict_proba(X))
        assert clf.schema == path and clf.explain() == classifier(people, name).explain()

        request = classifier(people, name, epsilon=1.0).request()
        estimator = METHODS[name].make_estimator(request)
        planned = estimator.planned()
        assert clone(estimator).set_params(schema=written(request.prepared_schema(), tmp_path)).planned() == planned


def test_a_schema_by_its_file_is_searched_pickled_saved_and_loaded(people, some, file, tmp_path):
    X, y = some
    clf = FairClassifier(
        DemographicParity(0.2), sensitive="sex", aware=True, schema=file, ledger=tmp_path / "people.ledger.jsonl"
    )
    assert len(cross_val_score(clf, X, y, cv=2)) == 2
    clf.fit(X, y).save(tmp_path / "model")
    assert np.array_equal(FairClassifier.load(tmp_path / "model").predict(X), clf.predict(X))
    assert np.array_equal(pickle.loads(pickle.dumps(clf)).predict(X), clf.predict(X))


def test_a_schema_of_another_kind_and_a_missing_file_are_one_sentence(people, some, tmp_path):
    for kind in (FairClassifier, PrivateClassifier):
        choices = {"aware": True} if kind is FairClassifier else {}
        for schema, error in (({}, InvalidParameterError), (tmp_path / "none.toml", BadStructureError)):
            ledger = Ledger()
            with pytest.raises(error) as told:
                kind(schema=schema, ledger=ledger, **choices).fit(*some)
            assert str(told.value).startswith("Expected ") and ledger.entries == ()
