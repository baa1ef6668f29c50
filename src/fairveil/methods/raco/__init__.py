"""RateConstrainedClassifier: a private classifier whose rates keep to stated bounds."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint
from fairveil.fairness.diagnostics import ConstraintTrace
from fairveil.methods.base import PrivateClassifier
from fairveil.methods.inputs import Front
from fairveil.methods.raco.recipe import RateConstrained
from fairveil.privacy.ledger import Ledger
from fairveil.training.run import Trained


class RateConstrainedClassifier(PrivateClassifier):
    """A differentially private classifier under bounds on its rates: RaCO-DP (Yaghini et al. 2025).

    Predictions never need the group: drop the sensitive column from the schema for a rule that does not read it
    (``schema.without("sex")``), keep it for one that does.

    Parameters
    ----------
    constraint : constraint or list of constraints
        What must hold: ``DemographicParity(tolerance=0.05)``, ``FalseNegativeRateCap(0.3)``, ``Rule("...")``, ...
    epsilon, delta : float
        The privacy budget; ``epsilon=math.inf`` gives the same algorithm without privacy.
    training : RateConstrained, optional
        How to train; None is ``RateConstrained()``, whose open numbers follow from public facts. Its own constraint is
        replaced by the one above.
    schema : Schema
        The public facts: bounds, categories, classes, optionally the size. Needed whenever epsilon is finite.
    sensitive : str or list of str, optional
        The sensitive column or columns whose groups the constraint compares; several stand for their intersections.
    holdout : float
        Share of the units kept apart by secret coins to measure accuracy and gap privately (`evaluation_`).
    ledger : Ledger, optional
        The books of these people; None is the ledger of this process. Clones share it.
    random_state : int, Generator or None
        Public coins (initial weights); at epsilon = infinity it seeds everything. Noise is never seeded.

    Attributes
    ----------
    constraint_trace_ : ConstraintTrace
        The course of every bound and its multiplier over the steps, private; ``constraint_trace_.frame()`` to plot it.
    final_check_ : FinalCheck or None
        What noisy counts say of the released rule on the people trained on; where a bound is surely broken, fit warns
        with `ToleranceNotMetWarning`.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Guarantees
    ----------
    Fitted attributes and predictions together are (epsilon, delta)-differentially private: neighbours differ by one
    record (one person, if the schema names an id column) added or removed. Assumes that the schema's facts are public
    and that nobody reads this process's memory. Timing is not covered. That the bounds hold for new people is aimed at
    and measured (`evaluation_`), not guaranteed.

    Examples
    --------
    >>> from fairveil import DemographicParity, RateConstrainedClassifier, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = RateConstrainedClassifier(DemographicParity(tolerance=0.05), schema=people.schema, sensitive="sex")
    >>> clf.fit(people.X, people.y).final_check_.bounds[0].limit
    0.05
    """

    def __init__(
        self,
        constraint: Constraint | Sequence[Constraint] | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        training: RateConstrained | None = None,
        schema: Schema | None = None,
        sensitive: str | Sequence[str] | None = None,
        holdout: float = 0.0,
        ledger: Ledger | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(epsilon, delta, training, schema, sensitive, holdout, ledger, random_state)
        self.constraint = constraint

    def _recipe_for(self, front: Front) -> RateConstrained:
        if self.constraint is None:
            raise InvalidParameterError(
                "Expected a constraint, got none; write for example constraint=DemographicParity(tolerance=0.05)."
            )
        training = RateConstrained() if self.training is None else self.training
        if not isinstance(training, RateConstrained):
            raise InvalidParameterError(
                f"Expected training to be a RateConstrained, got {type(training).__name__}; "
                "PrivateClassifier takes other recipes."
            )
        return replace(training, constraint=self.constraint)

    def _keep(self, front: Front, trained: Trained) -> None:
        super()._keep(front, trained)
        self.constraint_trace_: ConstraintTrace | None = trained.fit.trace
        self._keep_check(trained.fit.check)

    @classmethod
    def load(cls, folder: str | Path) -> "RateConstrainedClassifier":
        """Return a fitted rule from its folder; it predicts, and is not for fitting again (its ledger is sealed)."""
        rule = super().load(folder)
        rule.constraint_trace_ = rule.final_check_ = None
        return rule
