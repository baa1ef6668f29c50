"""Every model, by registry, and one independent way to a record's gradient."""

from collections.abc import Callable

import numpy as np
import pytest

from fairveil.models import LinearSoftmax, Perceptron

CASES = {
    "linear": LinearSoftmax(n_features=5, n_classes=2),
    "linear-no-bias": LinearSoftmax(n_features=5, n_classes=2, bias=False),
    "linear-12-classes": LinearSoftmax(n_features=4, n_classes=12),
    "mlp-relu": Perceptron(n_features=5, hidden=(4, 3), n_classes=2),
    "mlp-tanh": Perceptron(n_features=4, hidden=(6,), n_classes=3, activation="tanh"),
    "mlp-deep-10-classes": Perceptron(n_features=3, hidden=(4, 5, 4), n_classes=10),
    "mlp-no-hidden": Perceptron(n_features=5, hidden=(), n_classes=2),
}


@pytest.fixture(scope="session", params=CASES.values(), ids=CASES.keys())
def model(request):
    return request.param


@pytest.fixture(scope="session")
def all_models():
    return tuple(CASES.values())


@pytest.fixture(scope="session")
def a_batch() -> Callable:
    """Parameters, rows and dlogits of ordinary size for a model."""

    def make(model, rng, n_rows=20):
        params = rng.standard_normal(model.n_params).astype(np.float32)
        X = rng.standard_normal((n_rows, model.n_features)).astype(np.float32)
        dlogits = rng.standard_normal((model.n_classes, n_rows)).astype(np.float32)
        return params, X, dlogits

    return make


def unpacked(model, flat):
    """Split a flat vector by the documented layout into (weights (n_in, n_out), biases) pairs."""
    hidden = getattr(model, "hidden", ())
    sizes = (model.n_features, *hidden)
    layers, rest = [], np.asarray(flat, dtype=np.float64)
    for n_in, n_out in zip(sizes, hidden, strict=False):
        layers.append((rest[: n_in * n_out].reshape(n_in, n_out), rest[n_in * n_out :][:n_out]))
        rest = rest[(n_in + 1) * n_out :]
    n_weights = model.n_classes * sizes[-1]
    biases = rest[n_weights:] if len(rest) > n_weights else np.zeros(model.n_classes)
    return [*layers, (rest[:n_weights].reshape(model.n_classes, sizes[-1]).T, biases)]


@pytest.fixture(scope="session")
def layers_of() -> Callable:
    return unpacked


@pytest.fixture(scope="session")
def record_gradient() -> Callable:
    """One record's gradient, materialised in float64 by the chain rule, flat in the documented layout."""

    def gradient(model, params, x, dlogit):
        layers = unpacked(model, params)
        inputs = [np.asarray(x, dtype=np.float64)]
        for weights, biases in layers[:-1]:
            z = inputs[-1] @ weights + biases
            inputs.append(np.tanh(z) if model.activation == "tanh" else np.where(z > 0, z, 0.0))
        delta, subsets = np.asarray(dlogit, dtype=np.float64), []
        for depth in range(len(layers) - 1, -1, -1):
            is_top = depth == len(layers) - 1
            outer = np.outer(delta, inputs[depth]) if is_top else np.outer(inputs[depth], delta)
            biases = delta if getattr(model, "bias", True) else np.empty(0)
            subsets = [outer.ravel(), biases, *subsets]
            if depth:
                a = inputs[depth]
                slope = 1 - a**2 if model.activation == "tanh" else (a > 0).astype(float)
                delta = (layers[depth][0] @ delta) * slope
        return np.concatenate(subsets)

    return gradient
