"""Trials of code that others may write: models, queries, noise distributions. No record is seen here.

Each is tried on made-up rows or with coins that are not secret, and refused if it breaks what the accounting assumes: a
record's contribution depends on that record alone and keeps its bound, noise has at least the stated spread and comes
from the coins. A trial finds mistakes; it proves nothing about rows that were not tried.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._typing import Float32Array
from fairveil.errors import InvalidParameterError, UnplannedReleaseError
from fairveil.models.base import Known, Model, ignore_float_warnings
from fairveil.models.torch_module import TorchModel
from fairveil.privacy.records import MemoryRecords, Query, Rows

SLACK = 1e-4
"""Sums of a few rows may differ by so many bounds, and a row may exceed its bound by so much: rounding in single
precision. The noise covers a hundredth of a bound."""

HUGE = (np.nan, np.inf, -1e30)
N_DRAWS = 512
LEAST_VARIANCE, LARGEST_MEAN, LARGEST_CORRELATION = 0.6, 0.25, 0.25
"""What the draws of a noise distribution may show: at least this share of the stated variance, and at most this mean
(in standard deviations) and this correlation of neighboring draws. Chance exceeds none of them for light tails."""

_tried: set[tuple[Any, ...]] = set()


def made_up_rows(n_features: int, seed: int = 0) -> tuple[Float32Array, Float32Array]:
    """Return ordinary rows, three of different lengths and two of zeros and ones only, and rows of extreme values."""
    lengths = np.array([0.01, 1.0, 30.0])[:, None]
    bits = (np.arange(n_features)[::-1] + np.arange(2)[:, None]) % 2  # the last one is a group of decoupled models
    ordinary = np.concatenate([lengths * np.random.default_rng(seed).uniform(-1, 1, size=(3, n_features)), bits])
    return ordinary.astype(np.float32), np.repeat(np.array(HUGE, np.float32)[:, None], n_features, axis=1)


# --- models -----------------------------------------------------------------------------------------------------------


@ignore_float_warnings
def check_model(model: Model) -> None:
    """Refuse a model whose gradients are not clipped record by record, before anything is debited.

    Of a model without gradients its base is tried, if it has one. A model that passed is not tried again at the same
    sizes.
    """
    clip = getattr(type(model), "clipped_gradient", None)
    if clip is None:
        if hasattr(model, "base"):
            check_model(model.base)
        return
    key = (type(model), clip, model.n_features, model.n_classes, model.n_params)
    if key in _tried and not isinstance(model, TorchModel):  # other modules may have the same sizes
        return
    rng = np.random.default_rng(0)
    ordinary, extreme = made_up_rows(model.n_features)
    X = np.concatenate([ordinary, extreme])
    pulls = rng.normal(size=(model.n_classes, len(X))).astype(np.float32)
    pulls[:, : len(ordinary)] *= np.float32(10) ** (np.arange(len(ordinary)) % 4 - 1)
    start = model.initial(rng)
    moved, bounds = (start + rng.normal(size=len(start))).astype(np.float32), np.linspace(0.1, 1.0, len(X))
    some = [np.array([row]) for row in range(len(X))]
    some += [np.arange(len(ordinary)), np.arange(len(X))[::-1], np.arange(len(X))[::2]]
    norms, problem = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64)).astype(np.float32), ""
    for params, bound in ((moved, 0.5), (start, bounds.astype(np.float32))):
        sums = []
        for rows in some:  # requested as a query does
            known = Known(model.forward(params, X[rows]), norms[rows])
            clip_norm = bound if isinstance(bound, float) else bound[rows]
            pulled = np.ascontiguousarray(pulls[:, rows])
            sums.append(model.clipped_gradient(params, X[rows], pulled, clip_norm, known))
        alone = np.array(sums[: len(X)], dtype=np.float64)
        for total, rows in zip(sums, some, strict=True):
            if not (total.shape == alone[0].shape and np.all(np.abs(total - alone[rows].sum(axis=0)) <= SLACK)):
                problem = "depend on other records of their block"
        if not (np.sqrt(np.sum(alone * alone, axis=1)) <= np.asarray(bound) * (1 + SLACK)).all():
            problem = "exceed their clip norm"
        if problem:
            raise InvalidParameterError(
                f"Expected a model that clips the gradient of each record by itself, got a {type(model).__name__} "
                f"whose gradients {problem} on made-up rows; correct its clipped_gradient (nothing was spent)."
            )
    _tried.add(key)


# --- queries ----------------------------------------------------------------------------------------------------------


@ignore_float_warnings
def check_query(
    query: Query, kinds: tuple[type, ...], own: tuple[type, ...], bound: Any, norm: int, n_features: int
) -> None:
    """Refuse a query, or a part of one, of a user's own class that mixes rows or exceeds its bound.

    A query whose answer is no sum of answers cannot be tried; its bound must be proved. Released parameters may put a
    made-up row on an edge by chance, so two sets of rows must fail.

    Parameters
    ----------
    query : Query
    kinds, own : tuples of types
        The types of the query and of all its parts, and those of them that are the user's own.
    bound : float or array
        The bound on a record, one for each group code if it is an array.
    norm : {1, 2}
    n_features : int
        Columns of a row.
    """
    key = (kinds, norm, n_features)
    if key in _tried or type(query).answer is not Query.answer:
        return
    problems = [_problem_of(query, bound, norm, n_features, seed) for seed in (0, 1)]
    if all(problems):
        raise UnplannedReleaseError(
            f"Expected a query that answers each row by itself and within its bound, got {own[0].__name__}, "
            f"{problems[0]} on made-up rows; correct it (nothing was released, but the debit of this run stands)."
        )
    _tried.add(key)


def _problem_of(query: Query, bound: Any, norm: int, n_features: int, seed: int) -> str:
    """Return what is wrong with the answers to made-up rows, nothing if they are sound."""
    ordinary, extreme = made_up_rows(n_features, seed)
    X = np.concatenate([ordinary, extreme])
    codes = np.arange(len(X), dtype=np.int16)
    records = MemoryRecords(X, codes % 2, codes % 3 // 2 - 1)  # labels 0 and 1, groups -1 and 0: they always exist
    largest = float(np.max(bound))

    def total(rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(query.total(Rows(records, rows), bound, norm), dtype=np.float64)

    alone = [total(np.array([row])) for row in range(len(X))]
    if math.isfinite(largest):
        sizes = [np.sum(np.abs(one)) if norm == 1 else np.sqrt(np.sum(one * one)) for one in alone]
        if not np.all(np.array(sizes) <= largest * (1 + SLACK)):
            return "which exceeds its bound"
    tolerance = SLACK * (largest if math.isfinite(largest) else 1.0)
    for rows in (np.arange(len(ordinary)), np.arange(len(X))[::-1], np.arange(len(X))[::2]):
        answer, expected = total(rows), np.sum([alone[row] for row in rows], axis=0)
        if not (answer.shape == expected.shape and np.all(np.abs(answer - expected) <= tolerance)):
            return "whose answer for a block is not the sum of its answers for single rows"
    return ""


# --- noise distributions ----------------------------------------------------------------------------------------------


def check_noise(name: str, add: Any, spread: float, is_whole: bool) -> None:
    """Refuse a noise distribution whose draws show less noise than it states, or noise that is not from the coins.

    The draws come from a fixed generator: no secret coin is used, and the answer is always the same. Tails are not
    tried, nor whether the event prices the noise.
    """
    for scale in (1.0, 5.0):
        draw = _Draws(add, scale, is_whole)
        noise = draw.noise_on(0)
        is_sound = noise.shape == (N_DRAWS,) and bool(np.isfinite(noise).all())
        if not is_sound:
            _refuse(name, "does not add one finite number to each entry")
        std = scale * math.sqrt(spread)
        if not np.var(noise) >= LEAST_VARIANCE * std * std:
            _refuse(name, "adds less noise than its spread states")
        if abs(np.mean(noise)) > LARGEST_MEAN * np.std(noise):
            _refuse(name, "adds noise that is not centered at 0")
        if abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) > LARGEST_CORRELATION or draw.repeats():
            _refuse(name, "repeats its noise")
        if not np.array_equal(noise, draw.noise_on(0)):
            _refuse(name, "draws noise that does not come from the coins it is passed")
        if not np.allclose(noise, draw.noise_on(1000), rtol=0, atol=0.01 * std):
            _refuse(name, "adds noise that depends on the sum")


@dataclass(frozen=True)
class _Draws:
    """What a noise distribution adds, from a fixed generator."""

    add: Any
    scale: float
    is_whole: bool

    def coins(self) -> Coins:
        return Coins(np.random.default_rng(0), is_secret=False)

    def noise_on(self, total: int) -> NDArray[np.float64]:
        kind = np.int64 if self.is_whole else np.float64
        return np.asarray(self.add(np.full(N_DRAWS, total, dtype=kind), self.scale, self.coins())) - total

    def repeats(self) -> bool:
        coins = self.coins()
        first, second = (self.add(np.zeros(16, dtype=np.int64), self.scale, coins) for _ in range(2))
        return np.array_equal(first, second)


def _refuse(name: str, what: str) -> None:
    raise InvalidParameterError(
        f"Expected a noise distribution that draws what it states, got {name!r}, which {what}; correct its add or its "
        "spread."
    )
