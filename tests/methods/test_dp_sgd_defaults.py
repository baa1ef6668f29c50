"""What a descent does where nothing is said: clip norm and sampling rate from public facts."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.errors import InvalidParameterError
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.dp_sgd import CLIP_PER_NORM, Descent
from fairveil.training.recipe import Task

PEOPLE = Population((Attribute("side", ("left", "right")),), ("no", "yes"))
TASK = Task(n_features=4, people=PEOPLE, input_norm=3.0, n_public=50_000, epsilon=1.0, delta=1e-5)
SIZES = st.integers(1, 10**9)
fast = settings(max_examples=200)


def rate(n_public, **choices):
    return Descent(**choices).numbers_for(replace(TASK, n_public=n_public)).sampling_rate


def clip_norm(**facts):
    return Descent().numbers_for(replace(TASK, **facts)).clip_norm


# --- the clip norm ----------------------------------------------------------------------------------------


@fast
@given(typical=st.floats(0.1, 10), longest=st.floats(0.1, 10))
def test_the_clip_norm_follows_what_rows_are_usually_long(typical, longest):
    expected = CLIP_PER_NORM * min(typical, longest)
    assert clip_norm(typical_norm=typical, input_norm=longest) == pytest.approx(expected, rel=1e-12)
    assert clip_norm(input_norm=longest) == pytest.approx(CLIP_PER_NORM * longest, rel=1e-12)


@pytest.mark.parametrize("typical_norm", [None, 1.25])
def test_without_privacy_nothing_is_clipped(typical_norm):
    assert clip_norm(epsilon=math.inf, typical_norm=typical_norm) == math.inf


@pytest.mark.parametrize("epsilon", [0.1, math.inf])
def test_a_clip_norm_that_is_set_is_the_clip_norm(epsilon):
    task = replace(TASK, epsilon=epsilon, typical_norm=1.25)
    assert Descent(clip_norm=0.7).numbers_for(task).clip_norm == 0.7


def test_under_privacy_an_infinite_clip_norm_is_refused():
    with pytest.raises(InvalidParameterError, match="finite clip_norm"):
        Descent(clip_norm=math.inf).check(TASK)
    Descent(clip_norm=math.inf).check(replace(TASK, epsilon=math.inf))
    Descent().check(TASK)


@pytest.mark.parametrize("predicts, n_params", [("label", 10), ("joint", 20), ("decoupled", 20)])
def test_the_model_has_as_many_parameters_as_what_it_is_of_asks_for(predicts, n_params):
    assert Descent().model_for(replace(TASK, predicts=predicts)).n_params == n_params


# --- the sampling rate ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "n_public, expected",
    [
        (1, 0.5),
        (400, 0.5),
        (4_000, 0.5),
        (5_000, 0.4),
        (10_000, 0.2),
        (20_000, 0.1),
        (50_000, 0.1),
        (100_000, 0.1),
        (200_000, 0.05),
        (500_000, 0.02),
        (1_000_000, 0.01),
        (10**9, 0.01),
        (None, 0.1),
    ],
)
def test_a_tenth_is_sampled_more_of_few_and_less_of_many(n_public, expected):
    assert rate(n_public) == pytest.approx(expected, rel=1e-12)


@fast
@given(n_public=SIZES)
def test_the_rate_lies_between_a_hundredth_and_a_half(n_public):
    assert 0.01 <= rate(n_public) <= 0.5


@fast
@given(one=SIZES, other=SIZES)
def test_the_rate_never_grows_with_the_size(one, other):
    assert rate(min(one, other)) >= rate(max(one, other))


@fast
@given(n_public=st.integers(4_000, 1_000_000))
def test_a_batch_has_two_to_ten_thousand_people(n_public):
    assert 2_000 * (1 - 1e-9) <= rate(n_public) * n_public <= 10_000 * (1 + 1e-9)


@fast
@given(n_public=SIZES, given_rate=st.floats(1e-6, 1.0))
def test_a_rate_that_is_set_is_the_rate(n_public, given_rate):
    assert rate(n_public, sampling_rate=given_rate) == given_rate


def test_the_rate_of_the_plan_is_the_rate():
    (part,) = Descent().stages(1.0, 1.0, replace(TASK, n_public=10_000))
    assert dict(part.rates) == {-1: 0.2}
