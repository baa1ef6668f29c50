"""Does the benchmark of a convolutional network print what it promises?"""

import pytest

from _support.benchmarking import last_line

pytest.importorskip("torch", reason="needs torch: pip install 'fairveil[torch]'")


def test_three_trainings_and_exact_norms():
    import digits_cnn

    answer = last_line(digits_cnn, "--runs", "1", "--steps", "120", "--no-memory")
    assert answer["norm_deviation"] < 1e-5
    assert answer["unconstrained"]["accuracy"] > 0.85
    for name in ("constrained", "private"):
        assert answer[name]["accuracy"] >= 0.45 and answer[name]["gap"] < answer["unconstrained"]["gap"]


def test_the_planted_group_goes_with_the_label_and_shows_in_a_corner():
    import digits_cnn

    X, y, groups = digits_cnn.planted(0)
    rates = [y[groups == group].mean() for group in ("in", "out")]
    assert 0.2 < rates[0] - rates[1] < 0.4
    assert set(X[groups == "in", 0]) == {16} and set(X[groups == "out", 0]) == {0}
