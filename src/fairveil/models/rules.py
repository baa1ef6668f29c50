"""Decision rules: from the logits of a record, and its group if the rule reads it, to a decision.

Every rule publishes the distribution of its decision. Randomized rules take two uniform numbers in [0, 1) per record
from the caller: keyed ones when people are decided (`fairveil._random`), secret ones where decisions are only counted.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fairveil.models.base import ignore_float_warnings
from fairveil.models.losses import softmax
from fairveil.models.row_stable import row_stable_product

FloatArray = NDArray[Any]
Codes = NDArray[np.integer]


class DecisionRule(Protocol):
    """A public rule; `logits` are class-major (J, B), groups are codes of a population, uniforms have shape (2, B)."""

    @property
    def reads_group(self) -> bool:
        """Whether decisions depend on the group."""

    @property
    def is_random(self) -> bool:
        """Whether two people alike may be decided differently, other than by a tie."""

    @property
    def needs_uniforms(self) -> bool:
        """Whether decisions depend on the uniform numbers."""

    def fits(self, n_groups: int, n_classes: int, n_outputs: int) -> bool:
        """Whether the rule can decide everyone among so many group codes, classes and outputs of a model."""

    def decide(self, logits: FloatArray, groups: Codes, uniforms: FloatArray) -> Codes:
        """Return a class code for each record."""

    def distribution(self, logits: FloatArray, groups: Codes) -> FloatArray:
        """Return the probability of each decision, shape (B, K)."""


def label_probabilities(logits: FloatArray, n_classes: int) -> FloatArray:
    """Return P(label), shape (K, B); the outputs of a joint model are added up over its groups.

    Examples
    --------
    >>> label_probabilities(np.log([[0.1], [0.2], [0.3], [0.4]]), 2).round(3).ravel().tolist()
    [0.4, 0.6]
    """
    outputs = softmax(logits)
    return outputs.reshape(len(outputs) // n_classes, n_classes, outputs.shape[1]).sum(axis=0)


@ignore_float_warnings
def label_margins(logits: FloatArray) -> FloatArray:
    """Return log P(class 1) - log P(class 0) of two classes, shape (B,); joint outputs are added up over groups.

    Examples
    --------
    >>> label_margins(np.log([[0.1], [0.2], [0.3], [0.4]])).round(3).tolist()
    [0.405]
    """
    if len(logits) == 2:
        return logits[1] - logits[0]
    return np.logaddexp.reduce(logits[1::2], axis=0) - np.logaddexp.reduce(logits[::2], axis=0)


@dataclass(frozen=True)
class Argmax:
    """The class with the highest logit."""

    reads_group = False
    is_random = False
    needs_uniforms = False

    def fits(self, n_groups: int, n_classes: int, n_outputs: int) -> bool:
        """Return whether the rule can decide everyone: one output for each class."""
        return n_outputs == n_classes

    def decide(self, logits: FloatArray, groups: Codes, uniforms: FloatArray) -> Codes:
        """Return a class code for each record."""
        return logits.argmax(axis=0)

    def distribution(self, logits: FloatArray, groups: Codes) -> FloatArray:
        """Return the probability of each decision, shape (B, K)."""
        return np.eye(len(logits))[logits.argmax(axis=0)]


@dataclass(frozen=True)
class RandomizedByKey:
    """A class drawn at random with the model's probabilities: the rule of a smoothed model."""

    reads_group = False
    is_random = True
    needs_uniforms = True

    def fits(self, n_groups: int, n_classes: int, n_outputs: int) -> bool:
        """Return whether the rule can decide everyone: one output for each class."""
        return n_outputs == n_classes

    def decide(self, logits: FloatArray, groups: Codes, uniforms: FloatArray) -> Codes:
        """Return a class code for each record."""
        ends = np.cumsum(softmax(logits)[:-1], axis=0)
        return (uniforms[0] >= ends).sum(axis=0)

    def distribution(self, logits: FloatArray, groups: Codes) -> FloatArray:
        """Return the probability of each decision, shape (B, K)."""
        return softmax(logits).T


@dataclass(frozen=True, eq=False)
class RandomizedThresholds:
    """Two classes, a threshold on logit_1 - logit_0 for each group, drawn at random if a group has several.

    A record is decided for class 1 if its margin is above the threshold. One threshold a group is the usual rule;
    thresholds -inf, 0 and inf with some weights flip the model's own decisions at random.

    Attributes
    ----------
    thresholds, weights : arrays of shape (groups, M)
        The thresholds of each group and how often each is drawn; weights of a group add up to 1.
    jitter : float
        The width of a uniform number added to every margin, so that equal margins do not tie.
    """

    thresholds: FloatArray
    weights: FloatArray
    jitter: float = 0.0

    reads_group = True

    @property
    def is_random(self) -> bool:
        """Whether some group has more than one threshold."""
        return bool((np.sort(self.weights, axis=1)[:, :-1] > 0).any())

    @property
    def needs_uniforms(self) -> bool:
        """Whether decisions depend on the uniform numbers."""
        return self.is_random or self.jitter > 0

    def decide(self, logits: FloatArray, groups: Codes, uniforms: FloatArray) -> Codes:
        """Return a class code for each record."""
        ends = np.cumsum(self.weights, axis=1)[:, :-1]
        # rounding must not lead beyond the last threshold that has a weight
        last = self.weights.shape[1] - 1 - (self.weights[:, ::-1] > 0).argmax(axis=1)
        chosen = np.minimum((uniforms[0][:, None] >= ends[groups]).sum(axis=1), last[groups])
        margins = logits[1] - logits[0]
        if self.jitter:
            margins = margins + self.jitter * (uniforms[1] - 0.5)
        return (margins > self.thresholds[groups, chosen]).astype(np.int64)

    def fits(self, n_groups: int, n_classes: int, n_outputs: int) -> bool:
        """Return whether the rule can decide everyone: two classes, thresholds and their shares for each group."""
        shape = np.shape(self.thresholds)
        return (
            (n_classes, n_outputs) == (2, 2)
            and len(shape) == 2 == np.ndim(self.weights)
            and shape == np.shape(self.weights)
            and shape[0] == n_groups
            and shape[1] >= 1
            and not np.isnan(self.thresholds).any()
            and bool(np.isfinite(self.weights).all() and (self.weights.sum(axis=1) > 0).all())
            and _is_width(self.jitter)
        )

    def distribution(self, logits: FloatArray, groups: Codes) -> FloatArray:
        """Return the probability of each decision, shape (B, K)."""
        above = (logits[1] - logits[0]).astype(np.float64)[:, None] - self.thresholds[groups]
        passes = np.clip(above / self.jitter + 0.5, 0.0, 1.0) if self.jitter else above > 0
        chosen = (passes * self.weights[groups]).sum(axis=1)
        return np.stack([1 - chosen, chosen], axis=1)


@dataclass(frozen=True, eq=False)
class TiltedArgmax:
    """The class k with the highest sum_j weights[g, k, j] P_j(x), where P are the model's probabilities.

    The outputs j are labels, or (group, label) pairs of a joint model; a rule that reads no group has one table for
    all.

    Attributes
    ----------
    weights : array of shape (groups or 1, K, J)
    jitter : float
        The width of a uniform number added to every class, so that equal sums do not tie.
    """

    weights: FloatArray
    jitter: float = 0.0

    is_random = False

    @property
    def reads_group(self) -> bool:
        """Whether decisions depend on the group."""
        return len(self.weights) > 1

    @property
    def needs_uniforms(self) -> bool:
        """Whether decisions depend on the uniform numbers."""
        return self.jitter > 0

    def fits(self, n_groups: int, n_classes: int, n_outputs: int) -> bool:
        """Return whether the rule can decide everyone: a table for all, or one for each group code."""
        tables = np.shape(self.weights)[:1] in {(1,), (n_groups,)}
        shape = tables and np.shape(self.weights)[1:] == (n_classes, n_outputs)
        return bool(shape and np.isfinite(self.weights).all()) and _is_width(self.jitter)

    def scores(self, logits: FloatArray, groups: Codes) -> FloatArray:
        """Return the tilted sums, shape (K, B)."""
        outputs = softmax(logits)
        if len(self.weights) == 1:
            return row_stable_product(self.weights[0], outputs)
        scores = np.zeros((self.weights.shape[1], outputs.shape[1]))
        codes = groups % len(self.weights)  # -1 stands for the last code
        for group, table in enumerate(self.weights):
            np.copyto(scores, row_stable_product(table, outputs), where=codes == group)
        return scores

    def decide(self, logits: FloatArray, groups: Codes, uniforms: FloatArray) -> Codes:
        """Return a class code for each record."""
        scores = self.scores(logits, groups)
        if self.jitter:
            # u_1 + k u_0 modulo 1 is uniform, and independent for any two classes: no class wins more ties
            own = (uniforms[1] + np.arange(len(scores))[:, None] * uniforms[0]) % 1.0
            scores = scores + self.jitter * (own - 0.5)
        return scores.argmax(axis=0)

    def distribution(self, logits: FloatArray, groups: Codes) -> FloatArray:
        """Return the probability of each decision with ties broken for the first, shape (B, K)."""
        scores = self.scores(logits, groups)
        return np.eye(len(scores))[scores.argmax(axis=0)]


def _is_width(jitter: Any) -> bool:
    return isinstance(jitter, (int, float)) and not isinstance(jitter, bool) and 0 <= jitter < float("inf")


RULES: dict[str, type] = {
    "drawn": RandomizedByKey,
    "most_likely": Argmax,
    "threshold_mixture": RandomizedThresholds,
    "tilted": TiltedArgmax,
}
"""By the name that a saved model gives them."""


def best_pair(logits: FloatArray, edges: NDArray[np.floating]) -> tuple[Codes, int]:
    """Return the code of each record's two largest logits with the bin of their margin, and how many codes there are.

    Pairs of classes are numbered (0, 1), (0, 2), (1, 2), (0, 3), ...; a margin is the logit of the class with the
    higher number less the other's, so that the first class is decided up to 0. A bin holds its upper edge, the last one
    NaN.

    Examples
    --------
    >>> codes, n_codes = best_pair(np.array([[3.0, 0.0], [1.0, 0.5], [2.0, 0.5]]), np.array([0.0]))
    >>> codes.tolist(), n_codes
    ([2, 4], 6)
    """
    n_classes, rows = len(logits), np.arange(logits.shape[1])
    best = logits.argmax(axis=0)
    others = np.where(np.arange(n_classes)[:, None] == best, -np.inf, logits)
    second = others.argmax(axis=0)
    second = np.where(second == best, (best + 1) % n_classes, second)  # where no other logit is finite
    low, high = np.minimum(best, second), np.maximum(best, second)
    with np.errstate(invalid="ignore", over="ignore"):
        margins = logits[high, rows] - logits[low, rows]
    n_bins = len(edges) + 1
    pairs = high * (high - 1) // 2 + low
    return pairs * n_bins + np.searchsorted(edges, margins, side="left"), n_classes * (n_classes - 1) // 2 * n_bins
