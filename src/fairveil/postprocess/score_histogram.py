"""One noisy histogram of scores and an exact solve, then a few counts at the thresholds found: two classes, aware."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil.errors import InvalidParameter
from fairveil.fairness.histogram import HistogramConstraints
from fairveil.postprocess.curves import EDGES, ScoreCurves, accepted
from fairveil.postprocess.scene import Ruling, Scene, check_counted, noise_of
from fairveil.postprocess.smoothing import Observation, smooth_curve
from fairveil.privacy.plan import Part, Release
from fairveil.privacy.veil import Veil
from fairveil.training.objectives import Margins
from fairveil.training.task import Task

__all__ = ["ScoreHistogram"]

SHARES = {"histogram": 0.15, "counts 1": 0.2, "counts 2": 0.25, "counts 3": 0.32, "released": 0.08}
"""How the precision (1 / noise^2) is shared out; the last count only reports."""


@dataclass(frozen=True)
class ScoreHistogram:
    """Thresholds from one noisy (group x score) histogram, corrected by counts at the thresholds themselves.

    The histogram says where scores lie; its tails add up many noises, so three further counts of decisions, each at the
    thresholds that the last one led to, say exactly enough how many people are above. Works for every bound on rates of
    people who do not depend on the decisions.

    Parameters
    ----------
    in_bins : bool
        Decide a bin that holds the threshold by lot, which is exact for scores of any law; otherwise a threshold is set
        inside the bin.
    """

    in_bins: bool = False

    def check(self, task: Task, bounds: HistogramConstraints) -> None:
        """Refuse more than two classes, joint models, and rates whose denominator moves."""
        if task.n_classes != 2:
            raise InvalidParameter(
                f"Expected two classes for thresholds on a score, got {task.n_classes}; use DualSteps()."
            )
        if not len(task.people.codes):
            raise InvalidParameter(
                "Expected groups to set thresholds for, got none; name a sensitive column."
            )
        if task.predicts == "joint":
            raise InvalidParameter(
                "Expected a rule that reads the group, got one that does not; use DualSteps()."
            )
        check_counted(bounds)

    def parts(self, noise_multiplier: float, share: float, piece: str, task: Task) -> tuple[Part, ...]:
        """Return one look at the piece: histogram and counts."""
        releases = [Release(name, "gaussian", noise_multiplier / part**0.5) for name, part in SHARES.items()]
        return (Part("rule", tuple(releases), share, piece=piece),)

    def fit(self, scene: Scene, veils: Mapping[str, Veil]) -> Ruling:
        """Return thresholds for every group that is large enough to speak of; all others keep the model's own."""
        batch, part = veils["rule"].draw(), veils["rule"].part
        cells, rule = scene.group_cells, scene.plain_rule()
        n_cells, codes = int(cells.max()) + 1, scene.task.people.codes
        margins = Margins(scene.model, scene.params, cells.ravel(), n_cells, EDGES, scene.jitter)
        bins = batch.release_counts(margins, "histogram").reshape(n_cells, -1)
        noise = noise_of(part, "histogram")
        known = [[Observation(np.eye(bins.shape[1]), row, noise)] for row in bins]
        size_noise = noise * bins.shape[1] ** 0.5
        for name in ("counts 1", "counts 2", "counts 3"):
            rule = _curves(scene, known, size_noise).best_rule(rule, codes, in_bins=self.in_bins)
            counts, noise = scene.count(batch, rule, cells, name), noise_of(part, name)
            above = accepted(rule)[_first_atoms(scene) // 2]
            for told, shares, pair in zip(known, above, counts, strict=True):
                told.append(Observation(np.stack([1 - shares, shares]), pair, noise))
            size_noise = min(size_noise, noise * 2**0.5)
        rule = _curves(scene, known, size_noise).best_rule(rule, codes, in_bins=self.in_bins)
        return Ruling(rule, scene.check(batch, part, rule))


def _first_atoms(scene: Scene) -> NDArray[np.int64]:
    """Return the first (group, label) of each cell, flat."""
    return np.unique(scene.group_cells.ravel(), return_index=True)[1]


def _curves(scene: Scene, known: list[list[Observation]], size_noise: float) -> ScoreCurves:
    """Return the curves that all counts so far make most plausible."""
    first = _first_atoms(scene)
    bins = np.stack([smooth_curve(told) for told in known])
    coarse_of = scene.bounds.cells.ravel()[first]
    return ScoreCurves(bins, size_noise, first // 2, coarse_of, scene.bounds, scene.floor, scene.headroom)
