"""The synthetic tasks of DP2DP and FairDP: the laws of their appendices, from public coins."""

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare, kstest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from fairveil.data.datasets import make_biased_mixture, make_separated_groups
from fairveil.data.encoding import Encoder
from fairveil.errors import InvalidParameterError

N = 60_000


@pytest.fixture(scope="module")
def people():
    return make_biased_mixture(N, p=0.8, random_state=7)


def test_the_same_seed_gives_the_same_people_and_another_one_others(people):
    again = make_biased_mixture(N, p=0.8, random_state=7)
    assert people.frame.equals(again.frame)
    assert not people.frame.equals(make_biased_mixture(N, p=0.8, random_state=8).frame)


def test_classes_are_equally_likely(people):
    assert chisquare(np.bincount(people.y)).pvalue > 1e-6


def test_the_group_depends_on_the_half_of_the_classes(people):
    """60,000 rows: a share is known to .005."""
    is_one = people.frame["s"] == 1
    assert is_one[people.y < 3].mean() == pytest.approx(0.8, abs=0.015)
    assert is_one[people.y >= 3].mean() == pytest.approx(0.2, abs=0.015)


def test_features_are_a_mixture_around_the_center_of_their_class(people):
    """Within a class the variance of a feature is 1 plus that of ten component means."""
    variances = people.frame.drop(columns=["s"]).groupby("y").var().to_numpy()
    assert variances.min() > 1.05 and 1.5 < variances.mean() < 2.5


def test_within_a_component_features_are_standard_normal():
    people = make_biased_mixture(20_000, n_components=1, n_classes=2, n_features=3, random_state=1)
    variances = people.frame[["x0", "x1", "x2"]].groupby(people.y).var().to_numpy()
    assert variances == pytest.approx(1.0, abs=0.07)


def test_its_schema_reads_it_and_does_not_take_the_group_as_a_feature(people):
    rows = Encoder(people.schema).rows(people.X)
    assert rows.shape == (N, 40) and np.abs(rows).max() <= 1
    assert "s" not in people.schema.columns and people.schema.sensitive[0].column == "s"
    assert (np.abs(rows[:, :1]) < 1).mean() > 0.99


@pytest.mark.parametrize("wrong", [{"p": 1.5}, {"n_rows": 0}, {"n_classes": 1}, {"n_features": 2.5}])
def test_numbers_that_make_no_task_are_refused(wrong):
    with pytest.raises(InvalidParameterError, match="Expected"):
        make_biased_mixture(**wrong)


SPREAD = 24**0.5 / 1.3407550336902165
"""sqrt(2 * 12) over the .91 quantile of the normal law, from a table."""


@pytest.fixture(scope="module")
def apart():
    return make_separated_groups(N, random_state=11)


def test_separated_groups_repeat_with_their_seed(apart):
    assert apart.frame.equals(make_separated_groups(N, random_state=11).frame)
    assert not apart.frame.equals(make_separated_groups(N, random_state=12).frame)


def test_groups_are_halves_and_four_fifths_of_each_share_a_label(apart):
    """60,000 rows: at p = 1e-6 a share .8 in a group is distinguished from .79 and from .81."""
    is_one, is_positive = (apart.frame["s"] == 1).to_numpy(), (apart.y == 1).to_numpy()
    assert binomtest(int(is_one.sum()), N, 0.5).pvalue > 1e-6
    for is_member, share in ((is_one, 0.8), (~is_one, 0.2)):
        n, n_positive = int(is_member.sum()), int(is_positive[is_member].sum())
        assert binomtest(n_positive, n, share).pvalue > 1e-6
        assert binomtest(n_positive, n, share - 0.03).pvalue < 1e-6
        assert binomtest(n_positive, n, share + 0.03).pvalue < 1e-6


@pytest.mark.parametrize("label", [0, 1])
def test_features_are_spherical_around_one_or_minus_one(apart, label):
    """The noise passes as standard normal over all cells, and scales 2/3 and 3/2 of it do not."""
    features = apart.frame.loc[apart.y == label].drop(columns=["s", "y"]).to_numpy()
    noise = (features - (2 * label - 1)) / SPREAD
    assert kstest(noise.ravel(), "norm").pvalue > 1e-6
    assert all(kstest(factor * noise.ravel(), "norm").pvalue < 1e-6 for factor in (2 / 3, 3 / 2))
    assert np.cov(noise.T) == pytest.approx(np.eye(12), abs=0.05)


def test_features_reveal_no_more_of_the_group_than_the_label_does(apart):
    """Within one label, the sum of the features has the same distribution in both groups."""
    total = apart.frame.drop(columns=["s", "y"]).sum(axis=1)
    for label in (0, 1):
        one, other = (total[(apart.y == label) & (apart.frame["s"] == sign)] for sign in (1, -1))
        assert kstest(one, other).pvalue > 1e-6


@pytest.mark.parametrize("n_features", [3, 12, 40])
def test_a_logistic_regression_ranks_as_well_as_the_paper_without_noise(n_features):
    train, test = (make_separated_groups(20_000, n_features, random_state=seed) for seed in (1, 2))
    rows = [Encoder(half.schema).rows(half.X) for half in (train, test)]
    scores = LogisticRegression().fit(rows[0], train.y).predict_proba(rows[1])[:, 1]
    assert roc_auc_score(test.y, scores) == pytest.approx(0.91, abs=0.012)


def test_the_schema_of_separated_groups_leaves_the_group_out(apart):
    rows = Encoder(apart.schema).rows(apart.X)
    assert rows.shape == (N, 24) and (np.abs(rows) < 1).mean() > 0.99
    assert "s" not in apart.schema.columns and apart.schema.target.positive == "1"


@pytest.mark.parametrize("wrong", [{"n_rows": 0}, {"n_features": 0}, {"n_features": 1.5}])
def test_numbers_that_make_no_separated_groups_are_refused(wrong):
    with pytest.raises(InvalidParameterError, match="Expected"):
        make_separated_groups(**wrong)
