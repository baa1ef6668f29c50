"""A method that is written in this file and registered here works everywhere, with no edit in the package.

It releases noisy counts of the labels and decides everyone for the most frequent class, so every gap is 0.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from fairveil import DemographicParity, FairClassifier, Ledger, load_dataset
from fairveil.cli import main
from fairveil.errors import InvalidParameterError
from fairveil.methods.base import ConstrainedClassifier, Method, training_of
from fairveil.methods.registry import METHODS, register
from fairveil.models import LinearSoftmax
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import Count, all_cells
from fairveil.privacy.veil import Veil
from fairveil.report.frontier import frontier_of, frontier_page
from fairveil.report.page import report_page
from fairveil.training.recipe import Fit, Task, no_progress


@dataclass(frozen=True)
class MajorityVote:
    """Releases one noisy count per label; `certainty` is the margin of the decision."""

    certainty: float = 1.0

    def model_for(self, task: Task) -> LinearSoftmax:
        return LinearSoftmax(task.n_features, task.n_classes)

    def check(self, task: Task) -> None:
        if self.certainty <= 0:
            raise InvalidParameterError(f"Expected certainty > 0, got {self.certainty!r}.")

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        return (Stage("train", (Release("labels", "gaussian", noise_multiplier),), share),)

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress=no_progress,
    ) -> Fit:
        shape = (task.people.n_groups, task.n_classes)
        query = Count(all_cells(*shape), shape[0] * shape[1])
        counts = veils["train"].draw().release_counts(query, "labels").reshape(shape).sum(axis=0)
        biases = self.certainty * (np.arange(task.n_classes) == counts.argmax())
        return Fit(self.model_for(task).pack(np.zeros((task.n_classes, task.n_features)), biases))


class MajorityClassifier(ConstrainedClassifier):
    """Decides everyone for the most frequent class.

    Parameters
    ----------
    constraint : constraint or list of constraints
    {epsilon, delta}
    training : MajorityVote, optional
    {schema}
    {sensitive}
    {holdout}
    {ledger}
    {random_state}
    """

    def _recipe(self, inputs):
        return training_of(self, MajorityVote)


MAJORITY = Method(
    name="majority",
    title="the most frequent class for everyone",
    paper="no paper",
    help="everyone gets the most frequent class",
    estimator=MajorityClassifier,
    recipe=MajorityVote,
    models=("linear",),
    color=9,
)


@pytest.fixture(autouse=True)
def majority():
    """The method is known while a test of this file runs."""
    yield register(MAJORITY)
    del METHODS[MAJORITY.name]


@pytest.fixture
def table(tmp_path):
    """A small table as a file, with its schema."""
    people = load_dataset("adult")
    people.frame.head(2000).to_csv(tmp_path / "people.csv", index=False)
    people.schema.model_copy(update={"n_public": 2000}).write(tmp_path / "schema.toml")
    return tmp_path


@pytest.fixture
def run(monkeypatch, capsys, table):
    """Run a command and return what it printed."""

    def call(*words: object) -> str:
        monkeypatch.chdir(table)
        monkeypatch.setattr("sys.argv", ["fairveil", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        assert not stop.value.code, printed.err
        return printed.out

    return call


def front_door(**choices) -> FairClassifier:
    people = load_dataset("adult")
    facts = {"schema": people.schema, "sensitive": "sex", "aware": True, "ledger": Ledger()}
    return FairClassifier(DemographicParity(0.05), **(facts | {"method": "majority"} | choices))


def test_it_is_planned_explained_fitted_certified_saved_and_loaded(tmp_path):
    people = load_dataset("adult")
    clf = front_door()
    assert "epsilon" in clf.explain()
    clf.fit(people.X, people.y)
    assert isinstance(clf.estimator_, MajorityClassifier)
    assert len(set(clf.predict(people.X.head(50)))) == 1
    assert clf.certificate_.smallest_tolerance is not None
    assert clf.epsilon_spent_ == pytest.approx(1.0, rel=1e-3)
    summary = clf.summary()
    assert summary["method"] == "majority" and summary["gap"]["value"] < 0.05
    assert "<html" in report_page(summary)
    assert "majority" in frontier_page(frontier_of([summary]))
    clf.save(tmp_path / "model")
    again = FairClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict(people.X.head(50)), clf.predict(people.X.head(50)))


def test_its_recipe_alone_selects_it_under_auto():
    assert front_door(method="auto", training=MajorityVote(2.0)).request().method is MAJORITY


def test_its_own_refusals_are_shown_before_anything_is_spent():
    clf = front_door(training=MajorityVote(-1.0))
    with pytest.raises(InvalidParameterError, match="certainty > 0"):
        clf.fit(load_dataset("adult").X, load_dataset("adult").y)
    assert not clf.ledger.entries


def test_the_command_line_explains_trains_certifies_and_predicts(run, table):
    options = (
        "--schema",
        "schema.toml",
        "--aware",
        "--method",
        "majority",
        "--tolerance",
        "0.1",
        "--epsilon",
        "2",
    )
    plan = json.loads(run("explain", "people.csv", *options, "--json"))
    assert [stage["part"] for stage in plan["plan"]] == ["train", "holdout"]
    summary = json.loads(run("train", "people.csv", *options, "--out", "results", "--json"))
    assert summary["method"] == "majority"
    assert (table / "results" / "report.html").exists()
    run("predict", "results/model", "people.csv", "--out", "decisions.csv")
    load_dataset("adult").frame.tail(2000).to_csv("others.csv", index=False)
    certificate = json.loads(run("certify", "results/model", "others.csv", "--epsilon", "1", "--json"))
    assert certificate["claims"]
    assert "majority" in run("train", "--help")


def test_the_command_line_sweeps_it(run, table):
    options = ("--schema", "schema.toml", "--aware", "--epsilons", "1", "--tolerances", "0,0.1")
    frontier = json.loads(run("frontier", "people.csv", *options, "--methods", "majority", "--out", "sweep", "--json"))
    assert [point["method"] for point in frontier["points"]] == ["majority", "majority"]
    assert (table / "sweep" / "frontier.html").exists()
