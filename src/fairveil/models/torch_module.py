"""A torch module as a model: logits, and exact sums of clipped gradients of records, in micro-batches of flat memory.

The module is split into its last layer, an nn.Linear, and its body, all that comes before it. The gradient of a record
by the body's parameters is a vector-Jacobian product of that record alone (`torch.func.vmap`, or a loop where torch
cannot batch the module) and is held in memory before it is clipped; that of the last layer is an outer product. Why
the bound holds in floating point, with u = 2^-24:

* *Norms* are those of the very float32 numbers that are added up later, with squares and sums in float64: squares
  neither overflow nor underflow, and the relative error is below 1e-12. They are rounded to float32 once and clipped by
  `clip_factors` of `fairveil.models.linear`, whose safety of 16 u covers this and the product with the factor.
* *Sums* are made of at most 32 records in float32, and these sums are added in float64, as `sum_products` does.
* *Overflow, NaN, infinity.* A record whose squared norm is not a finite float32 adds exactly zero: its gradients are
  set to zero before the product. Each record is differentiated by itself, so no other one sees its numbers.

docs/proofs/torch_modules.md has the argument and what was measured.
"""

import copy
import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_number
from fairveil.data.coded import Features, dense
from fairveil.errors import InvalidParameterError
from fairveil.models.base import MODEL_KINDS, NONE, NOT_SAVED, Bound, Known, ignore_float_warnings, with_higher_biases
from fairveil.models.linear import clip_factors
from fairveil.models.torch_gradients import (
    RecordGradients,
    batched_gradients,
    looped_gradients,
    slices,
    summed_gradients,
)
from fairveil.models.torch_trials import FAILURES, SplitModule, build_module, load_torch, split_module

MICRO_VALUES, MOST_ROWS = 2**26, 256
"""Numbers in memory for the gradients and activations of one micro-batch (256 MB), and its largest number of rows."""

NO_CONSTRUCTOR = (
    "Expected the constructor of the torch module that this model was trained with, got none; load the model in Python "
    "and pass it: load(folder, module=MyNet)."
)

LARGEST_DEVIATION = 1e-3
"""Answers of the module that a saved model is loaded with may differ from the saved ones by this share."""


@dataclass(frozen=True)
class TorchModel:
    """Any torch module that maps inputs to logits and ends in an nn.Linear, as a model that can be trained privately.

    Parameters
    ----------
    module : callable without arguments
        Makes a new module each time: ``lambda: MyNet(width=16)``, or a class. Its initial weights and everything in it
        that is not trained (buffers, parameters that need no gradient) are public.
    input_shape : tuple of int
        The shape of one record, (1, 8, 8) for instance; a row of that many features is reshaped to it.
    device : str
        Where torch computes: "cpu", "cuda", "cuda:1". The constructor makes the module on the CPU.
    micro_batch : int, optional
        How many records are differentiated at once, which sets the memory that is used; None follows from sizes.
    n_features, n_classes, n_params : int
        Facts of a saved model, which the module must match; left open, they are the module's.
    fingerprint : str
        A digest of layers and constants, one more such fact.
    answers : tuple of float
        Logits of made-up rows, one more.

    Notes
    -----
    Layers that mix records (batch normalization), keep statistics or draw random numbers (dropout) are refused; custom
    code is tried on made-up rows. The last layer starts at 0, so that all logits start at exactly 0. Where a row has
    twice as many features as the input shape, each scaled number with a flag for a missing value after it, the flags
    are not read.

    Examples
    --------
    >>> from torch import nn                                                                   # doctest: +SKIP
    >>> def network(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> TorchModel(network, input_shape=(1, 8, 8)).n_params                                    # doctest: +SKIP
    1074
    """

    module: Callable[[], Any] | None = field(default=None, metadata=NOT_SAVED)
    input_shape: tuple[int, ...] = ()
    device: str = field(default="cpu", metadata=NOT_SAVED)
    micro_batch: int | None = field(default=None, metadata=NOT_SAVED)
    n_features: int = 0
    n_classes: int = 0
    n_params: int = 0
    fingerprint: str = ""
    answers: tuple[float, ...] = field(default=(), repr=False, compare=False)
    _split: SplitModule | None = field(default=None, init=False, repr=False, compare=False)
    _rows: int = field(default=1, init=False, repr=False, compare=False)
    _is_batched: bool = field(default=False, init=False, repr=False, compare=False)
    reads_codes: ClassVar[bool] = True  # coded rows are written out a micro-batch at a time

    def __post_init__(self) -> None:
        shape = tuple(int(check_number("input_shape", size, whole=True)) for size in self.input_shape)
        object.__setattr__(self, "input_shape", shape)
        size, n_features = math.prod(shape), self.n_features or math.prod(shape)
        object.__setattr__(self, "n_features", n_features)
        if not shape or n_features not in (size, 2 * size):
            raise InvalidParameterError(
                f"Expected an input_shape of as many numbers as a row has features, got {shape} and {n_features} "
                "features; write for example input_shape=(1, 8, 8) for 64 columns."
            )
        if self.micro_batch is not None:
            check_number("micro_batch", self.micro_batch, whole=True)
        if self.module is not None:
            self._attach(self.module)
            return
        # facts of a saved model, which may have been changed
        for name in ("n_classes", "n_params"):
            check_number(name, getattr(self, name), whole=True)
        if not (isinstance(self.fingerprint, str) and all(isinstance(each, (int, float)) for each in self.answers)):
            raise InvalidParameterError("Expected the facts of a saved module, got others; save the model again.")

    def _attach(self, constructor: Callable[[], Any]) -> None:
        """Build and try the module; refuse one that does not match the facts of a saved model."""
        torch = load_torch()
        if isinstance(constructor, torch.nn.Module):
            raise InvalidParameterError(
                f"Expected a constructor of modules, got a {type(constructor).__name__} that exists already; write "
                "TorchModel(lambda: MyNet(...), input_shape=...)."
            )
        split = split_module(build_module(constructor, self.input_shape, seed=0), self.input_shape)
        n_params = sum(map(math.prod, split.shapes.values()))
        found = {"n_classes": split.n_classes, "n_params": n_params, "fingerprint": split.fingerprint}
        for name, value in found.items():
            if getattr(self, name) not in (0, "", value):
                raise InvalidParameterError(
                    "Expected the constructor of the module that was saved, got one of another module (other "
                    f"{'layers or constants' if name == 'fingerprint' else name}); pass the one it was trained with."
                )
            object.__setattr__(self, name, value)
        try:
            split.body.to(self.device)
        except (RuntimeError, AssertionError) as problem:
            raise InvalidParameterError(
                f"Expected a device that torch can use here, got {self.device!r} ({problem}); use device='cpu'."
            ) from None
        object.__setattr__(self, "_split", split)
        values = n_params + 3 * split.n_values
        object.__setattr__(self, "_rows", self.micro_batch or max(1, min(MOST_ROWS, MICRO_VALUES // values)))
        X, params = self._trial()
        answers = np.nan_to_num(self.logits(params, X)).ravel().astype(float)
        if self.answers and not np.allclose(
            answers, self.answers, rtol=0, atol=LARGEST_DEVIATION * (np.abs(answers).max() + 1e-30)
        ):
            raise InvalidParameterError(
                "Expected the constructor of the module that was saved, got one that answers otherwise with the same "
                "parameters; pass the one it was trained with."
            )
        object.__setattr__(self, "answers", self.answers or tuple(np.round(answers, 6).tolist()))
        object.__setattr__(self, "_is_batched", self._can_be_batched(params, X))

    def with_module(self, constructor: Callable[[], Any] | None) -> "TorchModel":
        """Return a saved model that can be used again, with the constructor it was trained with; refuse None."""
        if constructor is None:
            raise InvalidParameterError(NO_CONSTRUCTOR)
        return dataclasses.replace(self, module=constructor)

    def for_rows(self, n_features: int, is_scaled: bool, n_classes: int) -> "TorchModel":
        """Return the model for rows of `n_features` and a task of `n_classes`; refuse others.

        With `is_scaled`, each number of a row has a flag for a missing value after it.
        """
        size = math.prod(self.input_shape)
        if n_features != size and not (is_scaled and n_features == 2 * size):
            columns = f"{n_features // 2 if is_scaled else n_features} features"
            raise InvalidParameterError(
                f"Expected rows of {size} numbers for the input shape {self.input_shape}, got {columns}; change "
                "input_shape, or declare columns that are read as scaled numbers."
            )
        if n_classes != self.n_classes:
            raise InvalidParameterError(
                f"Expected a module of {n_classes} outputs for this task, got {self.n_classes}; change its last layer "
                "(a joint model has one output for each pair of a group and a class)."
            )
        model = copy.copy(self)
        object.__setattr__(model, "n_features", n_features)
        return model

    def module_with(self, params: Float32Array) -> Any:
        """Return a new torch module, in evaluation mode, that holds the parameters `params` (``clf.params_``)."""
        torch, split = load_torch(), self._module()
        module = build_module(self._constructor, self.input_shape, seed=0)
        own = dict(module.named_parameters())
        with torch.no_grad():
            for name, value in self._views(torch.from_numpy(np.array(params, dtype=np.float32))).items():
                own[name].copy_(value)
        if any(module is each for each in split.body.modules()):
            raise InvalidParameterError("Expected a constructor that makes a new module each time, got the same one.")
        return module

    # --- the model ---------------------------------------------------------------------------------------------

    @property
    def n_last_inputs(self) -> int:
        """The number of inputs of the last layer."""
        return self._module().n_inputs

    def initial(self, rng: np.random.Generator) -> Float32Array:
        """Return the weights that a new module starts with, drawn from the public `rng`, and a last layer of zeros.

        With a last layer of zeros all logits start at exactly 0: before any noise is added, no rounding of a product
        can decide how a row is decided.
        """
        split = self._module()
        module = build_module(self._constructor, self.input_shape, int(rng.integers(2**62)))
        if any(module is each for each in split.body.modules()):
            raise InvalidParameterError(
                "Expected a constructor that makes a new module each time, got one that returns the same; create the "
                "module inside it."
            )
        own = {name: param.detach().numpy().ravel() for name, param in module.named_parameters()}
        params = np.concatenate([own[name] for name in split.shapes]).astype(np.float32)
        params[-split.n_classes * (split.n_inputs + 1) :] = 0
        return params

    def forward(self, params: Float32Array, X: Features) -> tuple[Float32Array, ...]:
        """Return the inputs of the last layer (n_rows, n_inputs), and the logits (n_classes, n_rows), at `params`.

        Rows `X` and parameters of float64 are computed in double precision.
        """
        return self._forward(params, X, self._rows)

    def forward_alone(self, params: NDArray[np.floating], X: Features) -> tuple[Float32Array, ...]:
        """Return what `forward` returns at `params`, each row of `X` in a batch of its own, where no row changes it."""
        return self._forward(params, X, 1)

    @ignore_float_warnings
    def _forward(self, params: Any, X: Any, size: int) -> tuple[Float32Array, ...]:
        torch, split = load_torch(), self._module()
        dtype = _dtype(params, X)
        weights, biases, hidden = self._parts(torch.from_numpy(np.array(params, dtype=dtype)).to(self.device))
        features = np.empty((len(X), split.n_inputs), dtype=dtype)
        logits = np.empty((split.n_classes, len(X)), dtype=dtype)
        with torch.no_grad():
            for own in slices(len(X), size):
                inputs = self._call(hidden, self._inputs(X[own], dtype))
                features[own] = inputs.cpu().numpy()
                logits[:, own] = torch.nn.functional.linear(inputs, weights, biases).T.cpu().numpy()
        return features, logits

    def logits(self, params: Float32Array, X: Features) -> Float32Array:
        """Return the logits of rows `X` at `params`, shape (n_classes, n_rows)."""
        return self.forward(params, X)[-1]

    def shifted(self, params: Float32Array, offsets: NDArray[np.floating]) -> Float32Array:
        """Return `params` changed so that logits are higher by one of the `offsets` a class, for every row."""
        return with_higher_biases(params, offsets)

    @ignore_float_warnings
    def clipped_gradient(
        self, params: Float32Array, X: Features, dlogits: Float32Array, bound: Bound, known: Known = NONE
    ) -> Float64Array:
        """Return the sum over rows `X` of back-propagated `dlogits` at `params`, each clipped to its `bound`.

        Of what is `known`, only whether rows must be computed alone is used (see `row_stable_forward`).
        """
        torch, names = load_torch(), list(self._module().shapes)
        total = torch.zeros(self.n_params, dtype=torch.float64, device=self.device)
        if _is_infinite(bound):
            return self._plain_sum(total, params, X, dlogits)
        clip_factors(np.zeros(0, np.float32), bound if isinstance(bound, float) else 1.0, width=0)  # refuses no bound
        for own, gradients in self._gradients(params, X, dlogits, known):
            clip_norms = bound[own] if isinstance(bound, np.ndarray) else bound
            factors, broken = clip_factors(gradients.squares(), clip_norms, width=0)
            kept = gradients
            if broken is not None:
                kept, factors = gradients.without(broken), np.where(broken, np.float32(0), factors)
            total += kept.weighted_sum(torch.from_numpy(factors).to(self.device), names)
        return total.cpu().numpy()

    @ignore_float_warnings
    def gradient_norms(
        self, params: Float32Array, X: Features, dlogits: Float32Array, known: Known = NONE
    ) -> Float32Array:
        """Return the norm of each row's gradient, shape (n_rows,); infinity where it is not finite.

        The arguments `params`, `X`, `dlogits` and `known` are those of `clipped_gradient`.
        """
        norms = np.empty(len(X), dtype=np.float32)
        for own, gradients in self._gradients(params, X, dlogits, known):
            norms[own] = np.sqrt(gradients.squares())
        return np.where(np.isnan(norms), np.float32(np.inf), norms)

    # --- torch -------------------------------------------------------------------------------------------------

    @cached_property
    def _constructor(self) -> Callable[[], Any]:
        self._module()
        return self.module  # type: ignore[return-value]

    def _module(self) -> SplitModule:
        if self._split is None:
            raise InvalidParameterError(NO_CONSTRUCTOR)
        return self._split

    def _gradients(
        self, params: Float32Array, X: Features, dlogits: Float32Array, known: Known
    ) -> Iterator[tuple[slice, RecordGradients]]:
        """Yield the gradients of the records of each micro-batch.

        Where the activations come from `row_stable_forward`, which puts an empty array before them, each row is a
        micro-batch: on which side of its edge a hidden unit is then depends on no other row.
        """
        is_alone = known.activations is not None and len(known.activations) > 2
        weight, bias = list(self._module().shapes)[-2:]
        for own, hidden, inputs, pulls, deltas in self._passes(params, X, dlogits, 1 if is_alone else self._rows):
            if self._is_batched:
                features, gradients = self._batched(hidden, inputs, deltas)
            else:
                features, gradients = looped_gradients(self._call, hidden, inputs, deltas)
            whole, outer = gradients.whole | {bias: pulls}, gradients.outer | {weight: (pulls, features)}
            yield own, RecordGradients(whole, outer)

    def _plain_sum(self, total: Any, params: Float32Array, X: Features, dlogits: Float32Array) -> Float64Array:
        """Return the sum of gradients that are not clipped, which needs no gradient of a single record."""
        torch = load_torch()
        for _, hidden, inputs, pulls, deltas in self._passes(params, X, dlogits, self._rows):
            features, sums = summed_gradients(self._call, hidden, inputs, deltas)
            total += torch.cat([*sums.values(), (pulls.T @ features).ravel(), pulls.sum(dim=0)]).double()
        return total.cpu().numpy()

    def _passes(self, params: Float32Array, X: Features, dlogits: Float32Array, size: int) -> Iterator[Any]:
        """Yield for each micro-batch: its rows, the body's parameters, inputs, dlogits and the pull on the body."""
        torch, dtype = load_torch(), _dtype(params, X)
        weights, _, hidden = self._parts(torch.from_numpy(np.array(params, dtype=dtype)).to(self.device))
        for own in slices(len(X), size):
            pulls = torch.from_numpy(np.array(dlogits[:, own].T, dtype=dtype)).to(self.device)
            yield own, hidden, self._inputs(X[own], dtype), pulls, pulls @ weights

    def _call(self, hidden: dict[str, Any], inputs: Any) -> Any:
        """Return the inputs of the last layer; what is not trained has the type of the parameters."""
        torch, body = load_torch(), self._module().body
        fixed = {}
        if inputs.dtype != torch.float32:
            all_of_it = [*body.named_parameters(), *body.named_buffers()]
            fixed = {name: value.to(inputs.dtype) for name, value in all_of_it if value.is_floating_point()}
        return torch.func.functional_call(body, fixed | hidden, (inputs,))

    def _batched(self, hidden: dict[str, Any], inputs: Any, deltas: Any) -> tuple[Any, RecordGradients]:
        split = self._module()
        return batched_gradients(self._call, split.body, split.dense, hidden, inputs, deltas)

    def _can_be_batched(self, params: Float32Array, X: Features) -> bool:
        """Say whether torch differentiates made-up rows all at once as it does one by one."""
        torch = load_torch()
        _, _, hidden = self._parts(torch.from_numpy(params).to(self.device))
        inputs = self._inputs(X, np.float32)
        deltas = torch.ones(len(X), self.n_last_inputs, device=self.device)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # torch warns where it would loop itself
                batched = self._batched(hidden, inputs, deltas)[1]
        except (*FAILURES, UserWarning):
            return False
        looped, scales = looped_gradients(self._call, hidden, inputs, deltas)[1], deltas[:1, 0]
        for row in range(len(X)):
            pairs = [
                RecordGradients(*({n: _row(v, row) for n, v in part.items()} for part in (each.whole, each.outer)))
                for each in (batched, looped)
            ]
            if not hidden:
                continue
            many, one = (each.weighted_sum(scales, list(hidden)) for each in pairs)
            if not torch.allclose(many, one, rtol=1e-3, atol=1e-4 * float(one.abs().max())):
                return False
        return True

    def _trial(self) -> tuple[Float32Array, Float32Array]:
        """Return made-up rows and parameters, the same ones on every machine."""
        rng = np.random.default_rng(1)
        size = math.prod(self.input_shape)
        X = np.repeat(rng.normal(size=(3, size)).astype(np.float32), self.n_features // size, axis=1)
        parts = []
        for shape in self._module().shapes.values():
            fan_in = math.prod(shape[1:]) if len(shape) > 1 else 100
            parts.append((len(shape) == 1) * 0.5 + rng.normal(size=math.prod(shape)) / math.sqrt(fan_in))
        return X, np.concatenate(parts).astype(np.float32)

    def _parts(self, flat: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Return the weights and biases of the last layer, and the parameters of the body by name."""
        views = self._views(flat)
        *_, weights, biases = views
        return views.pop(weights), views.pop(biases), views

    def _views(self, flat: Any) -> dict[str, Any]:
        """Return the parts of a flat vector by the names of the module's parameters, in order."""
        shapes = self._module().shapes
        parts = flat.split([math.prod(shape) for shape in shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}

    def _inputs(self, X: Features, dtype: Any) -> Any:
        """Return rows in the shape of the module's inputs, as a tensor of its own memory."""
        stride = self.n_features // math.prod(self.input_shape)
        rows = np.array(dense(X)[:, ::stride], dtype=dtype).reshape(-1, *self.input_shape)
        return load_torch().from_numpy(rows).to(self.device)


def _dtype(params: NDArray[np.floating], X: Features) -> Any:
    """Return the type to compute in; coded rows are float32 when they are written out."""
    return np.result_type(params, X.dtype if isinstance(X, np.ndarray) else np.float32)


def _is_infinite(bound: Bound) -> bool:
    return not isinstance(bound, np.ndarray) and bound == math.inf


def _row(values: Any, row: int) -> Any:
    """Return one row of an array, or of each of a pair of arrays."""
    return tuple(each[row : row + 1] for each in values) if isinstance(values, tuple) else values[row : row + 1]


def with_module(model: Any, constructor: Callable[[], Any] | None) -> Any:
    """Return a saved model with the constructor of its torch module; refuse one that is missing or not needed."""
    if "base" in {each.name for each in dataclasses.fields(model)}:
        return dataclasses.replace(model, base=with_module(model.base, constructor))
    if isinstance(model, TorchModel):
        return model.with_module(constructor)
    if constructor is not None:
        raise InvalidParameterError("Expected no module, because this model was trained without torch; leave it out.")
    return model


MODEL_KINDS["torch"] = TorchModel
