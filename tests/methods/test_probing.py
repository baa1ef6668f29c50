"""Classifiers fitted elsewhere are tried on made-up rows: those that read more than one row at a time are refused."""

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, QuantileTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from fairveil import (
    DemographicParity,
    FairClassifier,
    Ledger,
    ParityPostprocessor,
    ParityTraining,
    RandomizedParityPostprocessor,
    Schema,
    report_page,
)
from fairveil.data.schema import Category, Number, Sensitive, Target
from fairveil.errors import BadStructureError, InvalidParameterError
from fairveil.methods.inputs import PrefittedClassifier, TableSource
from fairveil.methods.probing import SyntheticRows, check_rows_alone

pytestmark = pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning")

SCHEMA = Schema(
    n_public=1000,
    target=Target(column="hired", classes=["no", "yes"]),
    sensitive=(Sensitive(column="sex", groups=["f", "m"]),),
    columns={
        "income": Number(bounds=(0, 100), cuts=[20, 50]),
        "age": Number(bounds=(18, 70), encode="scale"),
        "job": Category(categories=["cook", "nurse", "clerk"]),
        "code": Category(categories=["1", "2", "3"]),
        "sex": Category(categories=["f", "m"]),
    },
)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(3)
    X = pd.DataFrame({
        "income": rng.uniform(0, 100, 1000), "age": rng.integers(18, 71, 1000), "code": rng.integers(1, 4, 1000),
        "job": rng.choice(["cook", "nurse", "clerk"], 1000), "sex": rng.choice(["f", "m"], 1000),
    })  # fmt: skip
    y = np.where(X["income"] + 20 * (X["sex"] == "m") + rng.normal(0, 20, 1000) > 60, "yes", "no")
    return X, pd.Series(y)


def post(estimator, **choices):
    facts = {"schema": SCHEMA, "sensitive": "sex", "ledger": Ledger(), "estimator": estimator}
    return ParityPostprocessor(DemographicParity(0.1), **(facts | choices))


class Made(ClassifierMixin, BaseEstimator):
    """A classifier whose probability of "yes" is a function of the whole table."""

    def __init__(self, chances):
        self.chances, self.classes_, self.n_calls = chances, np.array(["no", "yes"]), 0

    def predict_proba(self, X):
        self.n_calls += 1
        chances = np.clip(np.broadcast_to(self.chances(X, self.n_calls), (len(X),)), 0, 1)
        return np.column_stack([1 - chances, chances])


def income(X):
    return np.nan_to_num(X["income"].to_numpy(float) / 100)


DISHONEST = {
    "mean of the table": lambda X, call: 0.5 + (income(X) - income(X).mean()) / 4,
    "rank in the table": lambda X, call: np.argsort(np.argsort(income(X))) / len(X),
    "largest of the table": lambda X, call: income(X) / (1 + np.abs(income(X)).max()),
    "counts its calls": lambda X, call: call / 100,
    "another answer every second call": lambda X, call: 0.3 + 0.1 * (call % 2),
    "another answer from the third call": lambda X, call: 0.3 if call < 3 else 0.4,
    "reads the first row": lambda X, call: income(X)[0],
    "reads the last row": lambda X, call: income(X)[-1],
    "reads the row before": lambda X, call: np.roll(income(X), 1),
    "position": lambda X, call: np.arange(len(X)) / len(X),
    "many rows": lambda X, call: 0.2 if len(X) > 200 else 0.3,
    "a single row": lambda X, call: 0.2 if len(X) == 1 else 0.3,
    "one nurse changes everybody": lambda X, call: 0.2 if (X["job"] == "nurse").any() else 0.3,
    "a stranger changes everybody": lambda X, call: 0.2 if (X["income"] > 100).any() else 0.3,
    "a missing cell changes everybody": lambda X, call: 0.2 if X["income"].isna().any() else 0.3,
    "a small shift by the table": lambda X, call: 0.3 + 1e-4 * income(X).mean(),
    "raises on a single row": lambda X, call: 0.3 if len(X) > 1 else 1 / 0,
}


@pytest.mark.parametrize("name", DISHONEST)
def test_a_classifier_that_reads_other_rows_is_refused(people, name):
    clf = post(Made(DISHONEST[name]))
    with pytest.raises(InvalidParameterError, match="answers each row by itself, got a Made whose answers") as refused:
        clf.fit(*people)
    assert str(refused.value).endswith(".") and "\n" not in str(refused.value)
    assert clf.ledger.entries == () and not hasattr(clf, "rule_")


def test_an_answer_drawn_at_random_is_refused(people):
    random = DummyClassifier(strategy="stratified").fit(*people)
    with pytest.raises(InvalidParameterError, match="same rows are passed again"):
        post(random).fit(*people)


@pytest.mark.parametrize("kind", [ParityPostprocessor, RandomizedParityPostprocessor, FairClassifier])
def test_every_way_to_wrap_a_classifier_tries_it(people, kind):
    front = {"aware": True} if kind is FairClassifier else {}
    clf = kind(schema=SCHEMA, sensitive="sex", ledger=Ledger(), estimator=Made(DISHONEST["mean of the table"]), **front)
    with pytest.raises(InvalidParameterError, match="each row by itself"):
        clf.fit(*people)
    assert clf.ledger.entries == ()


def test_certifying_with_another_classifier_tries_that_one(people, tmp_path):
    post(Made(lambda X, call: income(X)), holdout=0.2).fit(*people).save(tmp_path / "model")
    swapped = ParityPostprocessor.load(tmp_path / "model", estimator=Made(DISHONEST["reads the first row"]))
    theirs = Ledger()
    with pytest.raises(InvalidParameterError, match="each row by itself"):
        swapped.count_outcomes(TableSource(*people), 1.0, 1e-5, theirs)
    assert theirs.entries == ()


def prepared(model, encoder=None, scaler=None):
    codes = OneHotEncoder(handle_unknown="ignore") if encoder is None else encoder
    texts = make_column_selector(dtype_exclude="number")
    return make_pipeline(make_column_transformer((codes, texts), remainder=scaler or StandardScaler()), model)


HONEST = {
    "logistic": lambda: prepared(LogisticRegression()),
    "ranks learned beforehand": lambda: prepared(LogisticRegression(), scaler=QuantileTransformer(n_quantiles=50)),
    "strict encoder": lambda: prepared(LogisticRegression(), OneHotEncoder(handle_unknown="error")),
    "tree": lambda: prepared(DecisionTreeClassifier(max_depth=4)),
    "forest": lambda: prepared(RandomForestClassifier(10)),
    "boosting": lambda: prepared(
        HistGradientBoostingClassifier(max_iter=5),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    ),
    "neighbors": lambda: prepared(KNeighborsClassifier()),
    "SVC": lambda: prepared(CalibratedClassifierCV(SVC(), ensemble=False, cv=3)),
    "same for everyone": lambda: DummyClassifier(strategy="prior"),
}


@pytest.mark.parametrize("name", HONEST)
def test_pipelines_of_scikit_learn_are_accepted(people, name):
    model = HONEST[name]().fit(*people)
    clf = post(FrozenEstimator(model)).fit(*people)
    assert len(clf.ledger.entries) == 1
    assert np.allclose(clf.predict_proba(people[0]), model.predict_proba(people[0]), atol=1e-6)


TYPES = {
    "text": lambda X: X.astype(str),
    "objects": lambda X: X.astype(object),
    "objects that spell numbers": lambda X: X.astype(str).astype(object),
    "categories": lambda X: X.astype({"job": "category", "sex": "category", "code": "category"}),
    "nullable": lambda X: X.astype({"income": "Float64", "age": "Int64", "code": "Int64"}),
    "further columns": lambda X: X.assign(
        note="x", when=pd.Timestamp("2020-01-01"), flag=True, size=2.5, n=np.uint8(3)
    ),
    "rare types": lambda X: X.assign(
        zoned=pd.Timestamp("2020-01-01", tz="UTC"),
        day=pd.Period("2020-01-01"),
        long=pd.Timedelta(1, "D"),
        listed=pd.Series([[1]] * len(X), dtype=pd.ArrowDtype(pa.list_(pa.int8()))),
        text=pd.Series("x", index=X.index, dtype=pd.ArrowDtype(pa.string())),
        between=pd.Interval(0.0, 1.0),
    ),
}
NOT_FOR_SCIKIT_LEARN = ["when", "zoned", "day", "long", "listed", "text", "between"]


@pytest.mark.parametrize("name", TYPES)
def test_made_up_rows_have_the_types_of_the_table(people, name):
    X = TYPES[name](people[0])
    read = X.drop(columns=NOT_FOR_SCIKIT_LEARN, errors="ignore")
    model = prepared(LogisticRegression()).fit(read, people[1])
    rows = SyntheticRows.of(SCHEMA, X)
    table = rows.table(np.arange(rows.n_rows))
    assert table.dtypes.equals(X.dtypes) and list(table.columns) == list(X.columns)
    check_rows_alone("Pipeline", PrefittedClassifier.of(model, ("no", "yes")).probabilities, SCHEMA, read)


def test_made_up_rows_hold_ends_categories_missing_and_beyond(people):
    rows = SyntheticRows.of(SCHEMA, people[0])
    table = rows.table(np.arange(rows.n_rows))
    assert {0.0, 100.0, 50.0, 20.0} <= set(table["income"])
    assert table["income"].min() < 0 and table["income"].max() > 100 and table["income"].isna().any()
    assert {18, 70} <= set(table["age"]) and table["age"].dtype == people[0]["age"].dtype
    assert {"cook", "nurse", "clerk"} <= set(table["job"]) and table["job"].isna().any()
    assert set(table["job"].dropna()) - {"cook", "nurse", "clerk"}
    assert {1, 2, 3} < set(table["code"])


def test_no_value_of_the_real_table_is_used(people):
    X = people[0].assign(job="secret", income=12.345)
    everything = SyntheticRows.of(SCHEMA, X).table(np.arange(40)).to_csv()
    assert "secret" not in everything and "12.345" not in everything


def test_arrays_are_tried_as_well(people):
    facts = Schema.for_arrays(2, classes=["no", "yes"], bounds=(0, 100), groups=["f", "m"], n_public=1000)
    X, y, sex = people[0][["income", "age"]].to_numpy(), people[1], people[0]["sex"]
    honest = LogisticRegression().fit(X, y)
    choices = {"schema": facts, "sensitive": "group"}
    assert len(post(honest, **choices).fit(X, y, sensitive_features=sex).ledger_.entries) == 1
    centered = Made(lambda X, call: 0.5 + 0.01 * (X[:, 0] - np.nanmean(X[:, 0])))
    with pytest.raises(InvalidParameterError, match="each row by itself"):
        post(centered, **choices).fit(X, y, sensitive_features=sex)


@pytest.mark.parametrize(
    "X", [pd.DataFrame(index=range(9)), np.zeros((9, 0)), [[1.0]] * 9], ids=["frame", "array", "list"]
)
def test_a_table_that_cannot_be_imitated_is_refused(X):
    with pytest.raises(BadStructureError, match="Expected a DataFrame or an array with columns"):
        check_rows_alone("Made", Made(lambda X, call: 0.5).predict_proba, SCHEMA, X)


def test_categories_of_a_type_are_used_but_few_beyond_the_schema(people):
    many = pd.CategoricalDtype([*(f"job {number}" for number in range(5000)), "nurse", "cook", "clerk"])
    rows = SyntheticRows.of(SCHEMA, people[0].astype({"job": many}))
    assert rows.n_rows < 200
    assert {"nurse", "cook", "job 0"} <= set(rows.table(np.arange(rows.n_rows))["job"])


def test_a_classifier_that_answers_no_row_of_the_schema_is_refused(people):
    clf = post(Made(lambda X, call: 1 / 0))
    with pytest.raises(InvalidParameterError, match="raises an error on rows made from the schema"):
        clf.fit(*people)
    assert clf.ledger.entries == ()


def test_an_answer_of_another_shape_keeps_its_own_sentence(people):
    class Short(Made):
        def predict_proba(self, X):
            return super().predict_proba(X)[:-1]

    with pytest.raises(BadStructureError, match="one probability for each row"):
        post(Short(lambda X, call: 0.5)).fit(*people)


def test_what_cannot_be_checked_is_said_where_people_read(people):
    model = Made(lambda X, call: income(X))
    clf = FairClassifier(
        DemographicParity(0.1), sensitive="sex", aware=True, schema=SCHEMA, estimator=model, ledger=Ledger()
    )
    assert "made from the schema" in clf.explain()
    clf.fit(*people)
    assert "Assumed: the Made answers each row by itself" in clf.estimator_.coverage_
    summary = clf.summary()
    (caution,) = (one for one in summary["cautions"] if "each row by itself" in one)
    assert "cannot be checked" in caution
    assert any("depends on other rows" in one for one in summary["statement"]["not_covered"])
    page = report_page(summary)
    assert caution in page and "depends on other rows" in page


@pytest.mark.parametrize("jitter", [0.0, 1e-12, 1e-3])
def test_a_jitter_that_hides_no_rounding_is_refused(people, jitter):
    clf = post(Made(lambda X, call: income(X)), training=ParityTraining(jitter=jitter))
    with pytest.raises(InvalidParameterError, match="Expected a jitter of at least"):
        clf.fit(*people)
    assert clf.ledger.entries == ()
    clf.set_params(epsilon=math.inf).fit(*people)
