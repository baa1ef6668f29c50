"""Milliseconds per step of other libraries on the caller's data: plain torch, and Opacus in three ways.

Every function takes the same rows (float32) and labels, trains a softmax model (`hidden=()` is linear) for
`n_steps` steps on Poisson batches of expected size `batch`, and returns the median time of a step after a
warm-up. A step includes the gather of its rows but not the draw of its batch; only `opacus_loader_ms` times
the peer's own loader with all it does, because that is how the peer is meant to be used. One thread: the
caller sets OPENBLAS_NUM_THREADS=1 before NumPy is imported, torch is told here.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise, repeat
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

__all__ = ["opacus_ghost_ms", "opacus_loader_ms", "opacus_tensor_ms", "torch_sgd_ms"]

LEARNING_RATE = 0.1
NOISE_MULTIPLIER = 1.0
CLIP_NORM = 1.0
N_WARMUP = 5

Rows = NDArray[np.float32]
Labels = NDArray[np.integer]


def torch_sgd_ms(X: Rows, y: Labels, batch: int, n_steps: int, hidden: tuple[int, ...] = ()) -> float:
    """Plain SGD by tensor indexing, no privacy."""
    data = _tensors(X, y)
    module = _module(X.shape[1], int(y.max()) + 1, hidden)
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    step = _training_step(module, optimizer, nn.CrossEntropyLoss())
    return _median_ms(lambda index: step(data[0][index], data[1][index]), _poisson_batches(len(X), batch, n_steps))


def opacus_tensor_ms(X: Rows, y: Labels, batch: int, n_steps: int, hidden: tuple[int, ...] = ()) -> float:
    """Opacus with per-sample gradients from hooks, rows by tensor indexing."""
    data = _tensors(X, y)
    module, optimizer, _ = _make_private(data, batch, hidden, poisson_sampling=False)
    step = _training_step(module, optimizer, nn.CrossEntropyLoss())
    return _median_ms(lambda index: step(data[0][index], data[1][index]), _poisson_batches(len(X), batch, n_steps))


def opacus_ghost_ms(X: Rows, y: Labels, batch: int, n_steps: int, hidden: tuple[int, ...] = ()) -> float:
    """Opacus with ghost clipping (norms first, then a second backward pass), rows by tensor indexing."""
    data = _tensors(X, y)
    module, optimizer, criterion, _ = _make_private(
        data, batch, hidden, poisson_sampling=False, grad_sample_mode="ghost"
    )
    step = _training_step(module, optimizer, criterion)
    return _median_ms(lambda index: step(data[0][index], data[1][index]), _poisson_batches(len(X), batch, n_steps))


def opacus_loader_ms(X: Rows, y: Labels, batch: int, n_steps: int, hidden: tuple[int, ...] = ()) -> float:
    """Opacus with hooks and its own Poisson DataLoader: the way its documentation teaches."""
    module, optimizer, loader = _make_private(_tensors(X, y), batch, hidden, poisson_sampling=True)
    step = _training_step(module, optimizer, nn.CrossEntropyLoss())
    batches = chain.from_iterable(repeat(loader))
    return _median_ms(lambda _: step(*next(batches)), range(N_WARMUP + n_steps))


def _tensors(X: Rows, y: Labels) -> tuple[torch.Tensor, torch.Tensor]:
    torch.set_num_threads(1)
    return torch.from_numpy(np.ascontiguousarray(X)), torch.from_numpy(y.astype(np.int64))


def _module(n_features: int, n_classes: int, hidden: tuple[int, ...]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        widths = (n_features, *hidden)
        inner = [layer for n_in, n_out in pairwise(widths) for layer in (nn.Linear(n_in, n_out), nn.ReLU())]
        return nn.Sequential(*inner, nn.Linear(widths[-1], n_classes))


def _make_private(
    data: tuple[torch.Tensor, torch.Tensor], batch: int, hidden: tuple[int, ...], **options: Any
) -> tuple[Any, ...]:
    X, y = data
    module = _module(X.shape[1], int(y.max()) + 1, hidden)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PrivacyEngine().make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=LEARNING_RATE),
            data_loader=DataLoader(TensorDataset(X, y), batch_size=batch),
            noise_multiplier=NOISE_MULTIPLIER,
            max_grad_norm=CLIP_NORM,
            **options,
        )


def _training_step(module: nn.Module, optimizer: Any, criterion: Any) -> Callable[[torch.Tensor, torch.Tensor], None]:
    def step(rows: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        criterion(module(rows), labels).backward()
        optimizer.step()

    return step


def _poisson_batches(n: int, batch: int, n_steps: int) -> Iterator[torch.Tensor]:
    rng = np.random.default_rng(0)
    for _ in range(N_WARMUP + n_steps):
        yield torch.from_numpy(np.flatnonzero(rng.random(n) < batch / n))


def _median_ms(step: Callable[[Any], None], batches: Iterable[Any]) -> float:
    times = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for index in batches:
            start = time.perf_counter()
            step(index)
            times.append(time.perf_counter() - start)
    return 1e3 * median(times[N_WARMUP:])
