"""Every method of the registry, and a private choice among recipes, on workers of one process: trained or refused."""

import numpy as np
import pytest

from _support.local_ray import LocalRay
from _support.methods import NAMES, parameters_of
from fairveil import Descent, FairClassifier, Ledger
from fairveil._random import secret_coins
from fairveil.errors import InvalidParameterError
from fairveil.methods.inputs import InputSpec
from fairveil.methods.registry import METHODS
from fairveil.privacy.attribute import AttributeRecords
from fairveil.scale.ray_records import check_plan, refuse_attributes
from fairveil.training.tuning import Tuning, run_tuned_plan, tuned_plan

from .conftest import local_records, table, task_for

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning")]

REFUSED = {name for name in NAMES if name == "output" or METHODS[name].protects == "attribute"}


@pytest.fixture
def on_workers(monkeypatch):
    """Let every fit keep its rows on three workers, and return the Ray of the last one."""
    opened, of_memory = [], InputSpec.records

    def records(inputs, source):
        own = of_memory(inputs, source)
        if isinstance(own, AttributeRecords):
            refuse_attributes()
        opened.append(LocalRay())
        return local_records(own, 3, opened[-1])

    monkeypatch.setattr(InputSpec, "records", records)
    return opened


def classifier(people, **choices):
    schema = people.schema.model_copy(update={"n_public": 600})
    return FairClassifier(schema=schema, ledger=Ledger(), holdout=0.3, **choices)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_a_method_trains_on_workers(people, few, on_workers, name):
    clf = classifier(people, **parameters_of(name))
    check_plan(clf.planned())
    X, y = (part.head(600) for part in few)
    clf.fit(X, y)
    assert np.isfinite(clf.predict_proba(X)).all()
    assert len(clf.ledger_.entries) == 1
    assert sum(call[0] == "start" for call in on_workers[-1].calls) == 3


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_method_that_is_no_sum_is_refused_before_its_debit(people, name):
    with pytest.raises(InvalidParameterError, match=r"use the engine memory or disk, or another method\.$"):
        check_plan(classifier(people, **parameters_of(name)).planned())


def test_a_private_choice_among_recipes_runs_on_workers(rng):
    """Every run of the choice splits its rows anew; shards forget those of earlier runs."""
    people, ledger = table(rng, 600), Ledger()
    records, task = local_records(people, 3), task_for(people, 1.0)
    recipes = tuple(Descent(n_steps=3, sampling_rate=0.2, learning_rate=rate) for rate in (0.1, 1.0))
    tuning = Tuning(recipes, mean_runs=20.0)
    plan = tuned_plan(tuning, task, 0.3)
    check_plan(plan)
    tuned = run_tuned_plan(plan, tuning, task, records, ledger, secret_coins(), np.random.default_rng(0))
    assert np.isfinite(tuned.trained.fit.params).all()
    assert len(ledger.entries) == 1
    for actor in records._workers.actors:
        assert len(actor.shard._records) + len(actor.shard._streams) < next(records._workers._numbers) / 4
