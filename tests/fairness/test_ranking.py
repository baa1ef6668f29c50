"""Do the figures of a ranking bound scikit-learn's, and do their intervals hold the truth?"""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import average_precision_score, roc_auc_score

from fairveil.errors import InvalidParameterError
from fairveil.fairness.evaluation import Evaluation
from fairveil.fairness.ranking import (
    N_BINS,
    SCORE_EDGES,
    ScoreCounts,
    average_precision_figures,
    roc_auc_figures,
)
from fairveil.fairness.rates import Population

FIGURES = {
    "roc_auc": (roc_auc_figures, roc_auc_score),
    "average_precision": (average_precision_figures, average_precision_score),
}
PEOPLE = Population((), ("no", "yes"))


def counted(y, scores, edges=SCORE_EDGES):
    """Count rows one by one: a row is in the bin after all edges that its score exceeds."""
    counts = np.zeros((2, len(edges) + 1))
    for label, score in zip(y, scores, strict=True):
        counts[label, sum(score > edge for edge in edges)] += 1
    return counts


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("decimals", [0, 1, 9])
@pytest.mark.parametrize("n_edges", [1, 4, 23])
def test_scikit_learns_figure_is_between_worst_and_best_order(name, decimals, n_edges, rng):
    figures, oracle = FIGURES[name]
    for n in (20, 300):
        y = (rng.random(n) < rng.uniform(0.1, 0.9)).astype(int)
        y[:2] = 0, 1
        scores = np.round(rng.normal(1.5 * y, 1.0), decimals)
        counts = counted(y, scores, np.sort(rng.normal(0.5, 1.5, n_edges)))
        low, even, high = figures(*counts[::-1, ::-1])
        assert low - 1e-12 <= oracle(y, scores) <= high + 1e-12
        assert low <= even <= high


@pytest.mark.parametrize("name", FIGURES)
def test_fine_bins_leave_nothing_open(name, rng):
    """With a bin for each score, the worst, the even and the best order nearly agree with scikit-learn."""
    figures, oracle = FIGURES[name]
    y = np.arange(4000) % 2
    scores = np.round(rng.normal(y, 1.0), 2)
    counts = counted(y, scores, np.unique(scores)[:-1])
    assert np.allclose(figures(*counts[::-1, ::-1]), oracle(y, scores), atol=0.006)


def population(rng):
    """Return the probability of each label and bin: log-odds that are right on average."""
    truth = rng.normal(-1.0, 1.8, 200_000)
    y = (rng.random(len(truth)) < expit(truth)).astype(int)
    bins = np.searchsorted(SCORE_EDGES, truth)
    return np.bincount(y * N_BINS + bins, minlength=2 * N_BINS).reshape(2, -1) / len(y)


def misses(name, claimed, rng, std=8.3, n=1500, repeats=500):
    """How often each end of an interval is on the wrong side of the worst and of the best order's truth."""
    figures, _ = FIGURES[name]
    law = population(rng)
    low, _, high = figures(*law[::-1, ::-1])
    missed = np.zeros(2)
    for _ in range(repeats):
        counts = rng.multinomial(n, law.ravel()).reshape(law.shape) + np.round(rng.normal(0, std, law.shape))
        found = getattr(ScoreCounts(counts, claimed**2), name)(0.975)
        assert found is not None
        missed += found[1] > low, found[2] < high
    return missed / repeats


@pytest.mark.statistical
@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("std", [0.0, 8.3])
def test_each_end_holds_the_truth_in_the_order_that_is_hardest_for_it(name, std, rng):
    """500 tables: at the nominal 2.5 % more than 5.5 % has probability 1e-4; 8 % is caught with probability .98."""
    assert (misses(name, std, rng, std=std) <= 0.055).all()


@pytest.mark.statistical
@pytest.mark.parametrize("name", FIGURES)
def test_an_interval_without_the_noise_is_caught(name, rng):
    """The broken twin claims that there is no noise."""
    assert (misses(name, 0.0, rng) > 0.055).any()


@pytest.mark.parametrize("name", FIGURES)
def test_more_people_or_less_noise_mean_narrower_intervals(name, rng):
    counts = 3000 * population(rng)

    def width(scores, level=0.975):
        _, low, high = getattr(scores, name)(level)
        return high - low

    usual = width(ScoreCounts(counts, 9.0))
    assert width(ScoreCounts(4 * counts, 9.0)) < usual < width(ScoreCounts(counts, 100.0))
    assert width(ScoreCounts(counts, 9.0), 0.8) < usual


@pytest.mark.parametrize("name", FIGURES)
def test_a_perfect_and_a_useless_score(name):
    perfect = np.zeros((2, N_BINS))
    perfect[0, 0] = perfect[1, -1] = 200.0
    value, low, high = getattr(ScoreCounts(perfect, 0.0), name)(0.975)
    assert value == high == 1
    assert 0.9 < low < 1
    useless = np.zeros((2, N_BINS))
    useless[:, 3] = 200.0
    value, low, high = getattr(ScoreCounts(useless, 0.0), name)(0.975)
    assert (round(value, 9), high) == (0.5, 1.0)
    assert low <= 1 - np.log(2)  # the mean precision if the others came first


@pytest.mark.parametrize("name", FIGURES)
def test_too_few_people_of_a_class_are_unknown(name):
    counts = np.zeros((2, N_BINS))
    counts[0] = 100.0
    counts[1, -1] = 20.0
    assert getattr(ScoreCounts(counts, 0.0), name)(0.975) is not None
    assert getattr(ScoreCounts(counts, 4.0), name)(0.975) is None
    assert getattr(ScoreCounts(-counts, 4.0), name)(0.975) is None


@pytest.mark.parametrize("name", FIGURES)
def test_any_noisy_counts_have_an_interval_in_order(name, rng):
    for std in (1.0, 30.0):
        for _ in range(40):
            counts = np.round(rng.exponential(60.0, (2, N_BINS)) + rng.normal(0, std, (2, N_BINS)))
            found = getattr(ScoreCounts(counts, std**2), name)(0.975)
            if found is not None:
                assert 0 <= found[1] <= found[0] <= found[2] <= 1


def test_an_evaluation_without_scores_does_not_know(rng):
    nothing = Evaluation(np.ones((1, 2, 2)), 0.0, PEOPLE)
    assert nothing.roc_auc().to_dict() == {"value": None, "low": 0.0, "high": 1.0}
    scores = ScoreCounts(3000 * population(rng), 9.0)
    known = Evaluation(np.ones((1, 2, 2)), 0.0, PEOPLE, scores).average_precision(0.9)
    assert known.confidence == 0.9
    assert (known.value, known.low, known.high) == scores.average_precision(0.95)


@pytest.mark.parametrize("counts", [np.zeros(4), np.zeros((3, 4))])
def test_counts_of_another_shape_are_refused(counts):
    with pytest.raises(InvalidParameterError, match="shape \\(2, n_bins\\)"):
        ScoreCounts(counts, 0.0)
