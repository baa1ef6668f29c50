"""Plots in the manner of scikit-learn: what they draw, where, and what they say without matplotlib."""

import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from fairveil import CertificateDisplay, DemographicParity, FairClassifier, FrontierDisplay, Functional, Ledger
from fairveil.certificates import certify, certify_measured
from fairveil.display import MOST_CLAIMS
from fairveil.errors import InvalidParameterError
from fairveil.fairness.evaluation import Evaluation, Verdict
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.registry import METHODS

pytestmark = pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning")


@pytest.fixture(autouse=True)
def closed_figures():
    """Draw without a screen, and close what was drawn."""
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    yield
    plt.close("all")


def certificate_of(n_groups=2, limit=0.05, measured=False):
    people = Population((Attribute("area", tuple(f"a{place}" for place in range(n_groups))),), ("no", "yes"))
    counts = np.full((people.n_groups, 2, 2), 500.0) + np.arange(people.n_groups)[:, None, None]
    found = Evaluation(counts, 9.0, people)
    return certify_measured(found, DemographicParity()) if measured else certify(found, DemographicParity(limit))


def summary(method="dp2dp", epsilon=1.0, gap=0.02, accuracy=0.8, model="linear", tolerance=0.05):
    def interval(value):
        low, high = (0.0, 1.0) if value is None else (value - 0.01, value + 0.01)
        return {"value": value, "low": low, "high": high}

    return {
        "data": "people", "created": "", "version": "0", "constraint": "demographic_parity", "delta": 1e-5,
        "protects": "record", "unit": "record", "sensitive": ["sex"], "aware": True, "confidence": 0.95,
        "ledger": {"epsilon_spent_total": 2.0, "epsilon_spent_total_replace_one": 4.0},
        "method": method, "model": model, "epsilon": epsilon, "tolerance": tolerance, "accuracy": interval(accuracy),
        "gap": interval(gap), "certificate": None, "smallest_tolerance_that_holds": 0.05, "epsilon_spent": epsilon,
        "seconds": 1.0, "command": "",
    }  # fmt: skip


def words_of(ax):
    return [text.get_text() for text in ax.texts]


def legend_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


# --- certificates -----------------------------------------------------------------------------------------------------


def test_every_bound_of_a_certificate_is_drawn_with_its_limit():
    found = certificate_of()
    display = CertificateDisplay.from_certificate(found)
    ax = display.ax_
    assert display.figure_ is ax.figure and display.certificate is found
    assert sorted(words_of(ax)) == sorted(claim.bound for claim in found.claims)
    drawn = {(line.get_xdata()[0], line.get_xdata()[-1]) for line in ax.lines}
    for claim in found.claims:
        assert {(claim.low, claim.upper), (claim.value, claim.value), (claim.limit, claim.limit)} <= drawn
    assert legend_of(ax) == [str(found.verdict), "limit"] and found.verdict is Verdict.HOLDS
    assert "95\xa0% confidence" in ax.get_xlabel()


def test_of_many_bounds_those_nearest_their_limits_are_drawn():
    found = certificate_of(n_groups=6)
    ax = CertificateDisplay(found).plot().ax_
    nearest = sorted(found.claims, key=lambda claim: claim.limit - claim.upper)[:MOST_CLAIMS]
    assert words_of(ax) == [claim.bound for claim in nearest] and len(found.claims) == 30
    assert f"{MOST_CLAIMS} of 30" in ax.get_xlabel()


def test_a_measured_gap_has_no_limit():
    assert legend_of(CertificateDisplay.from_certificate(certificate_of(measured=True)).ax_) == ["measured"]


def test_a_certificate_without_bounds_is_refused():
    people = Population((), ("no", "yes"))
    with pytest.raises(InvalidParameterError, match="Expected a certificate with at least one bound"):
        CertificateDisplay.from_certificate(certify(Evaluation(np.ones((1, 2, 2)), 1.0, people), ()))


# --- frontiers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_its_color(name):
    ax = FrontierDisplay.from_summaries([summary(name)]).ax_
    (drawn,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert drawn.get_color() == f"C{METHODS[name].color}" and legend_of(ax) == [name]


def test_points_have_intervals_names_and_tolerances():
    points = [
        summary(), summary(gap=0.1, tolerance=0.1), summary("raco", epsilon=None, tolerance=None),
        summary("mine", model="forest"), summary(gap=None),
    ]  # fmt: skip
    display = FrontierDisplay.from_summaries(points)
    ax = display.ax_
    assert legend_of(ax) == ["dp2dp, linear, epsilon 1", "raco, linear, not private", "mine, forest, epsilon 1"]
    assert words_of(ax) == ["0.05", "0.1", "0.05"]
    assert ax.get_ylabel() == "accuracy" and "selection rates" in ax.get_xlabel()
    assert display.figure_ is ax.figure and len(display.frontier["points"]) == 5
    assert sum(len(line.get_xdata()) for line in ax.lines if line.get_marker() in "os^") == 4


def test_nothing_known_is_drawn_as_nothing():
    assert not FrontierDisplay.from_summaries([summary(gap=None)]).ax_.get_legend()


def test_plots_are_drawn_where_they_are_wanted():
    import matplotlib.pyplot as plt

    _, (left, right) = plt.subplots(1, 2)
    assert CertificateDisplay.from_certificate(certificate_of(), ax=left).ax_ is left
    assert FrontierDisplay.from_summaries([summary()], ax=right).ax_ is right
    assert len(plt.get_fignums()) == 1


# --- real classifiers -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_plots_of_real_classifiers_are_written(people, few, tmp_path):
    X, y = few
    facts = {"sensitive": "sex", "aware": True, "schema": people.schema, "ledger": Ledger()}
    clf = FairClassifier(DemographicParity(0.05), **facts).fit(X, y)
    display = CertificateDisplay.from_estimator(clf, confidence=0.9)
    assert display.certificate == clf.certificate(0.9)
    tolerances = (0.0, 0.1, 0.2)
    training = Functional(announced=tolerances)
    sweep = FairClassifier(DemographicParity(0.1), method="functional", training=training, **facts).fit(X, y)
    frontier = FrontierDisplay.from_estimator(sweep, tolerances)
    assert [point["tolerance"] for point in frontier.frontier["points"]] == list(tolerances)
    for place, figure in enumerate((display.figure_, frontier.figure_)):
        figure.savefig(tmp_path / f"{place}.png")
        assert (tmp_path / f"{place}.png").stat().st_size > 5000
    with pytest.raises(InvalidParameterError, match="Expected counts of people held out"):
        CertificateDisplay.from_estimator(FairClassifier(DemographicParity(0.05), holdout=0.0, **facts).fit(X, y))


@pytest.mark.slow
def test_without_matplotlib_one_sentence_says_how_to_install_it():
    code = """
import sys
sys.modules["matplotlib"] = sys.modules["matplotlib.pyplot"] = None
from fairveil import CertificateDisplay, FairveilError
from fairveil.certificates import Certificate, Claim
from fairveil.fairness.evaluation import Verdict
claim = Claim("a <= 1", 1.0, 0.0, 0.0, 1.0, 1.0, Verdict.HOLDS, None)
try:
    CertificateDisplay.from_certificate(Certificate(0.95, (claim,), Verdict.HOLDS, 1.0, None, 10))
except FairveilError as problem:
    assert isinstance(problem, ImportError)
    print(problem)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == (
        "Expected matplotlib for plots, got an environment without it; install it with pip install 'fairveil[plot]'."
    )


def test_importing_fairveil_does_not_import_matplotlib():
    code = "import sys, fairveil; fairveil.CertificateDisplay; print('matplotlib' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_the_extra_names_what_plots_need():
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert 'plot = ["matplotlib' in text
