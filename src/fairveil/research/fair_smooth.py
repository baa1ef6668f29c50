"""SmoothedClassifier: a private model whose decisions are drawn, with a gap that holds for any people.

Training by any recipe, then decisions drawn around what it released: FairSmooth (Jin et al. 2022) as a recipe. For
tables, `plain_network` and `fair_smooth` are the baselines without privacy, each in one line.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import erfinv

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_choice, check_number
from fairveil.data.coded import SCHEMA_ONLY, Detail
from fairveil.errors import InvalidParameterError
from fairveil.methods.base import BasePrivateClassifier
from fairveil.methods.dp_sgd import Descent, PrivateClassifier
from fairveil.methods.inputs import InputSpec, SchemaOrPath
from fairveil.models.base import MODEL_KINDS, ignore_float_warnings
from fairveil.models.last_layer import (
    LayeredModel,
    bounded_last_layer,
    check_layered,
    last_layer_norm,
    last_layer_size,
    margin_weights,
    positive_probability,
)
from fairveil.models.row_stable import row_stable_answer, row_stable_inputs
from fairveil.models.rules import Argmax, RandomizedByKey
from fairveil.privacy.ledger import Ledger, LedgerOrPath
from fairveil.privacy.plan import Stage
from fairveil.privacy.veil import Veil
from fairveil.training.recipe import DetailedRecipe, Fit, Progress, Recipe, Task, no_progress

LAYERS = ("last", "all")
SURE = 1e-15
"""Laws are kept so far from 0 and 1 that their logarithm is finite."""

NETWORK_BATCH, NETWORK_RATE = 0.1, 0.03
"""The share of the rows in a batch, and the learning rate, of networks that train without noise."""


def smoothed_gap(norm: float, std: float) -> float:
    """Return what no gap between groups exceeds when margins of this norm are drawn with this deviation.

    Every answer is 1 with probability 1/2 +- erf(norm / (std sqrt 2)) / 2, whatever the row, so no two groups of any
    people differ by more; the same holds among people of one label.

    Examples
    --------
    >>> [round(smoothed_gap(ratio, 1.0), 2) for ratio in (1.0, 0.2, 0.1)]
    [0.68, 0.16, 0.08]
    """
    return math.erf(norm / (check_number("std", std) * math.sqrt(2)))


@dataclass(frozen=True)
class SmoothedModel:
    """A model of two classes whose margin weights are drawn anew for every answer.

    Its logits are the logarithm of the law of that answer, so their softmax is the law.

    Parameters
    ----------
    base : LinearSoftmax, Perceptron or TorchModel
        Whose parameters are drawn around.
    std : float
        The deviation of each weight of logit_1 - logit_0, that of its bias included; in the hidden layers, where
        `layers` is "all", of each parameter.
    layers : {"last", "all"}
        Whether hidden layers are drawn as well; a linear model has none.
    n_draws : int
        How many draws of the hidden layers the law is the mean of, from public coins.
    """

    base: LayeredModel
    std: float
    layers: str = "last"
    n_draws: int = 64

    def __post_init__(self) -> None:
        check_number("std", self.std)
        check_choice("layers", self.layers, LAYERS)
        check_number("n_draws", self.n_draws, whole=True)
        if self.base.n_classes != 2:
            raise InvalidParameterError(
                f"Expected two classes to smooth, got {self.base.n_classes}. Only binary classification is supported."
            )

    @property
    def n_features(self) -> int:
        """Columns of a row."""
        return self.base.n_features

    @property
    def n_classes(self) -> int:
        """Two."""
        return self.base.n_classes

    @property
    def n_params(self) -> int:
        """Length of the flat parameter vector, which is the base's."""
        return self.base.n_params

    @ignore_float_warnings
    def logits(self, params: Float32Array, X: Float32Array) -> Float64Array:
        """Return the logarithms of the law, class-major (2, B), each column from its own row alone."""
        margin = margin_weights(self.base, params)
        laws = [
            positive_probability(margin, row_stable_inputs(self.base, drawn, X), self.std)
            for drawn in self._hidden_draws(params)
        ]
        law = np.clip(np.mean(laws, axis=0), SURE, 1 - SURE)
        return np.log(np.stack([1 - law, law]))

    def forward(self, params: Float32Array, X: Float32Array) -> tuple[Float64Array, ...]:
        """Return the logits alone."""
        return (self.logits(params, X),)

    def gap_bound(self, params: Float32Array) -> float:
        """Return what no gap between groups exceeds, of any people: see `smoothed_gap`."""
        return smoothed_gap(float(np.linalg.norm(margin_weights(self.base, params))), self.std)

    def _hidden_draws(self, params: Float32Array) -> list[Float32Array]:
        """Return parameters with the hidden layers drawn; the last layer is integrated out, so it stays."""
        n_hidden = len(params) - last_layer_size(self.base)
        if self.layers == "last" or not n_hidden:
            return [params]
        rng = np.random.default_rng(0)  # public: the law must be the same for everyone, each time
        noise = np.zeros((self.n_draws, len(params)), dtype=params.dtype)
        noise[:, :n_hidden] = self.std * rng.standard_normal((self.n_draws, n_hidden))
        return list(params + noise)


MODEL_KINDS["smoothed"] = SmoothedModel


@row_stable_answer.register
def _(model: SmoothedModel, params: Float32Array, X: Float32Array) -> Float64Array:
    return model.logits(params, X)


@dataclass(frozen=True)
class Smoothing:
    """How `SmoothedClassifier` draws its weights: set their standard deviation or the largest gap.

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
            raise InvalidParameterError(
                f"Expected either std or gap, got std={self.std!r} and gap={self.gap!r}; name one."
            )
        if self.std is not None:
            check_number("std", self.std)
        if self.gap is not None and not 0 < self.gap < 1:
            raise InvalidParameterError(f"Expected 0 < gap < 1, got {self.gap!r}.")
        check_choice("layers", self.layers, LAYERS if self.gap is None else ("last",))
        check_number("n_draws", self.n_draws, whole=True)

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

    def detail_for(self, task: Task) -> Detail:
        """Return what the base needs."""
        return self.base.detail_for(task) if isinstance(self.base, DetailedRecipe) else SCHEMA_ONLY

    def check(self, task: Task) -> None:
        """Refuse models of other than two classes, and what the base refuses."""
        self.base.check(task)
        if task.predicts != "label":
            raise InvalidParameterError("Expected a model of the label to smooth, got another one.")
        self.model_for(task)

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return what the base asks."""
        return self.base.stages(noise_multiplier, share, task)

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return the base's parameters, scaled down where a gap asks for it, and the rule that draws.

        Guarantees
        ----------
        Draws around released parameters are post-processing: the guarantee is that of the veils' plan.
        """
        fit = self.base.train(veils, task, size, rng, progress)
        if not isinstance(fit.rule, Argmax):
            raise InvalidParameterError("Expected a recipe that ends with a model, got one with a rule of its own.")
        model = self.model_for(task).base
        margin = float(np.linalg.norm(margin_weights(model, fit.params)))
        if margin > self.smoothing.largest_margin:
            # a little less, so that rounding does not lead beyond the gap
            scaled = (1 - 1e-6) * last_layer_norm(model, fit.params) * self.smoothing.largest_margin / margin
            fit = replace(fit, params=bounded_last_layer(model, fit.params, scaled))
        return replace(fit, rule=RandomizedByKey(), check=None, trace=None)


class SmoothedClassifier(BasePrivateClassifier):
    """Decisions by random weights around a private model: FairSmooth (Jin et al. 2022), DPSGD-Smooth, FairFM-Smooth.

    Every decision is that of weights drawn anew around the released ones, by a key, so that the same record always gets
    the same answer. A small enough margin against the noise bounds the gap between any groups of any people, over the
    draws; the price is decisions near to a coin toss (a gap of 0.1 leaves each between 45 and 55 %). A record is who
    its id says, else what the schema reads of the row: name ids (``record_ids``, or the schema's id column), or people
    with equal rows share one draw, and a group of them is decided all alike.

    Parameters
    ----------
    smoothing : Smoothing
        How decisions are drawn: ``Smoothing(std=0.5)`` or ``Smoothing(gap=0.1)``.
    {epsilon, delta}
    training : Descent, Functional, Groupwise or OutputPerturbation, optional
        How to train; None is ``Descent()`` (DPSGD-Smooth).
    {schema}
    {sensitive}
    {holdout}
    {ledger}
    {random_state}

    Attributes
    ----------
    gap_bound_ : float
        What no gap between groups exceeds, over the draws, for any people: demographic parity, equal opportunity and
        equalized odds alike. Under one key the gap of few records scatters about it as coins do.
    key_ : Key
        Determines the draws; made afresh at each fit, see `use_key`.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Notes
    -----
    Fitted attributes and predictions together are (epsilon, delta)-differentially private: neighbors differ by one
    record (one person, if the schema names an id column) added or removed; draws around released weights are
    post-processing. `gap_bound_` holds for the law of the decisions (`predict_proba`), whatever the people. Assumes
    that the schema's facts are public and that nobody reads this process's memory. Timing is not covered.

    Examples
    --------
    >>> from fairveil import Smoothing, SmoothedClassifier, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = SmoothedClassifier(smoothing=Smoothing(gap=0.1), schema=people.schema).fit(people.X, people.y)
    >>> round(clf.gap_bound_, 3)
    0.1
    """

    is_randomized = True

    def __init__(
        self,
        smoothing: Smoothing | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        training: Recipe | None = None,
        schema: SchemaOrPath | None = None,
        sensitive: str | Sequence[str] | None = None,
        holdout: float = 0.0,
        ledger: LedgerOrPath | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(epsilon, delta, training, schema, sensitive, holdout, ledger, random_state)
        self.smoothing = smoothing

    def _recipe(self, inputs: InputSpec) -> Smoothed:
        if not isinstance(self.smoothing, Smoothing):
            raise InvalidParameterError(
                f"Expected smoothing=Smoothing(std=...) or Smoothing(gap=...), got {type(self.smoothing).__name__}; "
                "pass one of these."
            )
        base = Descent() if self.training is None else self.training
        if not hasattr(base, "model_for"):
            raise InvalidParameterError(
                f"Expected a way to train such as Descent(), got {type(base).__name__}; name one, or leave it open."
            )
        return Smoothed(base, self.smoothing)

    @property
    def gap_bound_(self) -> float:
        """The largest possible gap between groups, over the randomization, for any people."""
        model: Any = self.model_
        return float(model.gap_bound(self.params_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def plain_network(
    schema: SchemaOrPath, hidden: tuple[int, ...] = (32,), n_steps: int = 600, random_state: Any = None
) -> PrivateClassifier:
    """Return a network that trains without noise and clipping: the plain MLP of the tables, **not private**.

    Papers train their baselines by Adam; here momentum descent does it.

    Examples
    --------
    >>> from fairveil import load_dataset
    >>> people = load_dataset("adult")
    >>> network = plain_network(people.schema, n_steps=200, random_state=0).fit(people.X, people.y)
    >>> bool(network.score(people.X, people.y) > 0.82)
    True
    """
    training = _network(hidden, n_steps)
    return PrivateClassifier(math.inf, training=training, schema=schema, ledger=Ledger(), random_state=random_state)


def fair_smooth(
    schema: SchemaOrPath,
    std: float,
    hidden: tuple[int, ...] = (32,),
    n_steps: int = 600,
    random_state: Any = None,
) -> SmoothedClassifier:
    """Return FairSmooth itself (Jin et al. 2022): the plain network with all parameters drawn, **not private**.

    Predictions are drawn by a key, `predict_proba` is their law. A network that was not trained for it has margins far
    longer than any deviation that leaves it accurate: `gap_bound_` then says nothing.

    Examples
    --------
    >>> from fairveil import load_dataset
    >>> people = load_dataset("adult")
    >>> smooth = fair_smooth(people.schema, std=0.1, n_steps=200, random_state=0).fit(people.X, people.y)
    >>> 0 < smooth.gap_bound_ <= 1
    True
    """
    how, training, own = Smoothing(std=std, layers="all", n_draws=16), _network(hidden, n_steps), Ledger()
    return SmoothedClassifier(how, math.inf, training=training, schema=schema, ledger=own, random_state=random_state)


def _network(hidden: tuple[int, ...], n_steps: int) -> Descent:
    return Descent("mlp", hidden, n_steps, NETWORK_BATCH, NETWORK_RATE)
