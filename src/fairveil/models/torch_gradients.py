"""Gradients of single records through a torch module: all at once, one by one, or added up.

The gradient by the weights of a dense layer that reads one vector of a record is an outer product. Such gradients are
never written out: their norms follow from their two factors, without rounding that could cancel. All others, as those
of convolutions, which add up over places, are written out before they are measured and clipped.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array
from fairveil.models.products import SUM_ROWS
from fairveil.models.torch_trials import load_torch

Call = Callable[[dict[str, Any], Any], Any]
"""Takes parameters by name and inputs, returns the answers of a module."""


def slices(n_rows: int, size: int) -> Iterator[slice]:
    """Return consecutive slices of at most `size` rows."""
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


@dataclass(frozen=True, eq=False)
class RecordGradients:
    """The gradients of the records of a micro-batch, by the names of parameters.

    Attributes
    ----------
    whole : dict of arrays of shape (n_rows, size)
        Gradients that are written out.
    outer : dict of pairs of arrays, shapes (n_rows, n_outputs) and (n_rows, n_inputs)
        The factors of gradients that are outer products.
    """

    whole: dict[str, Any]
    outer: dict[str, tuple[Any, Any]]

    def squares(self) -> Float32Array:
        """Return the squared norm of each record over all parameters, summed in float64 and rounded once."""
        total: Any = 0.0
        for gradients in self.whole.values():
            total = total + _squared_norms(gradients)
        for deltas, inputs in self.outer.values():
            total = total + _squared_norms(deltas) * _squared_norms(inputs)
        return total.float().cpu().numpy()

    def without(self, broken: NDArray[np.bool_]) -> "RecordGradients":
        """Return the gradients with those of broken records set to zero, because zero times infinity is NaN."""
        torch = load_torch()
        flags = torch.from_numpy(~broken)[:, None]

        def kept(values: Any) -> Any:
            return torch.where(flags.to(values.device), values, torch.zeros_like(values))

        outer = {name: (kept(deltas), kept(inputs)) for name, (deltas, inputs) in self.outer.items()}
        return RecordGradients({name: kept(gradients) for name, gradients in self.whole.items()}, outer)

    def weighted_sum(self, scales: Any, names: Sequence[str]) -> Any:
        """Return the flat sum over records of their gradients, each times its scale, in this order of parameters.

        At most 32 records are added up in float32, these sums in float64.
        """
        torch, parts = load_torch(), []
        for name in names:
            sums = []
            for few in slices(len(scales), SUM_ROWS):
                if name in self.outer:
                    deltas, inputs = self.outer[name]
                    sums.append(((scales[few, None] * deltas[few]).T @ inputs[few]).ravel())
                else:
                    sums.append(scales[few] @ self.whole[name][few])
            parts.append(sum(each.double() for each in sums))
        return torch.cat(parts)


def _squared_norms(values: Any) -> Any:
    """Return the squared norm of each row in float64: no square overflows or underflows."""
    torch = load_torch()
    return torch.linalg.vector_norm(values, dim=1, dtype=torch.float64) ** 2


def batched_gradients(
    call: Call, body: Any, dense: Sequence[str], hidden: dict[str, Any], inputs: Any, deltas: Any
) -> tuple[Any, RecordGradients]:
    """Return the answers for all records, and their gradients, each from a pass of its own that torch batches.

    `dense` names the layers whose gradients are outer products: what is added to their outputs, 0, is differentiated
    in place of their weights.
    """
    torch = load_torch()
    layers = {name: body.get_submodule(name) for name in dense}
    constant = {key: hidden[key] for name in dense for key in (f"{name}.weight", f"{name}.bias") if key in hidden}
    moving = {key: value for key, value in hidden.items() if key not in constant}
    added = {name: inputs.new_zeros(1, len(hidden[f"{name}.weight"])) for name in dense}
    seen: dict[str, Any] = {}

    def answer(own: dict[str, Any], taps: dict[str, Any], row: Any) -> tuple[Any, dict[str, Any]]:
        def tapped(name: str) -> Callable[[Any, Any, Any], Any]:
            def add(layer: Any, arguments: Any, output: Any) -> Any:
                seen[name] = arguments[0]
                return output + taps[name]

            return add

        hooks = [layer.register_forward_hook(tapped(name)) for name, layer in layers.items()]
        try:
            return call(constant | own, row[None]), dict(seen)
        finally:
            seen.clear()
            for hook in hooks:
                hook.remove()

    def one(row: Any, delta: Any) -> tuple[Any, ...]:
        answers, pull_back, read = torch.func.vjp(lambda own, taps: answer(own, taps, row), moving, added, has_aux=True)
        return (answers[0], *pull_back(delta[None]), read)

    answers, of_moving, of_outputs, read = torch.func.vmap(one)(inputs, deltas)
    whole = {key: gradients.detach().flatten(1) for key, gradients in of_moving.items()}
    outer = {f"{name}.weight": (of_outputs[name].detach()[:, 0], read[name].detach()[:, 0]) for name in dense}
    biases = {f"{name}.bias": of_outputs[name].detach()[:, 0] for name in dense if f"{name}.bias" in hidden}
    return answers.detach(), RecordGradients(whole | biases, outer)


def looped_gradients(call: Call, hidden: dict[str, Any], inputs: Any, deltas: Any) -> tuple[Any, RecordGradients]:
    """Return what `batched_gradients` returns, all written out, record by record."""
    torch = load_torch()
    rows = slices(len(inputs), 1)
    each = [summed_gradients(call, hidden, inputs[row], deltas[row]) for row in rows]
    whole = {name: torch.stack([gradients[name] for _, gradients in each]) for name in hidden}
    return torch.cat([answer for answer, _ in each]), RecordGradients(whole, {})


def summed_gradients(call: Call, hidden: dict[str, Any], inputs: Any, deltas: Any) -> tuple[Any, dict[str, Any]]:
    """Return the answers for all records and the plain sum of their gradients, flat, for each parameter."""
    torch = load_torch()
    leaves = {name: value.detach().requires_grad_() for name, value in hidden.items()}
    with torch.enable_grad():
        answer = call(leaves, inputs)
    if not leaves:
        return answer.detach(), {}
    found = torch.autograd.grad(answer, list(leaves.values()), deltas, allow_unused=True, materialize_grads=True)
    return answer.detach(), {name: gradient.flatten() for name, gradient in zip(leaves, found, strict=True)}
