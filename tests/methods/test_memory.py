"""Where memory runs out: one sentence without the size of an array, and nothing paid as far as it can be foreseen."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from fairveil import FairClassifier, Ledger, Schema
from fairveil.errors import FairveilError, NotEnoughMemoryError, without_array_sizes
from fairveil.methods.inputs import InputSpec, TableSource
from fairveil.privacy.records import MemoryRecords

PROGRAM = """
import json, resource, sys
import numpy as np
from pathlib import Path
from fairveil import Ledger, PrivateClassifier, Schema
from fairveil.data.schema import Number

megabytes, n_public = int(sys.argv[1]), json.loads(sys.argv[2])
schema = Schema(
    target={"column": "y", "classes": ["no", "yes"]},
    columns={"x0": Number(bounds=(0, 1), bins=5000)},
    n_public=n_public,
)
n = 2_000_543
X, y = np.random.default_rng(0).random((n, 1)), np.array(["no", "yes"])[np.arange(n) % 2].astype(object)
ledger, mapped = Ledger(), int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + megabytes * 2**20, -1))
try:
    PrivateClassifier(schema=schema, holdout=0.15, ledger=ledger).fit(X, y)
    print(json.dumps(["", "", 0]))
except Exception as problem:
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    print(json.dumps([type(problem).__name__, str(problem), len(ledger.entries)]))
"""
NUMBERS = re.compile(r"\d")


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [90, 120])  # coded rows take 4 MB, their order and keys 96 MB
@pytest.mark.parametrize("n_public", [None, 2_000_000])
def test_too_little_memory_is_found_before_the_debit(megabytes, n_public):
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(megabytes), json.dumps(n_public)],
        capture_output=True,
        text=True,
        check=True,
    )
    name, sentence, n_entries = json.loads(answer.stdout)
    assert (name, n_entries) == ("NotEnoughMemoryError", 0)
    if n_public is None:
        assert not NUMBERS.search(sentence)
    else:  # public facts alone
        assert "n_public = 2,000,000 rows" in sentence and "543" not in sentence


def test_array_sizes_are_never_shown():
    with pytest.raises(NotEnoughMemoryError) as caught, without_array_sizes():
        np.empty((603_000, 25, 10**9))
    assert not NUMBERS.search(str(caught.value))
    assert caught.value.__suppress_context__
    assert isinstance(caught.value, FairveilError) and isinstance(caught.value, MemoryError)


@pytest.mark.parametrize("step", ["split", "arranged"])
def test_memory_that_ends_after_the_debit_is_one_sentence(step, monkeypatch):
    def run_out(*_):
        np.empty((512_625, 25, 10**9))

    monkeypatch.setattr(MemoryRecords, step, run_out)
    schema = Schema.for_arrays(2, classes=["0", "1"], groups=["a", "b"])
    clf = FairClassifier(sensitive="group", aware=True, schema=schema, ledger=Ledger())
    X, y = np.zeros((40, 2)), np.arange(40) % 2
    with pytest.raises(NotEnoughMemoryError) as caught:
        clf.fit(X, y, sensitive_features=np.array(["a", "b"] * 20))
    assert not NUMBERS.search(str(caught.value)) and len(clf.ledger.entries) == 1


def test_what_no_machine_can_hold_is_refused_by_public_facts():
    schema = Schema.for_arrays(2, classes=["0", "1"], n_public=10**12)
    inputs = InputSpec.of(schema, None, 1.0, 1e-5)
    with pytest.raises(NotEnoughMemoryError, match="64,000 GB"):
        inputs.records(TableSource(np.zeros((3, 2)), np.zeros(3)))


def test_lengths_that_differ_are_not_stated():
    schema = Schema.for_arrays(2, classes=["0", "1"], groups=["a", "b"], n_public=40)
    clf = FairClassifier(sensitive="group", aware=True, schema=schema, method="parity", ledger=Ledger())
    X, y, groups = np.zeros((40, 2)), np.arange(40) % 2, np.array(["a", "b"] * 20)
    clf.fit(X, y, sensitive_features=groups)
    wrong = [
        lambda: clf.fit(X, y[:37], sensitive_features=groups),
        lambda: clf.fit(X, y, sensitive_features=groups[:37]),
        lambda: clf.predict(X, sensitive_features=groups, record_ids=np.arange(37)),
        lambda: clf.predict(X, sensitive_features=groups[:37]),
        lambda: clf.predict_proba(X, sensitive_features=groups[:37]),
        lambda: clf.certify(X, y[:37], 1.0, sensitive_features=groups, ledger=Ledger()),
    ]
    for call in wrong:
        with pytest.raises(FairveilError) as caught:
            call()
        assert not re.search("40|37", str(caught.value))
