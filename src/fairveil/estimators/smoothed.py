"""SmoothedClassifier: a private model whose decisions are drawn, with a gap that holds for any people."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameter
from fairveil.estimators.deciding import Decider
from fairveil.estimators.private import PrivateClassifier
from fairveil.estimators.tables import Front
from fairveil.estimators.wrapping import keyed_rule, load_decider
from fairveil.keyed import Key
from fairveil.privacy.ledger import Ledger
from fairveil.training.descent import Descent
from fairveil.training.smoothing import Smoothed, Smoothing
from fairveil.training.task import Recipe
from fairveil.training.training import Trained

__all__ = ["SmoothedClassifier"]


class SmoothedClassifier(PrivateClassifier):
    """Decisions drawn around a private model: FairSmooth (Jin et al. 2022), DPSGD-Smooth, FairFM-Smooth, FairDP.

    Every decision is that of weights drawn anew around the released ones, by a key, so that the same record always gets
    the same answer. A small enough margin against the noise bounds the gap between any groups of any people, over the
    lots; the price is decisions near to a coin toss (a gap of 0.1 leaves each between 45 and 55 %). A record is who its
    id says, else what the schema reads of the row: name ids (``record_ids``, or the schema's id column), or people with
    equal rows share one lot, and a group of them is decided all alike.

    Parameters
    ----------
    estimator : Descent, Functional, Groupwise or OutputPerturbation, optional
        How to train; None is ``Descent()`` (DPSGD-Smooth).
    smoothing : Smoothing
        How decisions are drawn: ``Smoothing(std=0.5)`` or ``Smoothing(gap=0.1)``.
    epsilon, delta : float
        The privacy budget; ``epsilon=math.inf`` gives the same algorithm without privacy (FairSmooth).
    schema : Schema
        The public facts: bounds, categories, classes, optionally the size. Needed whenever epsilon is finite.
    sensitive : str or list of str, optional
        The sensitive column or columns, where training or the hold-out's gaps need them. Decisions read the columns of
        the schema, a sensitive one too unless it is left out.
    holdout : float
        Share of the units kept apart by secret coins to measure accuracy and gap privately (`evaluation_`).
    ledger : Ledger, optional
        The books of these people; None is the ledger of this process. Clones share it.
    random_state : int, Generator or None
        Public coins (initial weights); at epsilon = infinity it seeds everything. Noise is never seeded.

    Attributes
    ----------
    gap_bound_ : float
        What no gap between groups exceeds, over the lots, for any people: demographic parity, equal opportunity and
        equalized odds alike. Under one key the gap of few records scatters about it as coins do.
    key_ : Key
        Decides the lots; made afresh at each fit, see `use_key`.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Guarantees
    ----------
    Fitted attributes and predictions together are (epsilon, delta)-differentially private: neighbours differ by one
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

    def __init__(
        self,
        estimator: Recipe | None = None,
        smoothing: Smoothing | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        schema: Schema | None = None,
        sensitive: str | Sequence[str] | None = None,
        holdout: float = 0.0,
        ledger: Ledger | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.smoothing = smoothing
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.sensitive = sensitive
        self.holdout = holdout
        self.ledger = ledger
        self.random_state = random_state

    def _recipe_for(self, front: Front) -> Smoothed:
        if not isinstance(self.smoothing, Smoothing):
            raise InvalidParameter(
                "Expected smoothing=Smoothing(std=...) or Smoothing(gap=...), got "
                f"{type(self.smoothing).__name__}; say how decisions are drawn."
            )
        base = Descent() if self.estimator is None else self.estimator
        if not hasattr(base, "model_for"):
            raise InvalidParameter(
                f"Expected a way to train such as Descent(), got {type(base).__name__}; name one, or leave it open."
            )
        return Smoothed(base, self.smoothing)

    def _keep(self, front: Front, trained: Trained) -> None:
        super()._keep(front, trained)
        self.gap_bound_ = _gap_bound(self)
        self._decider = Decider(front, trained.model, trained.fit.params, trained.fit.rule)
        self.use_key(Key.fresh())

    def use_key(self, key: Key | str | Path | None) -> "SmoothedClassifier":
        """Decide lots by this key (or the key in this file) from now on, so that answers repeat elsewhere."""
        self._decider = keyed_rule(self._decider, key)
        self.key_ = self._decider.key
        return self

    def predict(self, X: Any, sensitive_features: Any = None, record_ids: Any = None) -> NDArray[Any]:
        """Return the decision for each record; the same record and key give the same answer.

        Parameters
        ----------
        X : DataFrame or array
        sensitive_features : ignored
            The rule reads no group apart; here because rules that do take it.
        record_ids : array, optional
            Who each record is. By default the schema's id column, else what the schema reads of the row.
        """
        table = self._table(X)
        return self.classes_[self._decider.decide(table, record_ids=record_ids)]

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the exact probability of each decision, one row a record."""
        table = self._table(X)
        return self._decider.law(table)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    @classmethod
    def load(cls, folder: str | Path, estimator: Any = None, key: Key | str | Path | None = None) -> Any:
        """Return a fitted rule from its folder, with its key for predictions."""
        rule = super().load(folder)
        rule._decider = load_decider(rule, None)
        rule.gap_bound_ = _gap_bound(rule)
        return rule.use_key(key)


def _gap_bound(fitted: Any) -> float:
    return float(fitted.model_.gap_bound(fitted.params_))
