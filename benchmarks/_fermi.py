"""DP-FERMI as its published code runs it, on the files that its published figures were made of. Not private.

The settings are those of the public repository of Lowy, Gupta and Razaviyayn (see `docs/research/papers/fermi.md`):
logistic regression, 200 passes over shuffled batches of 1,024, learning rate .005, step size .01 of W, both bounds
(of the gradient, and of W) 5, noise from the theorem's formula with delta = 1/n^2. W is 1 x 1 there, so that the trace
keeps the group that comes first in the training rows, where the paper adds all groups up (`all_groups`).

Figures are exact counts on test rows, and noise comes from seeded generators.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from _harness import gaps_of
from fairveil.data.datasets import dataset_path
from fairveil.research.fermi_noise import PublishedNoise

SPLIT_SEED = 100
"""The seed of the published split: 75 % of the rows are sampled for training."""

TARGETS = {
    "adult": ("income", ">50K", ()),
    "credit_default": ("default_payment_next_month", 1, ("id",)),
    "parkinsons": ("total_UPDRS", None, ("subject",)),
}
"""Target, positive class and columns that are left out, by data set. Parkinsons is cut at the median."""

MANY_VALUES = 20
"""Columns of numbers with more values than this are scaled; those with fewer count as categories."""


@dataclass(frozen=True)
class PublishedFile:
    """The published training and test rows: features, labels, and whether the group is the first of training."""

    X: np.ndarray
    y: np.ndarray
    is_first: np.ndarray
    is_test: np.ndarray

    @classmethod
    def of(cls, name: str, times: int | None = None) -> "PublishedFile":
        """Return the file of a data set; `times` is how often its rows stand in it, by default as published."""
        frame, times = pd.read_parquet(dataset_path(name)), times or (2 if name == "adult" else 1)
        if name == "adult":  # the complete rows of its training part
            frame = frame[frame["split"] == "train"].drop(columns="split").dropna()
        if name == "credit_default":  # codes without a meaning count as "other"
            frame = frame.assign(
                education=frame["education"].where(frame["education"].between(1, 4), 4),
                marriage=frame["marriage"].where(frame["marriage"].between(1, 3), 3),
            )
        frame = pd.concat([frame] * times, ignore_index=True)
        target, positive, left_out = TARGETS[name]
        values = frame[target]
        y = (values > values.median() if positive is None else values == positive).to_numpy(dtype=float)
        rows = frame.drop(columns=["sex", target, *left_out])
        number = [one for one in rows if pd.api.types.is_numeric_dtype(rows[one])]
        scaled = [one for one in number if rows[one].nunique() > MANY_VALUES or one == "education_num"]
        train = frame.sample(frac=0.75, random_state=SPLIT_SEED).index
        is_test = ~frame.index.isin(train)
        numbers = rows[scaled].astype(float)
        numbers = (numbers - numbers.loc[train].mean()) / numbers.loc[train].std()
        others = [one for one in rows if one not in scaled]
        parts = [numbers, pd.get_dummies(rows[others], columns=others)] if others else [numbers]
        X = pd.concat(parts, axis=1).assign(intercept=1.0).to_numpy(dtype=np.float32)
        return cls(X, y.astype(np.float32), (frame["sex"] == frame["sex"].loc[train[0]]).to_numpy(), is_test)


@dataclass(frozen=True)
class PublishedSettings:
    """What the published code sets, and whether the trace keeps all groups."""

    rate: float = 0.005
    climb: float = 0.01
    passes: int = 200
    batch: int = 1024
    lipschitz: float = 5.0  # L
    radius: float = 5.0  # D
    all_groups: bool = False
    constraint: str = "demographic_parity"

    def noise_of(self, n_train: int, smallest_share: float, epsilon: float) -> PublishedNoise:
        """Return the noise for so many training rows, as the published code computes it."""
        n_steps = self.passes * -(-n_train // self.batch)
        facts = (n_train, n_steps, epsilon, 1 / n_train**2, smallest_share, self.batch)
        return PublishedNoise(*facts, self.lipschitz, self.radius)


def sigmoid(scores: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + e^-score)."""
    return 1 / (1 + np.exp(-np.clip(scores, -60, 60)))


class _Objective:
    """The penalty of one batch and its slopes: for each stratum of labels, groups and their shares."""

    def __init__(self, file: PublishedFile, settings: PublishedSettings) -> None:
        train = ~file.is_test
        labels = (None,) if settings.constraint == "demographic_parity" else (0.0, 1.0)
        self.strata = [np.ones(len(file.y), dtype=bool) if label is None else file.y == label for label in labels]
        is_first = file.is_first.astype(np.float32)
        groups = [is_first, 1 - is_first] if settings.all_groups else [is_first]
        shares = [[float(group[train & rows].mean()) for group in groups] for rows in self.strata]
        # each person's group over the root of its share: one column for each group that the trace keeps
        self.scaled = [
            np.stack([group / math.sqrt(share) for group, share in zip(groups, own, strict=True)], axis=1).astype(
                np.float32
            )
            for own in shares
        ]

    def slopes(self, rows: np.ndarray, chances: np.ndarray, W: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the slope of the penalty by each chance of the batch (rows, runs), and by each W (groups, runs)."""
        by_chance, by_w = np.zeros_like(chances), []
        for stratum, scaled, w in zip(self.strata, self.scaled, W, strict=True):
            own = stratum[rows].astype(np.float32) / np.float32(max(1, np.count_nonzero(stratum[rows])))
            columns = scaled[rows] * own[:, None]
            by_chance += columns @ (2 * w) - own[:, None] * np.square(w).sum(axis=0)
            by_w.append(2 * (columns.T @ chances - w * (own @ chances)))
        return by_chance, by_w


def published_runs(
    file: PublishedFile, points: Sequence[tuple[float, float]], settings: PublishedSettings, seed: int
) -> list[dict[str, float]]:
    """Return test accuracy and gaps at each point (weight of the penalty, epsilon).

    All points share the order of batches; their starts and noise are their own.
    """
    coins = np.random.default_rng(seed)
    train, objective = np.flatnonzero(~file.is_test), _Objective(file, settings)
    smallest = min(np.mean(file.is_first[train]), 1 - np.mean(file.is_first[train])) - 1 / len(train)
    noise = [settings.noise_of(len(train), float(smallest), epsilon) for _, epsilon in points]
    std_w, std_theta = (np.array(one, np.float32) for one in zip(*((n.std_w, n.std_theta) for n in noise), strict=True))
    weights, width = np.array([weight for weight, _ in points], np.float32), file.X.shape[1]

    def normal(height: int) -> np.ndarray:
        return coins.standard_normal((height, len(points)), dtype=np.float32)

    theta = (coins.random((width, len(points)), dtype=np.float32) * 2 - 1) / np.float32(math.sqrt(width - 1))
    W = [normal(scaled.shape[1]) for scaled in objective.scaled]
    for _ in range(settings.passes):
        order = coins.permutation(train)
        for start in range(0, len(order), settings.batch):
            rows = order[start : start + settings.batch]
            X = file.X[rows]
            chances = sigmoid(X @ theta)
            by_chance, by_w = objective.slopes(rows, chances, W)
            pulls = (chances - file.y[rows, None]) / len(rows) + weights * by_chance * chances * (1 - chances)
            gradient = X.T @ pulls.astype(np.float32)
            gradient /= np.maximum(1, np.sqrt(np.square(gradient).sum(axis=0)) / settings.lipschitz)
            theta = theta - np.float32(settings.rate) * (gradient + std_theta * normal(width))
            W = [_projected(w + settings.climb * (weights * slope + std_w * normal(len(w))), settings.radius)
                 for w, slope in zip(W, by_w, strict=True)]  # fmt: skip
    decided, y = file.X[file.is_test] @ theta > 0, file.y[file.is_test] == 1
    return [{"accuracy": float(np.mean(own == y)), **gaps_of(own, y, file.is_first[file.is_test])} for own in decided.T]


def _projected(w: np.ndarray, radius: float) -> np.ndarray:
    """Return each column of W, no longer than the radius."""
    lengths = np.sqrt(np.square(w).sum(axis=0))
    return (w * np.minimum(1, radius / np.maximum(lengths, 1e-9))).astype(np.float32)
