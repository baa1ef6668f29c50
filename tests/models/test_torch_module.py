"""Do torch modules keep the promises of a model, and are those refused that could not?"""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from fairveil.errors import InvalidParameterError, MissingPackageError
from fairveil.models import Decoupled, LinearSoftmax, Perceptron, TorchModel, with_module
from fairveil.models.base import NONE, Known, model_from_dict, model_to_dict
from fairveil.models.linear import LARGEST_CLIP, SMALLEST_CLIP
from fairveil.models.resnet import group_norm_resnet
from fairveil.models.row_stable import row_stable_forward, row_stable_inputs, row_stable_logits
from fairveil.privacy.probes import check_model

torch = pytest.importorskip("torch", reason="needs torch: pip install 'fairveil[torch]'")
nn = torch.nn

EXCESS = 1 + 1e-5


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 2),
    )  # fmt: skip


class Tokens(nn.Module):
    """Four tokens, with or without attention: a dense layer that reads several vectors of a record."""

    def __init__(self, attends=False):
        super().__init__()
        self.mix = nn.MultiheadAttention(4, 2, batch_first=True) if attends else None
        self.each = nn.Linear(4, 3)
        self.norm = nn.LayerNorm(3)
        self.last = nn.Linear(12, 3)

    def forward(self, x):
        tokens = x.flatten(1).view(-1, 4, 4)
        mixed = tokens if self.mix is None else self.mix(tokens, tokens, tokens, need_weights=False)[0]
        return self.last(self.norm(torch.tanh(self.each(mixed))).flatten(1))


class Recurrent(nn.Module):
    """Torch cannot batch the gradients of recurrent layers: records are differentiated one by one."""

    def __init__(self):
        super().__init__()
        self.read = nn.LSTM(4, 3, batch_first=True)
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        return self.last(self.read(x.flatten(1).view(-1, 4, 4))[0][:, -1])


class Shared(nn.Module):
    """One dense layer used twice, a frozen one, a buffer, and a parameter that is not used."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(16, 4).requires_grad_(False)
        self.twice = nn.Linear(4, 4)
        self.unused = nn.Parameter(torch.ones(2))
        self.register_buffer("scale", torch.rand(4))
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        x = self.frozen(x.flatten(1)) * self.scale
        return self.last(torch.tanh(self.twice(torch.tanh(self.twice(x)))))


def dense():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 7), nn.Tanh(), nn.Linear(7, 4, bias=False), nn.ReLU(), nn.Linear(4, 3)
    )


def flat_linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


def residual():
    return group_norm_resnet(2, 1, widths=(4, 8), blocks=(1, 1), n_groups=2)


CASES = {
    "cnn": cnn, "dense": dense, "linear": flat_linear, "resnet": residual, "tokens": Tokens,
    "attention": lambda: Tokens(attends=True), "lstm": Recurrent, "shared": Shared,
}  # fmt: skip
SHAPES = {"cnn": (1, 6, 6)}


@pytest.fixture(scope="module", params=CASES)
def model(request):
    return TorchModel(CASES[request.param], SHAPES.get(request.param, (1, 4, 4)), micro_batch=7)


@pytest.fixture(scope="module")
def network():
    return TorchModel(cnn, (1, 6, 6))


def batch(model, rng, n_rows=20):
    params = model.initial(rng) + rng.normal(scale=0.3, size=model.n_params).astype(np.float32)
    X = rng.normal(size=(n_rows, model.n_features)).astype(np.float32)
    return params, X, rng.normal(size=(model.n_classes, n_rows)).astype(np.float32)


def looped(model, params, X, dlogits):
    """Gradients of a fresh module by plain autograd, a record at a time, flat in the order of the flat vector."""
    module = model.module_with(params).double()
    named = dict(module.named_parameters())
    own = [named[name] for name in model._split.shapes]
    gradients = []
    for x, pull in zip(X, dlogits.T, strict=True):
        logits = module(torch.from_numpy(x.astype(np.float64)).reshape(1, *model.input_shape))
        found = torch.autograd.grad(logits, own, torch.from_numpy(pull.astype(np.float64))[None], allow_unused=True)
        flat = [torch.zeros_like(param) if g is None else g for param, g in zip(own, found, strict=True)]
        gradients.append(np.concatenate([g.numpy().ravel() for g in flat]))
    return np.array(gradients)


# --- the promises of a model --------------------------------------------------------------------------------------


def test_norms_equal_those_of_a_per_record_loop(model, rng):
    params, X, dlogits = batch(model, rng)
    expected = np.linalg.norm(looped(model, params, X, dlogits), axis=1)
    np.testing.assert_allclose(model.gradient_norms(params, X, dlogits), expected, rtol=1e-5)


@pytest.mark.parametrize("clip_norm", [1e-3, 0.8, 1e4, math.inf, "own"])
def test_clipped_sums_equal_a_per_record_loop(model, rng, clip_norm):
    params, X, dlogits = batch(model, rng)
    bound = rng.choice([0.01, 1.0, 1e4], size=len(X)).astype(np.float32) if clip_norm == "own" else clip_norm
    gradients = looped(model, params, X, dlogits)
    expected = np.minimum(1.0, bound / np.linalg.norm(gradients, axis=1)) @ gradients
    actual = model.clipped_gradient(params, X, dlogits, bound)
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5 * np.linalg.norm(expected))


def test_which_modules_are_batched_and_which_layers_are_outer_products(model, request):
    name = request.node.callspec.params["model"]
    assert model._is_batched == (name not in {"lstm", "attention"})  # torch cannot batch these two
    expected = {"cnn": ("7",), "dense": ("1", "3")}
    assert model._split.dense == expected.get(name, ())


def test_micro_batches_change_nothing_but_memory(rng, monkeypatch):
    small, large = (TorchModel(cnn, (1, 6, 6), micro_batch=size) for size in (4, 64))
    params, X, dlogits = batch(small, rng, n_rows=50)
    sizes, compute = [], TorchModel._batched
    monkeypatch.setattr(TorchModel, "_batched", lambda *args: sizes.append(len(args[2])) or compute(*args))
    sums = [model.clipped_gradient(params, X, dlogits, 0.5) for model in (small, large)]
    assert sizes == [4] * 12 + [2, 50]
    np.testing.assert_allclose(*sums, atol=1e-5)
    np.testing.assert_allclose(small.logits(params, X), large.logits(params, X), atol=1e-5)


def test_nothing_is_decided_before_the_first_noise(model, rng):
    """Logits start at exactly 0, and no gradient reaches the body."""
    _, X, dlogits = batch(model, rng)
    params = model.initial(rng)
    assert not model.logits(params, 100 * X).any()
    moved, last = model.clipped_gradient(params, X, dlogits, 1.0), model.n_classes * (model.n_last_inputs + 1)
    assert moved[-last:].any() and not moved[:-last].any()


def test_initial_weights_follow_from_public_coins(model):
    first = model.initial(np.random.default_rng(3))
    assert (first.dtype, first.shape) == (np.float32, (model.n_params,))
    assert np.array_equal(first, model.initial(np.random.default_rng(3)))
    if model.n_params > 60:  # a single layer starts at 0
        assert not np.array_equal(first, model.initial(np.random.default_rng(4)))


def test_torch_is_left_as_it_was(rng):
    state, dtype, threads = torch.random.get_rng_state(), torch.get_default_dtype(), torch.get_num_threads()
    model = TorchModel(cnn, (1, 6, 6))
    model.clipped_gradient(*batch(model, rng), 0.5)
    model.logits(*batch(model, rng)[:2])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (torch.get_default_dtype(), torch.get_num_threads()) == (dtype, threads)


def test_what_is_passed_in_is_left_alone_and_may_be_read_only(model, rng):
    arrays = batch(model, rng)
    known = Known(model.forward(*arrays[:2]), np.ones(20, np.float32))
    before = [array.copy() for array in arrays]
    for array in arrays:
        array.setflags(write=False)
    model.clipped_gradient(*arrays, 0.5, known)
    model.gradient_norms(*arrays, known)
    for array, copy in zip(arrays, before, strict=True):
        assert np.array_equal(array, copy)


def test_shifted_parameters_raise_every_rows_logits_by_the_offsets(model, rng):
    params, X, _ = batch(model, rng)
    offsets = rng.normal(size=model.n_classes)
    shifted = model.shifted(params, offsets)
    np.testing.assert_allclose(model.logits(shifted, X), model.logits(params, X) + offsets[:, None], atol=1e-5)


def test_logits_keep_double_precision(model, rng):
    params, X, _ = batch(model, rng)
    doubled = model.logits(params.astype(np.float64), X.astype(np.float64))
    assert doubled.dtype == np.float64 and doubled.flags.c_contiguous
    expected = model.module_with(params).double()(
        torch.from_numpy(X.astype(np.float64)).reshape(20, *model.input_shape)
    )
    np.testing.assert_allclose(doubled, expected.detach().numpy().T, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("clip_norm", [0.5, math.inf])
def test_an_empty_batch_adds_nothing(model, clip_norm):
    params = model.initial(np.random.default_rng(0))
    X, dlogits = np.empty((0, model.n_features), np.float32), np.empty((model.n_classes, 0), np.float32)
    assert not model.clipped_gradient(params, X, dlogits, clip_norm).any()
    assert model.gradient_norms(params, X, dlogits).shape == (0,)
    assert model.logits(params, X).shape == (model.n_classes, 0)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.nan, 1e-30])
def test_a_bound_that_is_no_bound_is_refused(network, rng, clip_norm):
    with pytest.raises(InvalidParameterError, match="clip_norm"):
        network.clipped_gradient(*batch(network, rng), clip_norm)


def test_a_module_passes_the_trial_of_models(model):
    check_model(model)


class Unclipped(TorchModel):
    def clipped_gradient(self, params, X, dlogits, bound, known=NONE):
        return super().clipped_gradient(params, X, dlogits, math.inf, known)


class ClippedTogether(TorchModel):
    def clipped_gradient(self, params, X, dlogits, bound, known=NONE):
        total = np.nan_to_num(super().clipped_gradient(params, X, dlogits, math.inf, known))
        return total * np.float32(min(1.0, np.min(bound) / (np.linalg.norm(total) + 1e-9)))


@pytest.mark.parametrize("broken", [Unclipped, ClippedTogether])
def test_a_twin_that_does_not_clip_each_record_is_caught(broken):
    with pytest.raises(InvalidParameterError, match="clips the gradient of each record by itself"):
        check_model(broken(cnn, (1, 6, 6)))


def test_a_linear_module_is_the_linear_model(rng):
    module, model = TorchModel(flat_linear, (1, 4, 4)), LinearSoftmax(16, 3)
    params, X, dlogits = batch(module, rng)
    np.testing.assert_allclose(module.logits(params, X), model.logits(params, X), atol=1e-5)
    sums = (each.clipped_gradient(params, X, dlogits, 0.5) for each in (module, model))
    np.testing.assert_allclose(*sums, atol=1e-5)


def test_a_dense_module_is_the_perceptron(rng):
    def make():
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3))

    module, model = TorchModel(make, (1, 4, 4)), Perceptron(16, (6,), 3)
    _, X, dlogits = batch(module, rng)
    params = rng.normal(size=model.n_params).astype(np.float32)

    def as_torch(flat):
        return np.concatenate([flat[:96].reshape(16, 6).T.ravel(), flat[96:]])

    np.testing.assert_allclose(module.logits(as_torch(params), X), model.logits(params, X), atol=1e-4)
    ours = as_torch(model.clipped_gradient(params, X, dlogits, 0.5))
    np.testing.assert_allclose(module.clipped_gradient(as_torch(params), X, dlogits, 0.5), ours, atol=1e-5)


# --- the bound --------------------------------------------------------------------------------------------------------

SIZES = [0.0, 1e-45, 1e-30, 1e-19, 1.0, 1e15, 1e25, 3e38, math.inf, math.nan]


@pytest.mark.parametrize("clip_norm", [SMALLEST_CLIP, 1.0, LARGEST_CLIP])
def test_the_bound_holds_at_every_magnitude(network, rng, clip_norm):
    params, X, dlogits = batch(network, rng, n_rows=1)
    for a in SIZES:
        for b in SIZES:
            with np.errstate(all="ignore"):
                x, pull = (X * a).astype(np.float32), (dlogits * b).astype(np.float32)
            gradient = network.clipped_gradient(params, x, pull, clip_norm)
            assert np.isfinite(gradient).all()
            assert np.linalg.norm(gradient.astype(np.float64)) <= clip_norm * EXCESS


def test_the_bound_is_nearly_reached(model, rng):
    params, X, dlogits = batch(model, rng)
    for row in range(len(X)):
        one = model.clipped_gradient(params, X[row : row + 1], dlogits[:, row : row + 1], 1e-3)
        assert 1e-3 * (1 - 1e-5) <= np.linalg.norm(one.astype(np.float64)) <= 1e-3 * EXCESS


@pytest.mark.parametrize("where", ["x", "dlogits"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
def test_a_broken_record_leaves_the_others_as_they_are(model, rng, where, value):
    params, X, dlogits = batch(model, rng, n_rows=12)
    others = np.arange(12) != 5
    clean = model.clipped_gradient(params, X[others], dlogits[:, others], 0.5)
    target = X[5] if where == "x" else dlogits[:, 5]
    target[:] = value
    norms = model.gradient_norms(params, X, dlogits)
    assert np.isfinite(norms[others]).all()
    for bound in (0.5, np.full(12, 0.5, np.float32)):
        gradient = model.clipped_gradient(params, X, dlogits, bound)
        allowed = 0.0 if np.isinf(norms[5]) else 0.5  # normalized inputs may be large and the gradient finite
        assert np.linalg.norm(gradient - clean) <= allowed * EXCESS + 1e-5


# --- records do not change each other -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_one_record_hardly_changes_the_rounding_of_others(network, rng, scale):
    """In a block of equal rows, where rounding adds up; the noise covers .01 bounds (docs/proofs/torch_modules.md)."""
    params = (scale * (network.initial(rng) + 0.3 * rng.normal(size=network.n_params))).astype(np.float32)
    X = np.repeat(rng.normal(size=(1, 36)), 2049, axis=0).astype(np.float32)
    dlogits = np.repeat([[1.0], [-1.0]], 2049, axis=1).astype(np.float32)
    whole, rest, one = (
        network.clipped_gradient(params, X[own], dlogits[:, own], 1.0).astype(np.float64)
        for own in (slice(None), slice(1, None), slice(1))
    )
    assert np.linalg.norm(whole - rest - one) < 1e-3


def test_row_stable_answers_depend_on_their_own_row_alone(model, rng):
    params, X, _ = batch(model, rng, n_rows=9)
    for answer in (row_stable_logits, row_stable_inputs):
        whole = answer(model, params, X)
        assert whole.dtype == np.float64
        assert np.array_equal(answer(model, params, X[4:])[:, 1], whole[:, 5])
    whole = row_stable_forward(model, params, X)
    part = row_stable_forward(model, params, X[4:])
    assert np.array_equal(part[-1][:, 1], whole[-1][:, 5])


def test_row_stable_gradients_are_sums_of_single_ones_to_the_last_bit(model, rng):
    params, X, dlogits = batch(model, rng, n_rows=6)
    known = Known(row_stable_forward(model, params, X))
    alone = [model.clipped_gradient(params, X[r : r + 1], dlogits[:, r : r + 1], 0.5) for r in range(6)]
    expected = np.sum(alone, axis=0)
    assert np.array_equal(model.clipped_gradient(params, X, dlogits, 0.5, known), expected)


# --- refusals -----------------------------------------------------------------------------------------------------


class Custom(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change = change
        self.register_buffer("mean", torch.zeros(16))
        self.last = nn.Linear(16, 2)

    def forward(self, x):
        return self.last(self.change(self, x.flatten(1)))


class Tied(Custom):
    def forward(self, x):
        return super().forward(x) + 0 * self.last.weight.sum()


def keeps_statistics(module, x):
    if module.training:
        module.mean = 0.9 * module.mean + 0.1 * x.mean(dim=0)
    return x


def around(*layers, end=True):
    return lambda: nn.Sequential(*layers, nn.Flatten(), *([nn.LazyLinear(2)] if end else []))


REFUSED = {
    "batch norm": (around(nn.BatchNorm2d(1)), "BatchNorm2d.*nn.GroupNorm"),
    "statistics": (around(nn.InstanceNorm2d(1, track_running_stats=True)), "track_running_stats"),
    "dropout": (around(nn.Dropout(0.2)), "Dropout.*regularizes by itself"),
    "custom mean": (lambda: Custom(lambda m, x: x - x.mean(dim=0)), "other rows are beside it.*nn.GroupNorm"),
    "custom maximum": (lambda: Custom(lambda m, x: x / x.abs().max()), "other rows are beside it"),
    "custom order": (lambda: Custom(lambda m, x: x.flip(0)), "other rows are beside it"),
    "custom dropout": (lambda: Custom(lambda m, x: nn.functional.dropout(x, 0.5, m.training)), "differently each time"),
    "custom batch norm": (
        lambda: Custom(lambda m, x: nn.functional.batch_norm(x, None, None, training=True)), "numbers of rows",
    ),
    "custom buffer": (lambda: Custom(keeps_statistics), "keeps statistics"),
    "no last layer": (around(nn.Conv2d(1, 2, 4), end=False), "last nn.Linear"),
    "ends in softmax": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 2), nn.LogSoftmax(1)), "last nn.Linear"),
    "changed in place": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 2), nn.ReLU(True)), "last nn.Linear"),
    "no bias": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 2, bias=False)), "last nn.Linear"),
    "weights read twice": (lambda: Tied(lambda m, x: x), "last nn.Linear"),
    "one output": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 1)), "two outputs"),
    "other inputs": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(15, 2)), "check input_shape"),
    "no module": (lambda: 3, "returns a int"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_modules_that_break_a_promise_are_refused_with_advice(case):
    make, message = REFUSED[case]
    with pytest.raises(InvalidParameterError, match=f"(?s)Expected .*{message}"):
        TorchModel(make, (1, 4, 4))


def test_dropout_of_zero_and_statistics_of_one_record_are_accepted():
    model = TorchModel(around(nn.Dropout(0.0), nn.InstanceNorm2d(1)), (1, 4, 4))
    assert model.n_params == 34


def test_a_module_in_place_of_its_constructor_is_refused():
    with pytest.raises(InvalidParameterError, match="exists already"):
        TorchModel(cnn(), (1, 6, 6))
    same = cnn()
    model = TorchModel(lambda: same, (1, 6, 6))
    with pytest.raises(InvalidParameterError, match="new module each time"):
        model.initial(np.random.default_rng(0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_computes_what_a_cpu_does(model, rng):
    moved = TorchModel(model.module, model.input_shape, device="cuda")
    assert moved._is_batched == model._is_batched
    params, X, dlogits = batch(model, rng)
    np.testing.assert_allclose(moved.logits(params, X), model.logits(params, X), rtol=1e-3, atol=1e-3)
    for bound in (0.5, math.inf):
        sums = (each.clipped_gradient(params, X, dlogits, bound) for each in (moved, model))
        np.testing.assert_allclose(*sums, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    "arguments", [{"input_shape": ()}, {"input_shape": (0,)}, {"micro_batch": 0}, {"device": "abacus"}]
)
def test_sizes_that_make_no_model_are_refused(arguments):
    with pytest.raises(InvalidParameterError, match="Expected"):
        TorchModel(cnn, **({"input_shape": (1, 6, 6)} | arguments))


def test_rows_must_fit_the_input_shape_and_classes_the_outputs(network, rng):
    assert network.for_rows(36, False, 2) == network
    doubled = network.for_rows(72, True, 2)
    params, X, _ = batch(network, rng)
    flagged = np.stack([X, rng.normal(size=X.shape)], axis=2).reshape(20, -1).astype(np.float32)
    assert np.array_equal(doubled.logits(params, flagged), network.logits(params, X))
    for wrong, message in (((72, False, 2), "numbers"), ((35, False, 2), "numbers"), ((36, False, 3), "3 outputs")):
        with pytest.raises(InvalidParameterError, match=message):
            network.for_rows(*wrong)


# --- saving -------------------------------------------------------------------------------------------------------


def test_facts_survive_json_and_need_the_constructor(network, rng):
    params, X, _ = batch(network, rng)
    facts = json.loads(json.dumps(model_to_dict(network)))
    assert facts["kind"] == "torch" and "module" not in facts and "device" not in facts
    saved = model_from_dict(facts)
    for use in (lambda: saved.logits(params, X), lambda: with_module(saved, None)):
        with pytest.raises(InvalidParameterError, match=r"constructor.*module=MyNet"):
            use()
    assert with_module(saved, cnn) == network
    assert np.array_equal(with_module(saved, cnn).logits(params, X), network.logits(params, X))
    decoupled = with_module(model_from_dict(model_to_dict(Decoupled(network, 2))), cnn)
    assert decoupled == Decoupled(network, 2)
    with pytest.raises(InvalidParameterError, match="without torch"):
        with_module(LinearSoftmax(3), cnn)


def other_activation():
    module = cnn()
    module[2] = nn.Tanh()
    return module


@pytest.mark.parametrize(
    ("make", "what"),
    [(other_activation, "answers otherwise"), (lambda: nn.Sequential(cnn()), "layers"), (dense, "n_rows")],
)
def test_another_module_than_the_saved_one_is_refused(network, make, what):
    saved = model_from_dict(model_to_dict(network))
    with pytest.raises(InvalidParameterError, match=what):
        with_module(saved, make)


@pytest.mark.parametrize(
    "change", [{"n_classes": "two"}, {"n_params": -1}, {"input_shape": (1.5,)}, {"fingerprint": 3}, {"answers": ("a",)}]
)
def test_damaged_facts_are_refused(network, change):
    with pytest.raises((InvalidParameterError, TypeError)):
        model_from_dict(model_to_dict(network) | change)


def test_trained_weights_come_back_as_a_module(network, rng):
    params, X, _ = batch(network, rng)
    module = network.module_with(params)
    assert isinstance(module, nn.Sequential) and not module.training
    with torch.no_grad():
        logits = module(torch.from_numpy(X).reshape(-1, 1, 6, 6)).numpy().T
    np.testing.assert_allclose(logits, network.logits(params, X), atol=1e-5)


# --- without torch ------------------------------------------------------------------------------------------------


def test_a_missing_extra_names_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'fairveil\[torch\]'"):
        TorchModel(cnn, (1, 6, 6))


def test_the_resnet_of_the_paper_has_its_size():
    assert 6.4e6 < sum(param.numel() for param in group_norm_resnet(2).parameters()) < 6.5e6
    kinds = [type(layer) for layer in group_norm_resnet(2).modules()]
    assert kinds.count(nn.Conv2d) - 3 + kinds.count(nn.Linear) == 16  # beside three shortcuts


@pytest.mark.slow
def test_everything_else_works_without_torch():
    code = (
        "import sys, importlib.abc\n"
        "class Absent(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.partition('.')[0] in {'torch', 'opacus'}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import numpy as np\n"
        "from fairveil import PrivateClassifier, Schema, TorchModel\n"
        "X = np.arange(200.0).reshape(100, 2); y = np.arange(100) % 2\n"
        "schema = Schema.for_arrays(2, classes=(0, 1), bounds=(0, 200), n_public=100)\n"
        "clf = PrivateClassifier(epsilon=1.0, schema=schema).fit(X, y)\n"
        "assert clf.predict(X).shape == (100,)\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True)
