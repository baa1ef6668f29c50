"""The synthetic task of DP2DP: the laws of Appendix E.1, from public coins."""

import numpy as np
import pytest
from scipy.stats import chisquare

from fairveil.data.encoding import Encoder
from fairveil.data.synthetic import make_biased_mixture
from fairveil.errors import InvalidParameter

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


def test_features_are_a_mixture_around_the_centre_of_their_class(people):
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
    with pytest.raises(InvalidParameter, match="Expected"):
        make_biased_mixture(**wrong)
