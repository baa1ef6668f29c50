"""Trials of torch modules that users write: no record is seen here.

A module is refused if it has layers that mix records, draw random numbers or keep statistics, and if made-up rows show
that custom code does so. Its last layer is split off: what comes before it (the body) is differentiated by torch, the
last layer in closed form.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fairveil.errors import InvalidParameterError, MissingPackageError

N_TRIALS = 5
"""Made-up rows of a trial."""

TOLERANCE = 1e-4
"""Answers for a row alone and among others may differ by this share of the largest answer: rounding."""

FAILURES = (RuntimeError, TypeError, ValueError, IndexError, AttributeError, NotImplementedError)
"""What a module raises if it does not fit its input, or if torch cannot batch it."""


def load_torch() -> Any:
    """Return torch, or say how to install it."""
    try:
        import torch
    except ImportError:
        raise MissingPackageError(
            "Expected torch for a TorchModel, got an environment without it; install it with pip install "
            "'fairveil[torch]'."
        ) from None
    return torch


@dataclass(frozen=True, eq=False)
class SplitModule:
    """A module that passed its trials, without its last layer.

    Attributes
    ----------
    body : nn.Module
        The module with its last layer replaced by the identity, in evaluation mode.
    dense : tuple of str
        The names of nn.Linear in the body that read one vector of a record, once.
    shapes : dict
        The names and shapes of the trained parameters, those of the last layer last.
    n_classes, n_inputs : int
        Outputs and inputs of the last layer.
    n_values : int
        Numbers that one row becomes in all layers together, for the memory of a micro-batch.
    fingerprint : str
        A digest of the names and shapes of parameters and of everything in the module that is not trained.
    """

    body: Any
    dense: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    n_classes: int
    n_inputs: int
    n_values: int
    fingerprint: str


@contextlib.contextmanager
def public_seed(torch: Any, seed: int) -> Iterator[None]:
    """Let torch draw from this seed; its global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        yield


def build_module(constructor: Callable[[], Any], input_shape: tuple[int, ...], seed: int) -> Any:
    """Return a new module whose initial weights follow from the seed; refuse what is no module of such inputs."""
    torch = load_torch()
    with public_seed(torch, seed), torch.no_grad():
        module = constructor()
        if not isinstance(module, torch.nn.Module):
            raise InvalidParameterError(
                f"Expected a constructor that returns a torch nn.Module, got one that returns a "
                f"{type(module).__name__}; write TorchModel(lambda: MyNet(...), input_shape=...)."
            )
        _check_layers(torch, module)
        module = module.float().eval()
        try:
            logits = module(torch.zeros(2, *input_shape))  # also sizes lazy layers
        except FAILURES as problem:
            raise InvalidParameterError(
                f"Expected a module that takes rows of shape (n_rows, {', '.join(map(str, input_shape))}), got one "
                f"that fails on two rows of zeros ({problem}); check input_shape."
            ) from problem
    if not (isinstance(logits, torch.Tensor) and logits.dim() == 2 and len(logits) == 2 and logits.shape[1] >= 2):
        shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise InvalidParameterError(
            f"Expected logits of shape (n_rows, n_classes) with at least two classes, got {shape} for two rows; a "
            "decision between two classes needs two outputs."
        )
    return module


def _check_layers(torch: Any, module: Any) -> None:
    """Refuse layers that mix records, keep statistics of them, or draw random numbers."""
    nn = torch.nn
    for name, layer in module.named_modules():
        what = f"{type(layer).__name__} ({name or 'the module itself'})"
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise InvalidParameterError(
                f"Expected layers that treat each record by itself, got {what}, which normalizes a record by the "
                "others of its batch; use nn.GroupNorm(n_groups, n_channels) or nn.LayerNorm instead."
            )
        if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
            raise InvalidParameterError(
                f"Expected layers without statistics of other records, got {what}; set track_running_stats=False."
            )
        is_random = isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0
        is_random = is_random or isinstance(layer, (nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d))
        is_random = is_random or (isinstance(layer, (nn.RNNBase, nn.MultiheadAttention)) and layer.dropout > 0)
        if is_random:
            raise InvalidParameterError(
                f"Expected layers without random numbers, got {what}; remove it, or set its dropout to 0: the noise of "
                "private training regularizes by itself."
            )


def split_module(module: Any, input_shape: tuple[int, ...]) -> SplitModule:
    """Try a module that `build_module` made, split off its last layer and return both; refuse unsound modules."""
    torch = load_torch()
    shape = (N_TRIALS, *input_shape)
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=shape).astype(np.float32))
    with public_seed(torch, 0), torch.no_grad():
        for is_training in (True, False):  # custom code may be random in training mode only
            _check_rows(torch, module.train(is_training), rows)
        logits, calls, n_values = _observed(torch, module, rows)
        name, inputs = (calls[-1].name, calls[-1].inputs) if calls else ("", rows)
        trained = {owner: param for owner, param in module.named_parameters() if param.requires_grad}
        own = [f"{name}.weight", f"{name}.bias"] if name else ["weight", "bias"]
        # the very tensor, not changed in place afterwards
        is_last = bool(calls) and calls[-1].answer is logits and logits._version == calls[-1].version
        is_last = is_last and inputs.dim() == 2 and [call.name for call in calls].count(name) == 1
        is_last = is_last and all(each in trained and _n_owners(module, trained[each]) == 1 for each in own)
        body = _without_layer(torch.nn, module, name) if is_last else module
        if not (is_last and _is_split(torch, body, rows, [trained[each] for each in own], logits)):
            raise InvalidParameterError(
                "Expected a module that returns what its last nn.Linear returns, with a bias and weights of its own "
                "(it starts at 0, so that nothing is decided before the first noise), got another one; end it in one, "
                f"for example nn.Sequential(MyNet(), nn.Linear({logits.shape[1]}, {logits.shape[1]}))."
            )
    wrong = [owner for owner, param in trained.items() if param.dtype != torch.float32]
    if wrong:
        raise InvalidParameterError(f"Expected parameters of type float32, got another type for {wrong}.")
    shapes = {each: tuple(trained[each].shape) for each in [*(key for key in trained if key not in own), *own]}
    return SplitModule(
        body=body.eval(),
        dense=_outer_layers(torch.nn, body, calls[:-1], trained),
        shapes=shapes,
        n_classes=logits.shape[1],
        n_inputs=inputs.shape[1],
        n_values=n_values,
        fingerprint=_fingerprint(module, shapes),
    )


class _Call(NamedTuple):
    """One call of an nn.Linear: its name, what it read and returned, and how often the answer had been changed."""

    name: str
    inputs: Any
    answer: Any
    version: int


def _observed(torch: Any, module: Any, rows: Any) -> tuple[Any, list[_Call], int]:
    """Return the module's answers, the calls of each nn.Linear in order, and the numbers that one row becomes."""
    calls: list[_Call] = []
    sizes: list[int] = []

    def note(name: str, layer: Any, answer: Any, inputs: Any) -> None:
        if isinstance(answer, torch.Tensor) and next(layer.children(), None) is None:
            sizes.append(answer.numel() // len(rows))
        if isinstance(layer, torch.nn.Linear):
            calls.append(_Call(name, inputs[0], answer, answer._version))

    hooks = [
        layer.register_forward_hook(lambda layer, inputs, answer, name=name: note(name, layer, answer, inputs))
        for name, layer in module.named_modules()
    ]
    answers = module(rows)
    for hook in hooks:
        hook.remove()
    return answers, calls, sum(sizes)


def _is_split(torch: Any, body: Any, rows: Any, last: list[Any], logits: Any) -> bool:
    """Say whether the body and the last layer together answer as the whole module did."""
    try:
        return _agree(torch, torch.nn.functional.linear(body(rows), *last), logits)
    except FAILURES:  # code of the module reads the layer itself
        return False


def _outer_layers(nn: Any, body: Any, calls: list[_Call], trained: dict[str, Any]) -> tuple[str, ...]:
    """Return the nn.Linear that read one vector of each record, once, with weights of their own."""
    layers = dict(body.named_modules())
    found = []
    for name, read, *_ in calls:
        params = [f"{name}.{key}" for key, _ in layers[name].named_parameters()]
        is_own = all(key in trained and _n_owners(body, trained[key]) == 1 for key in params)
        is_outer = type(layers[name]) is nn.Linear and read.dim() == 2 and len(read) == N_TRIALS
        if is_own and is_outer and [call.name for call in calls].count(name) == 1:
            found.append(name)
    return tuple(found)


def _check_rows(torch: Any, module: Any, rows: Any) -> None:
    """Refuse a module that answers a row otherwise alone, or a second time, or that keeps something of its rows."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    problem = ""
    try:
        together = module(rows)
        again = module(rows)
        alone = torch.cat([module(rows[place : place + 1]) for place in range(len(rows))])
        broken = rows.clone()
        broken[0] = float("nan")
        beside = module(broken)[1:]
    except FAILURES as error:
        problem = f"fails on some numbers of rows ({error})"
    else:
        if not _agree(torch, together, again):
            problem = "answers the same rows differently each time"
        elif not (_agree(torch, together, alone) and _agree(torch, together[1:], beside)):
            problem = "answers a row differently if other rows are beside it"
        elif any(not torch.equal(before[name], buffer) for name, buffer in module.named_buffers()):
            problem = "keeps statistics of its rows in a buffer"
    if problem:
        raise InvalidParameterError(
            f"Expected a module that treats each record by itself and draws no random numbers, got a "
            f"{type(module).__name__} that {problem}, tried on made-up rows; normalize each record by itself, "
            "for example by nn.GroupNorm, and leave dropout out."
        )


def _agree(torch: Any, first: Any, second: Any) -> bool:
    if first.shape != second.shape:
        return False
    scale = float(torch.nan_to_num(first).abs().max()) + 1e-30
    return bool(torch.allclose(first, second, rtol=0, atol=TOLERANCE * scale, equal_nan=True))


def _n_owners(module: Any, param: Any) -> int:
    """Return how many layers hold a parameter."""
    return sum(param is each for _, each in module.named_parameters(remove_duplicate=False))


def _without_layer(nn: Any, module: Any, name: str) -> Any:
    """Return the module with the identity in place of one layer."""
    if not name:
        return nn.Identity()
    parent, _, own = name.rpartition(".")
    setattr(module.get_submodule(parent), own, nn.Identity())
    return module


def _fingerprint(module: Any, shapes: dict[str, tuple[int, ...]]) -> str:
    """Return a digest of what a saved model needs besides its trained parameters."""
    digest = hashlib.sha256(repr(sorted(shapes.items())).encode())
    fixed = [*module.named_buffers(), *((name, param) for name, param in module.named_parameters())]
    for name, value in sorted(fixed, key=lambda pair: pair[0]):
        if name not in shapes:
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(value.detach().cpu().numpy()).tobytes())
    return digest.hexdigest()
