"""FM (Zhang et al. 2012) and FairFM (Tran et al. 2023): the loss as a quadratic of noisy coefficients, solved at once.

One release of first and second moments gives the quadratic; its minimizer, the line from it to the model whose groups
have equal mean scores, and with one histogram of scores on that line the model for every tolerance, are all free. Two
further counts of the decisions of the chosen model correct what the histogram tells, most of all near it.

Several released linear models measured on the same people held out, in one release.

A record adds one to one decision of every model: of T models that is a vector of norm sqrt(T), so that all of them
together cost what one does at sqrt(T) times the noise, where T runs would cost about sqrt(T) times the epsilon.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_choice, check_number
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import (
    Constraint,
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRateParity,
    FalsePositiveRateParity,
    TruePositiveRateParity,
    constrain,
)
from fairveil.fairness.diagnostics import FinalCheck
from fairveil.fairness.rates import HistogramConstraints
from fairveil.methods.functional.path import (
    BinPosterior,
    DecisionCounts,
    ReleasedStatistics,
    line_of,
    margin_params,
    merged_bins,
)
from fairveil.methods.functional.quadratic import (
    NEWTON_SENSITIVITY,
    START_SENSITIVITY,
    CellLayout,
    CellRates,
    CellSums,
    Quadratic,
    known_from,
    laplace_bound,
    without_empty_cells,
)
from fairveil.methods.functional.several_classes import COUNT_SHARES as CLASS_SHARES
from fairveil.methods.functional.several_classes import (
    N_COUNTS,
    NEAR_END,
    POINTS,
    ClassLine,
    ClassStatistics,
    class_directions,
    class_params,
    class_quadratic,
    class_sums,
    constant_weights,
)
from fairveil.models.linear import LinearSoftmax
from fairveil.privacy.moments import Moments
from fairveil.privacy.noise import noise_distribution
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import (
    Count,
    Decision,
    LogisticMoments,
    SeveralDecisions,
    Sum,
    all_cells,
)
from fairveil.privacy.veil import ROUNDING, Batch, Veil
from fairveil.training.features import FeatureDesign
from fairveil.training.recipe import Fit, Progress, Task, no_progress

NAME = "announced"
NOISE = 0.5
"""Noise over that on the outcomes of the fitted model: the models that were announced get most of the budget."""


@dataclass(frozen=True, eq=False)
class AnnouncedCounts:
    """Noisy counts (models, groups, labels, decisions), and the variance of their noise."""

    counts: NDArray[np.float64]
    noise_variance: float


def announced_stage(noise_multiplier: float, share: float) -> Stage:
    """Return one count of the people held out, beside the outcomes of the fitted model at this noise."""
    return Stage(NAME, (Release(NAME, "gaussian", NOISE * noise_multiplier),), share, subset="holdout")


def read_announced(veil: Veil, several: Sequence[Float32Array], n_features: int, n_groups: int) -> AnnouncedCounts:
    """Return how each model decides the people held out."""
    decisions = SeveralDecisions(LinearSoftmax(n_features), tuple(several))
    bound = math.sqrt(len(several))
    sums = veil.draw().release_sums(Sum(all_cells(n_groups, 2), 2 * n_groups, decisions), bound, NAME)
    counts = sums.reshape(n_groups, 2, len(several), 2).transpose(2, 0, 1, 3)
    (release,) = veil.stage.releases
    return AnnouncedCounts(counts, (release.noise_multiplier * bound * ROUNDING) ** 2)


@dataclass(frozen=True, eq=False, kw_only=True)
class FunctionalFit(Fit):
    """A fit under a constraint, with everything released, from which models for other tolerances follow for free."""

    statistics: ReleasedStatistics | ClassStatistics


PARITIES = (
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRateParity,
    FalsePositiveRateParity,
    TruePositiveRateParity,
)
THRESHOLD_SHARE = 0.25
"""The share of the precision that goes into counts, under a constraint; 0.15 does about as well on Adult."""

COUNT_SHARES = {"scores": 0.45, "counts 1": 0.2, "counts 2": 0.25, "released": 0.1}
"""How it is shared out: scores on the line, decisions of the model then chosen, twice, and a count that reports."""


@dataclass(frozen=True)
class Functional:
    """The functional mechanism: minimize the logistic loss by noisy coefficients of its second-order expansion.

    Parameters
    ----------
    constraint : constraint or sequence of constraints
        Parities of selection, true positive, false positive or false negative rates, or equalized odds; none is FM.
    weighting : {"people", "groups"}
        "people" counts everyone the same (FM, second moments pooled); "groups" every known group (FairFM, second
        moments per group).
    rounds : int
        1 is one release; each further round is one Newton step around the last solution, from a further release.
    regularization : float
        Eigenvalues are trimmed from below at this multiple of half the edge of the noise's own spectrum.
    law : {"gaussian", "laplace"}
        "laplace" is the scale of FairFM, d^2/4 + 3d, for comparison.
    headroom : float, optional
        How many standard errors, of noise and people, to stay below each limit, but by at most headroom / 2 of it. None
        is 1; in `FairClassifier` it is what a certificate needs.
    threshold_share : float, optional
        The share of the precision for the counts on the line; None is 0.25 with a constraint, none without.
    announced : tuple of float
        Tolerances whose models are measured on the hold-out as well, in one release, where one is kept. T of them are
        counted at sqrt(T) times the noise, and take four fifths of the hold-out's budget.
    features : FeatureDesign
        How encoded rows become features: scaled by frequency, but not under law="laplace". No finer bins, no pairs.
    """

    constraint: Constraint | Sequence[Constraint] = ()
    weighting: str = "people"
    rounds: int = 1
    regularization: float = 1.0
    law: str = "gaussian"
    headroom: float | None = None
    threshold_share: float | None = None
    announced: tuple[float, ...] = ()
    features: FeatureDesign = field(default_factory=FeatureDesign)

    def __post_init__(self) -> None:
        check_choice("weighting", self.weighting, ("people", "groups"))
        check_choice("law", self.law, ("gaussian", "laplace"))
        check_number("rounds", self.rounds, whole=True)
        check_number("regularization", self.regularization)
        if isinstance(self.constraint, list):
            object.__setattr__(self, "constraint", tuple(self.constraint))
        if self.headroom is not None and not 0 <= self.headroom < math.inf:
            raise InvalidParameterError(f"Expected headroom >= 0 and finite, got {self.headroom!r}.")
        object.__setattr__(self, "announced", _tolerances(self.announced))
        if (self.features.resolution or 1) > 1 or self.features.pair_bins:
            raise InvalidParameterError(
                "Expected features of one resolution and no pairs for the functional mechanism, got more: its second "
                "moments grow with the square of their number. Leave resolution and pair_bins out."
            )
        if self.law == "laplace" and self.rounds > 1:
            raise InvalidParameterError(
                f"Expected one round with law='laplace', got {self.rounds}; use law='gaussian' for more."
            )
        if self.threshold_share is not None and not 0 < self.threshold_share < 1:
            raise InvalidParameterError(f"Expected 0 < threshold_share < 1, got {self.threshold_share!r}.")
        if self.threshold_share is not None and not self._is_bound:
            raise InvalidParameterError(
                "Expected a constraint beside threshold_share, got none; name one, or leave the share out."
            )

    @property
    def _is_bound(self) -> bool:
        return not isinstance(self.constraint, tuple) or bool(self.constraint)

    @property
    def _clips(self) -> bool:
        return self.law == "laplace"

    def model_for(self, task: Task) -> LinearSoftmax:
        """Return the model that is trained."""
        return LinearSoftmax(task.n_features, task.n_classes)

    def check(self, task: Task) -> None:
        """Refuse what has no quadratic or no line: other models, other constraints, most choices for many classes."""
        is_plain = (self.weighting, self.rounds, self.law) == ("people", 1, "gaussian") and not self.announced
        if task.n_classes != 2 and not is_plain:
            raise InvalidParameterError(
                "Expected two classes with weighting='groups', several rounds, law='laplace' or announced tolerances, "
                f"got {task.n_classes}; leave these out, or use RateConstrainedClassifier."
            )
        if task.predicts != "label":
            raise InvalidParameterError(
                f"Expected one model of the label for the functional mechanism, got a {task.predicts} one; use "
                "Descent()."
            )
        if self.weighting == "groups" and not len(task.people.codes):
            raise InvalidParameterError(
                "Expected groups to weigh the same, got none; name a sensitive column, or take weighting='people'."
            )
        several = self.constraint if isinstance(self.constraint, Sequence) else (self.constraint,)
        for one in several:
            if not isinstance(one, PARITIES):
                names = ", ".join(kind.__name__ for kind in PARITIES)
                raise InvalidParameterError(
                    f"Expected a parity that mean scores can follow ({names}), got {type(one).__name__}; bound it with "
                    "RateConstrainedClassifier."
                )
        if several:
            constrain(self.constraint, task.people)

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the count of levels, the moments of every round and, under a constraint, the counts on the line."""
        counts = (self.threshold_share or THRESHOLD_SHARE) if self._is_bound else 0.0
        each = noise_multiplier * math.sqrt(self.rounds / (1 - counts) / noise_distribution(self.law).spread)
        moments = tuple(Release(_name(step), self.law, each) for step in range(1, self.rounds + 1))
        train = Stage("train", moments, share)
        if not counts:
            return (*self._level_stages(train.precision, share, task), train)
        parts = COUNT_SHARES if task.n_classes == 2 else CLASS_SHARES
        counted = [
            Release(name, "gaussian", noise_multiplier / math.sqrt(counts * part)) for name, part in parts.items()
        ]
        rule = Stage("rule", tuple(counted), share, subset="train")
        return (*self._level_stages(train.precision + rule.precision, share, task), train, rule)

    def _level_stages(self, precision: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the count of levels beside stages of this precision; the scale of the paper has none."""
        return () if self.law == "laplace" else self.features.stages(precision, share, task)

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return the minimizer, or under a constraint the point of the line that keeps its limits.

        Notes
        -----
        Everything here is computed from noisy sums: the guarantee is that of the veils' plan. That the bounds hold is
        measured, not guaranteed.
        """
        bounds = constrain(self.constraint, task.people) if self._is_bound else None
        layout, batch = self.layout_for(task, bounds), veils["train"].draw()
        rescaling = self.features.rescaling_for(task, veils)
        start = self._start_for(task, layout, None if rescaling is None else rescaling.scales)
        if task.n_classes > 2:
            moments = batch.release_moments(start, self.bound_for(task), _name(1))
            return self._several_classes(moments, start, layout, veils, task, size, bounds)
        for step in progress(range(1, self.rounds + 1)):
            if step == 1:
                moments = batch.release_moments(start, self.bound_for(task), _name(step))
                if layout.has_labels:
                    moments = without_empty_cells(moments, start.norm)
                known = known_from(moments, start, layout, size)
                shares = self._shares(known, layout)
                quadratic = Quadratic.at_zero(moments, shares, layout.cell_tables, start)
            else:
                shape = (layout.n_tables, layout.n_tables, task.n_features + 1)
                center = quadratic.minimizer
                around = LogisticMoments(start.norm, shape, layout.tables, layout.tables, center, scales=start.scales)
                moments = batch.release_moments(around, NEWTON_SENSITIVITY, _name(step))
                quadratic = Quadratic.around(moments, shares, center)
            quadratic = quadratic.regularized(self.regularization)
        model = self.model_for(task)
        if bounds is None:
            return Fit(margin_params(model, known.unscaled(quadratic.minimizer), 0.0, start.norm))
        rates = CellRates.of(bounds, layout.coarse, layout.labels)
        path = line_of(quadratic, rates, known)
        headroom, normal = 1.0 if self.headroom is None else self.headroom, DecisionCounts.normal(path, known)
        statistics = ReleasedStatistics(quadratic, known, rates, bounds.limits, headroom, path, normal, model)
        counts = PathCounts(veils["rule"].draw(), veils["rule"].stage, model, layout)
        statistics = counts.counted(statistics, self._clips)
        params = statistics.rule_at().params
        return FunctionalFit(params, check=counts.checked(bounds, params, known.minimum), statistics=statistics)

    def _several_classes(
        self,
        moments: Moments,
        start: LogisticMoments,
        layout: CellLayout,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        bounds: HistogramConstraints | None,
    ) -> Fit:
        """Return the minimizer for more than two classes, or the counted point of the line that keeps its limits."""
        moments = without_empty_cells(moments, start.norm)
        known, model = class_sums(moments, start, size), self.model_for(task)
        quadratic, slopes = class_quadratic(moments, start, layout, self.regularization)
        directions = np.zeros((0, task.n_classes, 1)) if bounds is None else class_directions(bounds, layout, known)
        line = ClassLine.between(quadratic, slopes, directions, constant_weights(known, layout))
        if bounds is None:
            return Fit(class_params(model, known.unscaled(line.start), start.norm))
        headroom = 1.0 if self.headroom is None else self.headroom
        counts, stage = PathCounts(veils["rule"].draw(), veils["rule"].stage, model, layout), veils["rule"].stage
        nothing, noise = np.zeros((0, int(layout.cells.max()) + 1, task.n_classes)), stage.noise_multipliers["counts 1"]
        statistics = ClassStatistics(quadratic, known, bounds, layout, headroom, line, model, (), nothing, noise)
        for place in range(1, N_COUNTS + 1):
            shift = POINTS[place - 1] if place <= len(POINTS) else min(statistics.rule_at().shift, NEAR_END)
            table = counts.decided(statistics.params_at(shift), layout.cells, f"counts {place}")
            statistics = statistics.counted_at(shift, table)
        params = statistics.rule_at().params
        return FunctionalFit(params, check=counts.checked(bounds, params, known.minimum), statistics=statistics)

    def holdout_stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return one count of the people held out for all announced tolerances."""
        return (announced_stage(noise_multiplier, share),) if self.announced and self._is_bound else ()

    def read_holdout(self, veils: Mapping[str, Veil], task: Task, fit: Fit) -> AnnouncedCounts | None:
        """Return how the models of the announced tolerances decide the people held out."""
        if not self.announced or not isinstance(fit, FunctionalFit):
            return None
        several = [fit.statistics.rule_at(tolerance).params for tolerance in self.announced]
        return read_announced(veils["announced"], several, task.n_features, task.people.n_groups)

    def bound_for(self, task: Task) -> float:
        """Return what one record may add to the first release, in the norm of its law."""
        return laplace_bound(task.n_features + 1) if self.law == "laplace" else START_SENSITIVITY

    def _start_for(self, task: Task, layout: CellLayout, scales: Float64Array | None) -> LogisticMoments:
        """Return the expansion at 0, in the scale of the paper under its law."""
        shape = (len(layout.labels), layout.n_tables, task.n_features + 1)
        if self.law == "laplace":
            return LogisticMoments(1.0, shape, layout.cells, layout.tables, slope=0.5, weight=0.125, clips=True)
        norm = task.input_norm
        if scales is not None and not task.is_private:  # then no row needs to be shortened
            norm *= max(1.0, float(scales.max()))
        return LogisticMoments(norm, shape, layout.cells, layout.tables, scales=scales)

    def layout_for(self, task: Task, bounds: HistogramConstraints | None) -> CellLayout:
        """Return cells no finer than bounds and weighting need: each one adds noise to the pooled slope."""
        shape = (task.people.n_groups, task.n_classes)
        tables = np.zeros(shape, dtype=np.int64)
        if self.weighting == "groups":
            tables[:] = len(task.people.codes)  # a last table for people of no known group
            tables[task.people.codes] = np.arange(len(task.people.codes))[:, None]
        coarse = np.full(shape, -1) if bounds is None else bounds.cells
        labels = np.indices(shape)[1]
        if bounds is None and self.weighting == "people" and task.n_classes == 2:
            labels = np.zeros(shape, dtype=np.int64)
        atoms = np.stack([one.ravel() for one in (coarse, tables, labels)], axis=1)
        kinds, cells = np.unique(atoms, axis=0, return_inverse=True)
        return CellLayout(cells.reshape(shape), tables, kinds[:, 2], kinds[:, 0], kinds[:, 1])

    def _shares(self, known: CellSums, layout: CellLayout) -> Float64Array:
        """Return the weight of each table: 1, or what makes every known group count the same, and nobody else."""
        if self.weighting == "people":
            return np.ones(1)
        own = layout.cell_tables[:, None] == np.arange(layout.n_tables - 1)
        least = max(known.minimum, 3 * known.size_noise * math.sqrt(2))
        sizes = np.maximum(known.sizes @ own, least)
        return np.append(sizes.sum() / (len(sizes) * sizes), 0.0)


@dataclass(frozen=True, eq=False)
class PathCounts:
    """The counts along the line: a batch, its stage of the plan, and where people are counted."""

    batch: Batch
    stage: Stage
    model: LinearSoftmax
    layout: CellLayout

    def counted(self, statistics: ReleasedStatistics, clips: bool) -> ReleasedStatistics:
        """Return the statistics after counting scores along the line, then twice the decisions of the chosen model."""
        path, known = statistics.path, statistics.known
        noise = self.stage.noise_multipliers["scores"]
        places = merged_bins(path, known, noise)
        query = path.query(self.layout.cells, places, known, clips)
        histogram = self.batch.release_counts(query, "scores")
        belief = BinPosterior.before(path, known).updated_by_histogram(histogram, places, noise)
        for name in ("counts 1", "counts 2"):
            statistics = replace(statistics, outlook=DecisionCounts.counted(path, belief))
            rule = statistics.rule_at()
            counts = self.decided(rule.params, self.layout.cells, name)
            where = np.array([rule.shift]), np.array([rule.threshold])
            shares = [path.above(cell, *where)[0] for cell in range(len(counts))]
            rows = [np.concatenate([1 - share, share]) for share in shares]
            belief = belief.updated(rows, list(counts), self.stage.noise_multipliers[name])
        return replace(statistics, outlook=DecisionCounts.counted(path, belief))

    def checked(self, bounds: HistogramConstraints, params: Float32Array, minimum: float) -> FinalCheck:
        """Count the final rule, which no choice has used, and say what that shows of every bound."""
        counts = self.decided(params, bounds.cells, "released")
        return FinalCheck.of_counts(bounds, counts, self.stage.noise_multipliers["released"] ** 2, minimum)

    def decided(self, params: Float32Array, cells: NDArray[np.int64], name: str) -> Float64Array:
        """Release how many people of each cell are decided for each class."""
        n_cells = int(cells.max()) + 1
        query = Count(cells, n_cells, Decision(self.model, params))
        return self.batch.release_counts(query, name).reshape(n_cells, self.model.n_classes)


def _tolerances(values: Any) -> tuple[float, ...]:
    """Return announced tolerances as different numbers from 0 to 1; refuse others before anything is spent."""
    try:
        several = tuple(float(one) for one in values)
    except (TypeError, ValueError):
        several = (-1.0,)
    if len(set(several)) < len(several) or not all(0 <= one <= 1 for one in several):
        raise InvalidParameterError(
            f"Expected announced tolerances that differ, each from 0 to 1, got {values!r}; write (0.0, 0.02, 0.05)."
        )
    return several


def _name(step: int) -> str:
    return "moments" if step == 1 else f"moments {step}"
