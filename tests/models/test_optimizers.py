"""Are the steps those of torch, the averages those of NumPy, and both pure?"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.errors import InvalidParameterError
from fairveil.models import Adam, Average, OptimizerState, Sgd

OPTIMIZERS = {
    "sgd": Sgd(0.1),
    "momentum": Sgd(0.05, momentum=0.9),
    "adam": Adam(0.02),
    "adam-betas": Adam(0.1, beta1=0.5, beta2=0.9, eps=1e-3),
}


def torch_twin(torch, optimizer, parameter):
    if isinstance(optimizer, Sgd):
        return torch.optim.SGD([parameter], lr=optimizer.learning_rate, momentum=optimizer.momentum)
    betas = (optimizer.beta1, optimizer.beta2)
    return torch.optim.Adam([parameter], lr=optimizer.learning_rate, betas=betas, eps=optimizer.eps)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_steps_equal_torch(optimizer, rng):
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'fairveil[torch]'")
    params = rng.standard_normal(17).astype(np.float32)
    parameter = torch.nn.Parameter(torch.from_numpy(params.copy()))
    twin, state = torch_twin(torch, optimizer, parameter), OptimizerState()
    for _ in range(60):
        gradient = rng.standard_normal(17).astype(np.float32)
        parameter.grad = torch.from_numpy(gradient)
        twin.step()
        params, state = optimizer.step(params, gradient, state)
    np.testing.assert_allclose(params, parameter.detach().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_a_step_is_pure_and_keeps_float32(optimizer, rng):
    params, gradient = rng.standard_normal(9).astype(np.float32), rng.standard_normal(9)
    _, state = optimizer.step(params, gradient, OptimizerState())
    moments = [moment for moment in (state.first, state.second) if isinstance(moment, np.ndarray)]
    assert len(moments) == (2 if isinstance(optimizer, Adam) else bool(optimizer.momentum))
    arrays = (params, gradient, *moments)
    before = [array.copy() for array in arrays]
    once, after = optimizer.step(params, gradient, state)
    again, _ = optimizer.step(params, gradient, state)
    kept = [moment for moment in (after.first, after.second) if isinstance(moment, np.ndarray)]
    assert {array.dtype for array in (once, *moments, *kept)} == {np.dtype(np.float32)}
    assert np.array_equal(once, again)
    for array, copy in zip(arrays, before, strict=True):
        assert np.array_equal(array, copy)
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.n_steps = 0


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_steps_find_the_bottom_of_a_bowl(name):
    optimizer = OPTIMIZERS[name]
    bottom = np.array([1.0, -2.0, 0.5], np.float32)
    params = np.zeros(3, np.float32)
    state = OptimizerState()
    for _ in range(2_000):
        params, state = optimizer.step(params, params - bottom, state)
    np.testing.assert_allclose(params, bottom, atol=2e-3)


@settings(max_examples=50)
@given(st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3), min_size=1, max_size=20))
def test_a_plain_average_is_the_mean(iterates):
    average = Average()
    for iterate in iterates:
        average = average.add(np.array(iterate, np.float32))
    assert average.value().dtype == np.float32
    np.testing.assert_allclose(average.value(), np.mean(iterates, axis=0), rtol=1e-6, atol=1e-6)


def test_the_average_of_the_last_half_adds_only_the_last_half(rng):
    iterates = rng.standard_normal((10, 4)).astype(np.float32)
    average = Average()
    for iterate in iterates[5:]:
        average = average.add(iterate)
    np.testing.assert_allclose(average.value(), iterates[5:].mean(axis=0), rtol=1e-6)


def test_adding_leaves_the_old_average_alone(rng):
    old = Average().add(np.ones(2))
    old.add(np.full(2, 9.0))
    assert np.array_equal(old.value(), np.ones(2))


def test_an_average_of_nothing_is_refused():
    with pytest.raises(InvalidParameterError, match="at least one iterate"):
        Average().value()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sgd(0.0),
        lambda: Sgd(0.1, momentum=1.0),
        lambda: Adam(-1.0),
        lambda: Adam(0.1, beta1=1.0),
        lambda: Adam(0.1, beta2=-0.1),
        lambda: Adam(0.1, eps=0.0),
    ],
)
def test_settings_outside_their_range_are_refused(make):
    with pytest.raises(InvalidParameterError, match="Expected"):
        make()


def test_adams_first_update_is_a_sign_and_its_second_is_not(rng):
    """Why two steps: the first is known but for signs, the second depends on the ratio of two noisy gradients."""
    moved = []
    for _ in range(4):
        one, state = Adam(0.02).step(np.zeros(50, np.float32), rng.normal(size=50), OptimizerState())
        two, _ = Adam(0.02).step(one, rng.normal(size=50), state)
        moved.append((np.abs(one), np.abs(two)))
    first, second = (np.unique(np.concatenate(sizes)) for sizes in zip(*moved, strict=True))
    assert len(first) < 20 and np.ptp(first) < 1e-6
    assert len(second) > 190
