"""What holds for every method of the registry, trained through the front door."""

import json
import warnings

import numpy as np
import pytest

from _support.methods import NAMES, parameters_of
from _support.spoiling import WAYS, spoil
from fairveil import FairClassifier, Ledger, SmallTableWarning, ToleranceNotMetWarning
from fairveil.methods.registry import METHODS

N_ROWS = 600


@pytest.fixture(scope="module")
def some(people):
    return people.X.head(N_ROWS), people.y.head(N_ROWS)


def classifier(people, name, n_public=N_ROWS, **choices):
    schema = people.schema.model_copy(update={"n_public": n_public})
    return FairClassifier(schema=schema, ledger=Ledger(), holdout=0.3, **(parameters_of(name) | choices))


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_bad_values_change_no_message_and_no_debit(people, some, name, how):
    """Whatever the cells hold, the fit says nothing but the stated warning, costs what was planned, and is finite."""
    clf = classifier(people, name)
    planned = clf.planned()
    X, y = spoil(*some, how)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for stated in (SmallTableWarning, ToleranceNotMetWarning):
            warnings.simplefilter("ignore", stated)
        clf.fit(X, y)
        assert np.isfinite(clf.predict_proba(some[0])).all()
        assert set(clf.predict(some[0])) <= set(people.schema.target.classes)
        summary = clf.summary()
    json.dumps(summary, allow_nan=False)
    assert clf.plan_ == planned
    (entry,) = clf.ledger_.entries
    debited = [(charge.event, charge.part, charge.unit) for charge in entry.charges]
    assert debited == [(charge.event, charge.part, charge.unit) for charge in planned.charges()]


@pytest.mark.parametrize("n_public", [3, 10**7])
@pytest.mark.parametrize("name", [name for name in NAMES if METHODS[name].protects == "record"])
def test_a_public_size_that_is_far_off_costs_accuracy_only(people, some, name, n_public):
    """Where an attribute alone is secret, the number of records is public and counted."""
    clf = classifier(people, name, n_public, delta=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for stated in (SmallTableWarning, ToleranceNotMetWarning):
            warnings.simplefilter("ignore", stated)
        clf.fit(*spoil(*some, "no rows"))
        assert np.isfinite(clf.predict_proba(some[0])).all()
    assert clf.epsilon_spent_ <= 1.0
