"""Training by any recipe, then decisions drawn around what it released: FairSmooth (Jin et al. 2022) as a recipe."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import erfinv

from fairveil._validate import check_choice, check_integer, check_positive
from fairveil.errors import InvalidParameter
from fairveil.models import SmoothedModel
from fairveil.models.last_layer import bounded_last_layer, check_layered, last_layer_norm, margin_weights
from fairveil.models.rules import Drawn, MostLikely
from fairveil.models.smoothed import LAYERS
from fairveil.privacy.plan import Part
from fairveil.privacy.veil import Veil
from fairveil.training.task import Fit, Progress, Recipe, Task, quiet

__all__ = ["Smoothed", "Smoothing"]


@dataclass(frozen=True)
class Smoothing:
    """How decisions are drawn; name a deviation or a gap.

    Parameters
    ----------
    std : float, optional
        The deviation of the noise on each weight of logit_1 - logit_0.
    gap : float, optional
        A gap that must hold for any people: the last layer is scaled down against noise of deviation 1 until it does.
    layers : {"last", "all"}
        Whether hidden layers are drawn as well, as FairSmooth does; with a gap, only the last is.
    n_draws : int
        How many draws of the hidden layers the law is the mean of.
    """

    std: float | None = None
    gap: float | None = None
    layers: str = "last"
    n_draws: int = 64

    def __post_init__(self) -> None:
        if (self.std is None) == (self.gap is None):
            raise InvalidParameter(
                f"Expected either std or gap, got std={self.std!r} and gap={self.gap!r}; name one."
            )
        if self.std is not None:
            check_positive("std", self.std)
        if self.gap is not None and not 0 < self.gap < 1:
            raise InvalidParameter(f"Expected 0 < gap < 1, got {self.gap!r}.")
        check_choice("layers", self.layers, LAYERS if self.gap is None else ("last",))
        check_integer("n_draws", self.n_draws)

    @property
    def largest_margin(self) -> float:
        """The largest norm of the margin's weights against noise of deviation 1, infinite without a gap."""
        return math.inf if self.gap is None else math.sqrt(2) * float(erfinv(self.gap))


@dataclass(frozen=True)
class Smoothed:
    """A base recipe and the smoothing of what it released, which costs nothing."""

    base: Recipe
    smoothing: Smoothing

    def model_for(self, task: Task) -> Any:
        """Return the base's model, its answers drawn."""
        how = self.smoothing
        std = 1.0 if how.std is None else how.std
        return SmoothedModel(check_layered(self.base.model_for(task)), std, how.layers, how.n_draws)

    def check(self, task: Task) -> None:
        """Refuse models of other than two classes, and what the base refuses."""
        self.base.check(task)
        if task.predicts != "label":
            raise InvalidParameter("Expected a model of the label to smooth, got another one.")
        self.model_for(task)

    def parts(self, noise_multiplier: float, share: float, task: Task) -> tuple[Part, ...]:
        """Return what the base asks."""
        return self.base.parts(noise_multiplier, share, task)

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = quiet,
    ) -> Fit:
        """Return the base's parameters, scaled down where a gap asks for it, and the rule that draws.

        Guarantees
        ----------
        Draws around released parameters are post-processing: the guarantee is that of the veils' plan.
        """
        fit = self.base.train(veils, task, size, rng, progress)
        if not isinstance(fit.rule, MostLikely):
            raise InvalidParameter(
                "Expected a recipe that ends with a model, got one with a rule of its own."
            )
        model = self.model_for(task).base
        margin = float(np.linalg.norm(margin_weights(model, fit.params)))
        if margin > self.smoothing.largest_margin:
            # a little less, so that rounding does not lead beyond the gap
            scaled = (1 - 1e-6) * last_layer_norm(model, fit.params) * self.smoothing.largest_margin / margin
            fit = replace(fit, params=bounded_last_layer(model, fit.params, scaled))
        return replace(fit, rule=Drawn(), check=None, trace=None)
