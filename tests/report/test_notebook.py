"""What `print` and a notebook show of certificates, evaluations and ledgers: short, escaped, in words of reports."""

import math
from html.parser import HTMLParser

import numpy as np
import pytest

from fairveil import Budget, DemographicParity, Ledger
from fairveil.accounting.events import Charge, GaussianRelease
from fairveil.certificates import certify, certify_measured
from fairveil.fairness.evaluation import Evaluation
from fairveil.fairness.rates import Attribute, Population
from fairveil.report.notebook import MOST_ROWS, Table
from fairveil.report.privacy_text import UNKNOWN_TOTAL, ledger_text

HOSTILE = "<script>alert('x')</script>&"
COUNTS = np.array([[[2500, 500], [500, 500]], [[2500, 500], [470, 530]], [[0, 0], [0, 0]]], dtype=float)


class Words(HTMLParser):
    """The text of a page, and its elements."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.open = set(), "", []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += f"{data}\n"


def read(page):
    found = Words(page)
    assert found.open == [] and found.tags <= {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    return found.text


def evaluation(groups=("f", "m"), counts=COUNTS, positive="yes", name="sex"):
    return Evaluation(counts, 9.0, Population((Attribute(name, groups),), ("no", positive)))


def spent(n_debits=2, **choices):
    ledger = Ledger(**choices)
    for place in range(n_debits):
        ledger.debit([Charge(GaussianRelease(10.0))], f"release {place}", {"epsilon": 1.0, "delta": 1e-5})
    return ledger


# --- certificates -----------------------------------------------------------------------------------------------------


CERTIFICATES = {
    "holds": certify(evaluation(), DemographicParity(0.05)),
    "does not hold": certify(evaluation(counts=COUNTS * [[[1]], [[3]], [[1]]]), DemographicParity(0.0)),
    "not enough data": certify(evaluation(counts=COUNTS / 100), DemographicParity(0.0)),
    "measured": certify_measured(evaluation(), DemographicParity()),
    "no bound requested": certify(evaluation(), ()),
}


@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_certificate_says_its_sentence_and_its_verdict(name):
    found = CERTIFICATES[name]
    assert str(found) == f"{found}" == found.sentence
    page = found._repr_html_()
    text = read(page)
    assert found.sentence in text and len(page) < 1000
    assert text.splitlines()[0].endswith("no bound requested" if not found.claims else str(found.verdict))


def test_names_in_a_certificate_are_no_markup():
    found = certify(evaluation(groups=("f", HOSTILE)), DemographicParity(0.05))
    assert HOSTILE in str(found) and HOSTILE in read(found._repr_html_()).replace("\n", "")


# --- evaluations ------------------------------------------------------------------------------------------------------


def test_an_evaluation_shows_rates_of_groups_with_intervals():
    found = evaluation()
    rate = found.rates("selection_rate")["f"]
    expected = f"{100 * rate.value:.1f}\xa0% ({100 * rate.low:.1f} to {100 * rate.high:.1f})"
    lines = str(found).splitlines()
    assert lines[0] == "Rates of yes on about 8,000 held-out rows, with 95\xa0% intervals"
    assert lines[1].split("  ")[1].strip() == "sex" and "false positive rate" in lines[1]
    assert lines[2].strip().startswith("f ") and expected in lines[2] and lines[3].strip().startswith("m ")
    assert lines[-1].strip().startswith("accuracy of all: ")
    text = read(found._repr_html_())
    assert all(cell.strip() in text for line in lines for cell in line.strip().split("  ") if cell.strip())
    assert len(found._repr_html_()) < 2000


def test_groups_of_too_few_people_are_unknown():
    small = COUNTS.copy()
    small[1] = 1.0
    assert "unknown" in str(evaluation(counts=small)).splitlines()[3]
    assert "nan" not in str(evaluation(counts=small)).lower()


def test_an_evaluation_without_groups_shows_the_accuracy_alone():
    found = Evaluation(COUNTS[:1], 9.0, Population((), ("no", "yes")))
    assert len(str(found).splitlines()) == 2 and "accuracy of all" in read(found._repr_html_())


def test_names_in_an_evaluation_are_no_markup():
    found = evaluation(groups=("f", HOSTILE), positive=f"{HOSTILE}1", name=HOSTILE)
    assert HOSTILE in str(found) and read(found._repr_html_()).replace("\n", "").count(HOSTILE) == 3


# --- ledgers ----------------------------------------------------------------------------------------------------------


def test_a_ledger_shows_entries_and_the_total_with_its_delta(tmp_path):
    for ledger in (spent(), spent(path=tmp_path / "people.ledger.jsonl"), spent(budget=Budget(3.0, 1e-6))):
        delta = 1e-5 if ledger.budget is None else 1e-6
        assert str(ledger) == ledger_text(ledger.facts())
        text = read(ledger._repr_html_())
        for shown in (str(ledger), text):
            assert "release 0" in shown and "release 1" in shown and "epsilon 1, delta 1e-05" in shown
            assert f"total: epsilon {ledger.epsilon(delta):.4f} at delta {delta:g}" in shown
            assert ("budget: epsilon 3" in shown) == (ledger.budget is not None)
    assert repr(spent()) == "Ledger(in memory)"
    assert f"at delta {1e-3:g}" in ledger_text(spent().facts(1e-3))


def test_a_notebook_shows_the_newest_entries_of_a_long_ledger():
    ledger = spent(MOST_ROWS + 3)
    text = read(ledger._repr_html_())
    assert "3 earlier debits" in text and "release 2\n" not in text and "release 3\n" in text
    assert "release 0" in str(ledger) and len(ledger._repr_html_()) < 3000


def test_an_unpriced_ledger_states_no_total():
    ledger = spent()
    ledger.debit_unpriced(HOSTILE)
    for shown in (str(ledger), read(ledger._repr_html_())):
        assert "no bound can be stated" in shown
    assert HOSTILE in read(ledger._repr_html_()).replace("\n", "")


def test_a_sealed_ledger_without_entries_has_an_unknown_total():
    for shown in (str(Ledger.sealed()), read(Ledger.sealed()._repr_html_())):
        assert UNKNOWN_TOTAL in shown and "epsilon 0" not in shown


def test_a_damaged_ledger_can_be_printed(tmp_path):
    place = tmp_path / "people.ledger.jsonl"
    ledger = spent(path=place)
    place.write_bytes(place.read_bytes().replace(b"release 0", b"release 9"))
    for shown in (str(ledger), read(ledger._repr_html_())):
        assert str(place) in shown and "Expected" in shown and "total" not in shown.partition("Expected")[0]


def test_an_empty_ledger_has_a_total_of_zero():
    assert "Debits in memory: 0" in str(Ledger()) and "epsilon 0.0000" in str(Ledger())


def test_a_table_is_aligned():
    text = Table("caption", ("a", "b"), (("1", "2"), ("333", "4"))).text()
    assert text == "caption\n  a    b\n  1    2\n  333  4"
    assert Table("caption", ("a",), ()).text() == "caption"


# --- estimators -------------------------------------------------------------------------------------------------------


def test_an_estimator_keeps_the_page_of_scikit_learn_without_its_key(people, few):
    from fairveil import RandomizedParityPostprocessor

    clf = RandomizedParityPostprocessor(schema=people.schema, sensitive="sex", epsilon=math.inf, ledger=Ledger())
    assert "sk-top-container" in clf._repr_html_()
    page = clf.fit(*few)._repr_html_()
    assert "Fitted" in page and clf.key_.secret.hex() not in page and repr(clf.key_.secret) not in page
