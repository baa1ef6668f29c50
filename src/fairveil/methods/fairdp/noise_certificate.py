"""FairDP's certificates (Tran et al. 2023), each with what it is a statement about. None is about the released model.

Theorem 3.2 and Proposition 3.3 average decisions over the noise of the last training step. A model is released once,
with one draw of that noise: averaged over draws the groups may be treated alike while every single model that can be
released treats them as differently as can be (docs/proofs/noise_certificates.md has the example). What holds for the
released model is measured on people held out, so these numbers come with that certificate or not at all.

The last step of a group-wise training, and smooth decisions around what it released.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fairveil._typing import Float32Array
from fairveil._validation import check_number
from fairveil.certificates import Certificate
from fairveil.errors import InvalidParameterError
from fairveil.fairness.evaluation import Evaluation
from fairveil.fairness.rates import HistogramConstraints
from fairveil.methods.fairdp.early_stopping import REACH, StoppingCheck, largest_gap
from fairveil.models.last_layer import LayeredModel, last_layer_size
from fairveil.models.linear import LinearSoftmax
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import NoisyMarginRate, SeveralDecisions, Sum, Values, all_cells
from fairveil.privacy.veil import ROUNDING, Veil
from fairveil.training.recipe import Fit

OVER_NOISE = "over the training noise, not for this model"
FAILURE = 1e-6
"""How often a batch may exceed the public bound on its size."""

HALF = 0.5
"""The threshold at which `predict` decides."""

MOST_PEOPLE = 1e12
"""Of more people no exact quantile is computed: Bernstein's inequality stands in for it."""


def margin_threshold(threshold: float) -> float:
    """Return what logit_1 - logit_0 exceeds where the probability of class 1 exceeds the threshold.

    Examples
    --------
    >>> margin_threshold(0.5), round(margin_threshold(0.9), 3)
    (0.0, 2.197)
    """
    if not 0 < threshold < 1:
        raise InvalidParameterError(f"Expected 0 < threshold < 1, got {threshold!r}.")
    return math.log(threshold / (1 - threshold))


def worst_case_gap(
    norm_bound: float,
    learning_rate: float,
    reach: float,
    n_batch: float,
    noise_std: float,
    threshold: float = 0.5,
    n_weights: int = 0,
) -> float:
    """Return what the mean decision over the noise of a last step may differ by between groups (Theorem 3.2).

    Parameters
    ----------
    norm_bound : float
        The largest norm of the last layer before the step.
    learning_rate : float
        Of the step.
    reach : float
        How far one record can move the average gradient.
    n_batch : float
        The largest number of records in the batch.
    noise_std : float
        The deviation of the noise on each coordinate of the average gradient.
    threshold : float
        The probability above which class 1 is decided. Since the last layer reads a constant 1, another threshold than
        1/2 is another bias.
    n_weights : int
        The size of the last layer, if it is scaled down to `norm_bound` again after the step, and 0 if it is not. That
        changes no decision at a threshold of 1/2. At another one it moves the bias as far as the layer was scaled
        down, which the noise exceeds once in a million steps.

    Examples
    --------
    >>> step = (0.1, 1.0, 0.5, 4, 1.01 * 100 / 2**0.5)
    >>> round(worst_case_gap(*step), 3), round(worst_case_gap(*step, threshold=0.9), 3)
    (0.023, 0.032)
    """
    shift = abs(margin_threshold(threshold)) / math.sqrt(2)
    if noise_std == 0:
        return 1.0
    spread = learning_rate * noise_std
    farthest = norm_bound + learning_rate * reach * n_batch
    near = math.erf(farthest / (math.sqrt(2) * spread))
    if not shift:
        return near
    failure = 0.0
    if n_weights and math.isfinite(norm_bound):
        farthest_norm = farthest + spread * float(stats.chi.isf(FAILURE, n_weights))
        shift, failure = shift * max(1.0, farthest_norm / norm_bound), FAILURE
    # the threshold works against one class only: the other's largest rate is that of 1/2
    return min(1.0, (near + math.erf((farthest + shift) / (math.sqrt(2) * spread))) / 2 + failure)


def monte_carlo_error(n_models: int) -> float:
    """Return how far the share of `n_models` models that decide for a class may be off, as a standard deviation.

    The paper divides by the number of rows as well, as if each row met a model of its own; they all meet the same.
    With one model it is 1/2: nothing is known.

    Examples
    --------
    >>> monte_carlo_error(1), monte_carlo_error(100)
    (0.5, 0.05)
    """
    return 1 / (2 * math.sqrt(check_number("n_models", n_models, whole=True)))


def finite_models_gap(
    norm_bound: float,
    learning_rate: float,
    reach: float,
    n_batch: float,
    noise_std: float,
    n_models: int,
    threshold: float = 0.5,
    n_weights: int = 0,
) -> float:
    """Return Equation 32 put right: the worst case of one model's share of the batch, and what so few leave open.

    `n_batch` is the largest number of records that are assigned to one model at random. Two shares of models may each
    be off by one `monte_carlo_error`, whatever the number of rows; at most 1.
    """
    worst = worst_case_gap(norm_bound, learning_rate, reach, n_batch, noise_std, threshold, n_weights)
    return min(1.0, worst + 2 * monte_carlo_error(n_models))


def batch_bound(n_people: float, sampling_rate: float, failure: float = FAILURE) -> int:
    """Return what a Poisson batch of at most `n_people` exceeds with at most this probability.

    The size of a batch is private: a bound must follow from public numbers.

    Examples
    --------
    >>> batch_bound(10_000, 0.01, 1e-6)
    151
    """
    check_number("sampling_rate", sampling_rate, at_most=1)
    check_number("failure", failure, at_most=1)
    if n_people > MOST_PEOPLE:
        mean, margin = n_people * sampling_rate, -math.log(failure)
        return math.ceil(mean + math.sqrt(2 * mean * margin) + margin)
    return int(stats.binom.isf(failure, math.ceil(n_people), sampling_rate))


def smooth_gap(
    bounds: HistogramConstraints, evaluation: Evaluation, sums: NDArray[np.float64], noise_std: float
) -> tuple[float | None, float | None]:
    """Return the largest gap of smooth decisions among people held out, and its standard error (Proposition 3.3).

    `sums` are noisy sums of P(class 1) - 1/2 by (group code, label), taken at the released weights.
    """
    sizes = evaluation.counts.sum(axis=2)
    # a size adds up the noisy counts of two decisions
    return largest_gap(bounds, sizes, sums, 2 * evaluation.noise_variance, noise_std**2)


@dataclass(frozen=True)
class Statement:
    """One number and what it is a statement about.

    Attributes
    ----------
    name : str
    gap : float or None
        The bound, or the estimate; None where too few people were held out to tell.
    error : float or None
        The standard error of an estimate; None for a bound.
    about : str
        What the number is about.
    assumes : str
        Under which assumptions.
    event : str
        Among whom decisions are compared (the event e of Definition 2.2), as the name of the constraint.
    threshold : float
        The probability above which class 1 is decided.
    """

    name: str
    gap: float | None
    error: float | None
    about: str
    assumes: str
    event: str = "any"
    threshold: float = HALF

    def at(self, event: str, threshold: float) -> "Statement":
        """Return the statement for this event (empty is any) and threshold, named where there is more than one."""
        own = [event] if event else []
        if threshold != HALF:
            own.append(f"threshold {threshold:g}")
        return replace(self, name=", ".join([self.name, *own]), event=event or self.event, threshold=threshold)


@dataclass(frozen=True)
class NoiseCertificate:
    """Statements over the training noise, beside the certificate of the released model.

    Attributes
    ----------
    statements : tuple of Statement
    released : Certificate
        What held-out people say of the model that was released; this is the one to go by.
    """

    statements: tuple[Statement, ...]
    released: Certificate

    @property
    def sentence(self) -> str:
        """What holds for the released model, then each statement with what it is about."""
        lines = [f"The released model: {self.released.sentence}"]
        for one in self.statements:
            value = "unknown" if one.gap is None else f"{one.gap:.3f}"
            error = "" if one.error is None else f" (standard error {one.error:.3f})"
            lines.append(f"{one.name} ({one.about}): {value}{error}. {one.assumes}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "statements": [asdict(one) for one in self.statements],
            "released": self.released.to_dict(),
            "sentence": self.sentence,
        }


def worst_case_statement(gap: float, n_batch: int) -> Statement:
    """Return Theorem 3.2 with what it is about."""
    assumes = (
        "For any people: selection, true positive and false positive rates. Assumes no more people than declared, and "
        f"at most {n_batch:,} in the last batch, which one in a million batches exceeds."
    )
    return Statement("Worst case (Theorem 3.2)", gap, None, OVER_NOISE, assumes)


def smooth_statement(gap: float | None, error: float | None) -> Statement:
    """Return Proposition 3.3, in its private version, with what it is about."""
    assumes = (
        "An estimate from noisy sums over the people held out, for decisions drawn with the noise of the last step "
        "around the released weights."
    )
    return Statement("Empirical (Proposition 3.3)", gap, error, OVER_NOISE, assumes)


def several_estimate(gap: float | None, error: float | None, n_models: int) -> Statement:
    """Return Algorithm 3's estimate with what it is about."""
    open_share = 2 * monte_carlo_error(n_models)
    return Statement(
        f"Share of {n_models} models (Algorithm 3)",
        gap,
        None if error is None else math.hypot(error, open_share),
        OVER_NOISE,
        f"An estimate from the people held out; {n_models} models alone leave {open_share:.3f} open.",
    )


def several_limit(bound: float, n_models: int) -> Statement:
    """Return Equation 32, put right, with what it is about."""
    return Statement(
        "Worst case of several models (Equation 32)",
        bound,
        None,
        OVER_NOISE,
        f"As Theorem 3.2, plus one standard deviation of what {n_models} models leave open for each of two groups.",
    )


SMOOTH_NOISE = 2.0
"""Noise on sums of smooth decisions over the noise on counted ones, which certify and get most of the budget."""


@dataclass(frozen=True, eq=False)
class LastStep:
    """The last step as the certificates over the training noise need it; all of it is released or public.

    Attributes
    ----------
    before : array
        The parameters before it, with the last layer bounded.
    learning_rate : float
    noise_std : float
        The deviation of the noise on each coordinate of the average gradient.
    reach : float
        How far one record can move the average gradient.
    sampling_rate : float
    size : float
        The public or noisy number of people trained on.
    several : tuple of arrays
        The models that Algorithm 3 made, none where it was not used.
    checks : tuple of StoppingCheck
        What a stopping rule saw. A step whose own noise had a say in whether it was the last has another law.
    """

    before: Float32Array
    learning_rate: float
    noise_std: float
    reach: float
    sampling_rate: float
    size: float
    several: tuple[Float32Array, ...] = ()
    checks: tuple[StoppingCheck, ...] = ()

    @property
    def is_unwatched(self) -> bool:
        """Whether this step was the last whatever its noise was: no stopping rule was used."""
        return not self.checks

    @property
    def margin_std(self) -> float:
        """The deviation that the last step puts on each weight of logit_1 - logit_0."""
        return math.sqrt(2) * self.learning_rate * self.noise_std


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupwiseFit(Fit):
    """A fit of FairDP, with its last step."""

    last_step: LastStep


@dataclass(frozen=True, eq=False)
class SmoothSums:
    """Noisy sums of P(class 1) - 1/2 over people held out, by (group code, label).

    Attributes
    ----------
    smooth : array of shape (groups, 2)
        Over the noise of a last step around the released weights.
    of_several : array of shape (groups, 2) or None
        Over the models that Algorithm 3 made.
    noise_std : float
        The deviation of the noise on each sum.
    others : mapping
        The sums at the other planned thresholds.
    """

    smooth: NDArray[np.float64]
    of_several: NDArray[np.float64] | None
    noise_std: float
    others: Mapping[float, "SmoothSums"] = field(default_factory=dict)

    def at(self, threshold: float) -> "SmoothSums | None":
        """Return the sums at a threshold, None where that was not planned."""
        return self if threshold == HALF else self.others.get(threshold)


def _names_at(threshold: float, has_several: bool) -> tuple[str, ...]:
    suffix = "" if threshold == HALF else f" at {threshold:g}"
    return tuple(f"{name}{suffix}" for name in ("smooth rates", "several models")[: 1 + has_several])


def smooth_stage(
    noise_multiplier: float, share: float, *, has_several: bool, thresholds: tuple[float, ...] = ()
) -> Stage:
    """Return one stage on the people held out: sums of smooth decisions, and of those of several models.

    Every threshold beside 1/2 is one more release of each.
    """
    names = [name for threshold in (HALF, *thresholds) for name in _names_at(threshold, has_several)]
    releases = tuple(Release(name, "gaussian", SMOOTH_NOISE * noise_multiplier) for name in names)
    return Stage("smooth rates", releases, share, subset="holdout")


def read_smooth_sums(
    veil: Veil, model: LayeredModel, n_groups: int, fit: GroupwiseFit, thresholds: tuple[float, ...] = ()
) -> SmoothSums:
    """Return noisy sums of smooth decisions at the released parameters, by (group code, label)."""
    batch, last = veil.draw(), fit.last_step
    noise_std = REACH * ROUNDING * veil.stage.releases[0].noise_multiplier
    table, n_cells = all_cells(n_groups, 2), 2 * n_groups

    def sums_at(threshold: float) -> SmoothSums:
        least, names = margin_threshold(threshold), _names_at(threshold, bool(last.several))
        queries: list[Values] = [NoisyMarginRate(model, fit.params, last.margin_std, least)]
        if last.several:
            queries.append(SeveralDecisions(model, last.several, is_mean=True, threshold=least))
        sums = [
            batch.release_sums(Sum(table, n_cells, query), REACH, name).reshape(n_groups, 2)
            for query, name in zip(queries, names, strict=True)
        ]
        return SmoothSums(sums[0], sums[1] if last.several else None, noise_std)

    return replace(sums_at(HALF), others={threshold: sums_at(threshold) for threshold in thresholds})


def widened(model: LayeredModel, params: Float32Array, n_models: int) -> Float32Array:
    """Return parameters with the last layer repeated: class weights first, then class biases."""
    hidden, weights, biases = _subsets(model, params)
    return np.concatenate([hidden, np.tile(weights, n_models), np.tile(biases, n_models)])


def parted(model: LayeredModel, gradient: NDArray[np.float64], n_models: int) -> list[NDArray[np.float64]]:
    """Return the gradient of each model: what comes before the last layer is common to all."""
    wide = replace(model, n_classes=n_models * model.n_classes)
    hidden, weights, biases = _subsets(wide, gradient)
    rows = zip(weights.reshape(n_models, -1), biases.reshape(n_models, -1), strict=True)
    return [np.concatenate([hidden, *own]) for own in rows]


def _subsets(model: LayeredModel, flat: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Return what comes before the last layer, the class weights and the class biases."""
    n_biases = model.n_classes
    if isinstance(model, LinearSoftmax):
        n_biases = model.n_classes * model.bias
    start = len(flat) - last_layer_size(model)
    return flat[:start], flat[start : len(flat) - n_biases], flat[len(flat) - n_biases :]
