"""Without `ledger=`, what is released is recorded in memory alone: the first fit says so, and so does the evidence."""

import math
import warnings
from pathlib import Path

import pytest
from sklearn.base import clone

from fairveil import FairClassifier, MemoryLedgerWarning, PrivateClassifier, report_page, session_ledger
from fairveil.errors import InvalidParameterError
from fairveil.privacy import ledger as ledgers
from fairveil.privacy.ledger import Ledger

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def new_process(monkeypatch):
    """A process that has released nothing yet, and whose warnings are heard."""
    monkeypatch.setattr(ledgers, "_PROCESS_LEDGER", Ledger())
    with warnings.catch_warnings():
        warnings.simplefilter("error", MemoryLedgerWarning)
        yield


def classifier(people, **options):
    return FairClassifier(sensitive="sex", aware=False, method="dpsgd", schema=people.schema, **options)


def test_the_first_fit_in_memory_warns_once(people, few):
    clf = classifier(people)
    with pytest.warns(MemoryLedgerWarning, match=r'ledger="people.ledger.jsonl"') as caught:
        clf.fit(*few)
    assert caught[0].filename == __file__
    clone(clf).fit(*few)  # a second warning would be an error
    assert len(session_ledger().entries) == 2


def test_a_certificate_in_memory_warns_too(people, few, tmp_path):
    clf = classifier(people, ledger=tmp_path / "people.ledger.jsonl").fit(*few)
    with pytest.warns(MemoryLedgerWarning) as caught:
        clf.certify(*few, epsilon=1.0)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("kind", [str, Path, Ledger])
def test_a_ledger_may_be_named_by_its_path(people, few, tmp_path, kind):
    path = tmp_path / "people.ledger.jsonl"
    clf = clone(classifier(people, ledger=kind(path))).fit(*few)
    PrivateClassifier(schema=people.schema, ledger=kind(path)).fit(*few)
    clf.certify(*few, epsilon=1.0, ledger=kind(tmp_path / "others.ledger.jsonl"))
    assert [entry.purpose for entry in Ledger(path).entries] == ["fit of PrivateClassifier"] * 2
    assert len(Ledger(tmp_path / "others.ledger.jsonl").entries) == 1
    assert not session_ledger().entries
    summary = clf.summary()
    assert summary["statement"]["total"].startswith("Everything ever released from these people by this ledger")
    assert summary["ledger"]["in_memory"] is False


def test_evidence_from_memory_speaks_of_this_process_alone(people, few):
    with pytest.warns(MemoryLedgerWarning):
        summary = classifier(people).fit(*few).summary()
    page = report_page(summary)
    assert summary["ledger"]["in_memory"] is True
    assert "this process released" in summary["statement"]["total"]
    assert "ever released" not in summary["statement"]["total"]
    assert "Spent by this process" in page and "Ever spent" not in page


def test_a_fit_without_privacy_does_not_warn(people, few):
    classifier(people, epsilon=math.inf).fit(*few)


@pytest.mark.parametrize("ledger", [3, {}, b"people.ledger.jsonl"])
def test_what_is_neither_a_ledger_nor_a_path_is_refused(people, few, ledger):
    with pytest.raises(InvalidParameterError, match=r'write ledger="people.ledger.jsonl"'):
        classifier(people, ledger=ledger).fit(*few)
