"""RandomizedParityPostprocessor: flips that move two groups to one rate, by lots that repeat."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameter
from fairveil.estimators.deciding import Decider
from fairveil.estimators.private import PrivateClassifier
from fairveil.estimators.tables import Front
from fairveil.estimators.wrapping import base_recipe, coverage, keyed_rule, load_decider, wrapped_front
from fairveil.fairness.constraints import DemographicParity
from fairveil.fairness.final_check import FinalCheck
from fairveil.keyed import Key
from fairveil.postprocess.choices import FlipFitting
from fairveil.postprocess.flips import RateFlips
from fairveil.postprocess.promises import FlipPromise
from fairveil.postprocess.recipe import Postprocessed
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.selection import TunedPlan
from fairveil.training.training import Trained

__all__ = ["RandomizedParityPostprocessor"]


class RandomizedParityPostprocessor(PrivateClassifier):
    """Two groups selected alike by random flips: decoupled parity (Ghoukasian and Asoodeh 2024), Algorithms 1 and 2.

    The group with the higher rate loses some of its positive decisions, the other gains some, by lot: both end at the
    midpoint (or `tolerance` apart). It changes as few decisions as any rule can, but not those nearest to the boundary:
    ``fitting=FlipFitting(mode="scores")`` does, and loses less accuracy.

    Parameters
    ----------
    estimator : Descent, OutputPerturbation, or a fitted classifier with predict_proba, optional
        Where decisions come from. A recipe is trained here, in one budget with the rule; None is ``Descent()``. A
        fitted classifier is used as it is: its own training is not covered.
    constraint : DemographicParity, optional
        None is ``DemographicParity(tolerance=0)``.
    epsilon, delta : float
        The privacy budget; ``epsilon=math.inf`` gives the same algorithm without privacy (Algorithm 1).
    fitting : FlipFitting, optional
        Flips or scores, one model or one for each group, public group sizes; None is ``FlipFitting()``.
    schema : Schema
        The public facts: bounds, categories, classes, optionally the size. Needed whenever epsilon is finite.
    sensitive : str
        The sensitive column, of two groups.
    holdout : float
        Share of the units kept apart by secret coins to measure accuracy and gap privately (`evaluation_`).
    ledger : Ledger, optional
        The books of these people; None is the ledger of this process. Clones share it.
    random_state : int, Generator or None
        Public coins (initial weights); at epsilon = infinity it seeds everything. Noise is never seeded.

    Attributes
    ----------
    rule_ : ThresholdMixture
        The released rule; `predict_proba` is its exact law.
    promise_ : FlipPromise or None
        Theorem 3 and Proposition 4 for this rule: `gap_bound`, `expected_gap_bound` and their twins for changes; None
        with ``mode="scores"`` and after a private choice among candidates.
    coverage_ : str
        What the guarantee covers, and what not.
    key_ : Key
        Decides lots: the same key and record give the same answer. Made afresh at each fit, see `use_key`.
    final_check_ : FinalCheck or None
        With ``mode="scores"``, what a last noisy count says of the rule.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Guarantees
    ----------
    Everything released here is (epsilon, delta)-differentially private: neighbours differ by one record (one person, if
    the schema names an id column) added or removed. Assumes that the schema's facts (and group sizes, if given) are
    public, that nobody reads this process's memory, and of a fitted classifier that it answers every row, each by
    itself. Timing is not covered. The key hides no record; who has it can foresee lots.

    Examples
    --------
    >>> from fairveil import RandomizedParityPostprocessor, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = RandomizedParityPostprocessor(schema=people.schema, sensitive="sex").fit(people.X, people.y)
    >>> bool((clf.predict(people.X) == clf.predict(people.X)).all()), clf.promise_.gap_bound() < 0.1
    (True, True)
    """

    def __init__(
        self,
        estimator: Any = None,
        constraint: DemographicParity | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        fitting: FlipFitting | None = None,
        schema: Schema | None = None,
        sensitive: str | Sequence[str] | None = None,
        holdout: float = 0.0,
        ledger: Ledger | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.constraint = constraint
        self.epsilon = epsilon
        self.delta = delta
        self.fitting = fitting
        self.schema = schema
        self.sensitive = sensitive
        self.holdout = holdout
        self.ledger = ledger
        self.random_state = random_state

    @property
    def _fitting(self) -> FlipFitting:
        fitting = FlipFitting() if self.fitting is None else self.fitting
        if not isinstance(fitting, FlipFitting):
            raise InvalidParameter(f"Expected fitting to be a FlipFitting, got {type(fitting).__name__}.")
        return fitting

    @property
    def _parity(self) -> DemographicParity:
        constraint = DemographicParity() if self.constraint is None else self.constraint
        if not isinstance(constraint, DemographicParity):
            raise InvalidParameter(
                f"Expected a DemographicParity, got {type(constraint).__name__}; ParityPostprocessor takes others."
            )
        return constraint

    def _front(self, X: Any, y: Any) -> Front:
        return wrapped_front(super()._front(X, y), self.estimator, self._fitting.predicts)

    def _recipe_for(self, front: Front) -> Postprocessed:
        return self._fitting.recipe(base_recipe(self.estimator), self._parity, front.people)

    def _keep(self, front: Front, trained: Trained) -> None:
        super()._keep(front, trained)
        self.final_check_: FinalCheck | None = trained.fit.check
        self.coverage_ = coverage(front)
        self.promise_ = self._promised(trained)
        self._decider = Decider(front, trained.model, trained.fit.params, trained.fit.rule)
        self.use_key(Key.fresh())

    def _promised(self, trained: Trained) -> FlipPromise | None:
        sizes = trained.fit.sizes
        if sizes is None or not self.plan_.is_private or isinstance(self.plan_, TunedPlan):
            return None
        (release,) = self.plan_.part("rule").releases
        fitting = self._fitting
        flips = RateFlips(fitting.group_sizes, fitting.group_epsilons)
        return FlipPromise(
            (float(sizes[0]), float(sizes[1])),
            flips.scales(release.noise_multiplier),
            float(self._parity.tolerance),
            fitting.group_sizes is not None,
        )

    def use_key(self, key: Key | str | Path | None) -> "RandomizedParityPostprocessor":
        """Decide lots by this key (or the key in this file) from now on, so that answers repeat elsewhere."""
        self._decider = keyed_rule(self._decider, key)
        self.key_ = self._decider.key
        return self

    def predict(self, X: Any, sensitive_features: Any = None, record_ids: Any = None) -> NDArray[Any]:
        """Return the decision for each record; the same record and key give the same answer.

        Parameters
        ----------
        X : DataFrame or array
            With the sensitive column, if it is not given apart.
        sensitive_features : array or DataFrame, optional
            The groups, as in `fit`.
        record_ids : array, optional
            Who each record is. By default the schema's id column, else what the schema reads of the row: people with
            equal rows then share a lot.
        """
        table = self._table(X)
        return self.classes_[self._decider.decide(table, sensitive_features, record_ids)]

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the exact probability of each decision, one row a record."""
        table = self._table(X)
        return self._decider.law(table, sensitive_features)

    @classmethod
    def load(cls, folder: str | Path, estimator: Any = None, key: Key | str | Path | None = None) -> Any:
        """Return a fitted rule from its folder; a classifier that was fitted elsewhere must be handed over again."""
        rule = super().load(folder)
        rule.final_check_ = rule.promise_ = None
        rule._decider = load_decider(rule, estimator)
        rule.coverage_ = coverage(rule._decider.front)
        return rule.use_key(key)
