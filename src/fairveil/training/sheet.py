"""Everything that one training by the functional mechanism released, and the models that follow from it for free."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairveil._validate import check_positive
from fairveil.models import LinearSoftmax
from fairveil.models.protocol import Array
from fairveil.training.expansion import CellRates, CellSums, Quadratic
from fairveil.training.score_path import Outlook, ScorePath, choose

__all__ = ["Derived", "Sheet", "line_of", "margin_params"]

Floats = NDArray[np.float64]


class Derived(NamedTuple):
    """A model derived from what was released, its place on the line, and what is told of it.

    Accuracy and gap are estimates, the gap with its standard error; `counted` says whether decisions were counted.
    """

    params: Array
    shift: float
    threshold: float
    accuracy: float
    gap: float
    gap_error: float
    counted: bool


@dataclass(frozen=True, eq=False)
class Sheet:
    """Everything released about a task, from which a model for any limits and regularisation follows at no cost.

    Attributes
    ----------
    quadratic : Quadratic
        The loss around the last round's centre.
    known : CellSums
        Sums, sizes and squares of the cells.
    rates : CellRates
        The bounded rates, by cell.
    limits : array of shape (J,)
        Those that the fit was asked for.
    headroom : float
    path : ScorePath
        The line whose decisions were counted.
    outlook : Outlook
        What was counted.
    model : LinearSoftmax
    """

    quadratic: Quadratic
    known: CellSums
    rates: CellRates
    limits: Floats
    headroom: float
    path: ScorePath
    outlook: Outlook
    model: LinearSoftmax

    def rule_at(
        self, limits: float | Sequence[float] | Floats | None = None, regularisation: float | None = None
    ) -> Derived:
        """Return the model for these limits, one number for all or one a bound; None is what the fit was asked for.

        Decisions were counted on one line only. For another regularisation the line is another, and its point is chosen
        as if scores were normal in every cell, with the released means and variances: `counted` is then False.

        Guarantees
        ----------
        Reads what was released and nothing else, so it costs nothing, however often it is asked.
        """
        asked = self.limits if limits is None else np.broadcast_to(limits, self.limits.shape)
        path, outlook = self._known_of(regularisation)
        at = choose(outlook, path, self.rates, np.asarray(asked, float), self.headroom, self.known)
        params = margin_params(self.model, path.weights_at(at.shift), at.threshold, self.known.norm)
        return Derived(params, at.shift, at.threshold, at.accuracy, at.gap, at.gap_error, outlook.is_counted)

    def _known_of(self, regularisation: float | None) -> tuple[ScorePath, Outlook]:
        if regularisation is None or regularisation == self.quadratic.regularisation:
            return self.path, self.outlook
        level = check_positive("regularisation", regularisation)
        path = line_of(self.quadratic.regularised(level), self.rates, self.known)
        return path, Outlook.normal(path, self.known)


def line_of(quadratic: Quadratic, rates: CellRates, known: CellSums) -> ScorePath:
    """Return the line from the minimiser to equal mean scores; comparisons of too few people steer nothing."""
    return ScorePath.between(quadratic, rates.directions(known)[rates.is_told(known)], known)


def margin_params(model: LinearSoftmax, weights: Floats, threshold: float, norm: float) -> Array:
    """Return the parameters whose margin is w.z - threshold, half of it in each class."""
    slopes, offset = weights[:-1] / norm, weights[-1] / norm - threshold
    return model.pack(np.stack([-slopes / 2, slopes / 2]), np.array([-offset / 2, offset / 2]))
