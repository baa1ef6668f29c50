"""LagrangianClassifier: a fair classifier that hides the sensitive attribute, and nothing else."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, DemographicParity, Parity
from fairveil.fairness.diagnostics import ConstraintTrace
from fairveil.methods.base import PrivateClassifier
from fairveil.methods.inputs import Front
from fairveil.methods.pf_ld.recipe import LagrangianDual
from fairveil.privacy.ledger import Ledger
from fairveil.training.run import Trained


class LagrangianClassifier(PrivateClassifier):
    """A fair classifier under privacy of the sensitive attribute alone: PF-LD (Tran, Fioretto, Van Hentenryck 2021).

    Features, labels and the number of rows are **public** here: the loss is minimised without noise, and only what
    reads the attribute is noisy. That is far more accurate than hiding whole records, and far less private: use it
    where the table is known to whoever sees the model, but for one column. Features that go with the attribute still
    tell it; a column that is the attribute, or its declared source, is refused. Decisions never read the attribute.

    The method has no tolerance: it brings gaps towards 0 as far as multipliers of at most
    ``LagrangianDual(lambda_max=...)`` reach, and what comes out is measured. ``epsilon=math.inf`` is F-LD. Rows whose
    attribute is missing count for the loss, not for the groups.

    Parameters
    ----------
    constraint : parity or list of parities, optional
        Which gaps are brought to 0; None is ``DemographicParity()``. Accuracy parity is ``ErrorRateParity()``.
    epsilon, delta : float
        The privacy budget of each attribute; ``epsilon=math.inf`` gives the same algorithm without privacy.
    training : LagrangianDual, optional
        How to train; None is ``LagrangianDual()``, whose open numbers follow from public facts. Its own constraint is
        replaced by the one above.
    schema : Schema
        The public facts: bounds, categories, classes. Needed whenever epsilon is finite.
    sensitive : str or list of str
        The sensitive column or columns, which must not be features; several stand for their intersections.
    holdout : float
        Share of the units kept apart to measure accuracy and gap of those whose attribute is known (`evaluation_`).
    ledger : Ledger, optional
        The books of these people; None is the ledger of this process. Clones share it.
    random_state : int, Generator or None
        Public coins (initial weights, batches of features and labels); at epsilon = infinity it seeds everything.
        Noise is never seeded.

    Attributes
    ----------
    constraint_trace_ : ConstraintTrace
        The course of every gap and its multiplier over the steps; ``constraint_trace_.frame()`` to plot it.
    clip_norm_ : float
        The primal bound C_p that was used.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Guarantees
    ----------
    Fitted attributes and predictions together are (epsilon, delta)-differentially private for neighbours that differ in
    whether the sensitive attribute of one record (one person, if the schema names an id column) is known, all features
    and labels being the same; the change from one group to another is stated beside it
    (``epsilon_of(plan_.charges(), delta, NeighboringRelation.REPLACE_ONE)``). Nothing else is hidden. Assumes
    that nobody reads this process's memory. Timing is not covered. No gap is guaranteed.

    Examples
    --------
    >>> from fairveil import LagrangianClassifier, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = LagrangianClassifier(schema=people.schema.without("sex"), sensitive="sex").fit(people.X, people.y)
    >>> clf.plan_.unit
    'attribute sex of each record'
    """

    _protects = "attribute"

    def __init__(
        self,
        constraint: Constraint | Sequence[Constraint] | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        training: LagrangianDual | None = None,
        schema: Schema | None = None,
        sensitive: str | Sequence[str] | None = None,
        holdout: float = 0.0,
        ledger: Ledger | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(epsilon, delta, training, schema, sensitive, holdout, ledger, random_state)
        self.constraint = constraint

    def _recipe_for(self, front: Front) -> LagrangianDual:
        training = LagrangianDual() if self.training is None else self.training
        if not isinstance(training, LagrangianDual):
            raise InvalidParameterError(
                f"Expected training to be a LagrangianDual, got {type(training).__name__}; PrivateClassifier takes "
                "other recipes."
            )
        asked = DemographicParity() if self.constraint is None else self.constraint
        several = asked if isinstance(asked, Sequence) else (asked,)
        if any(isinstance(one, Parity) and one.tolerance for one in several):
            raise InvalidParameterError(
                "Expected parities without a tolerance, because gaps are brought towards 0 and not bounded, got one "
                "with it; leave it out (the knob is lambda_max)."
            )
        return replace(training, constraint=asked)

    def _keep(self, front: Front, trained: Trained) -> None:
        super()._keep(front, trained)
        self.constraint_trace_: ConstraintTrace | None = trained.fit.trace
        self.clip_norm_: float = trained.fit.sheet.clip_norm

    @classmethod
    def load(cls, folder: str | Path) -> "LagrangianClassifier":
        """Return a fitted rule from its folder; it predicts, and is not for fitting again (its ledger is sealed)."""
        rule = super().load(folder)
        rule.constraint_trace_, rule.clip_norm_ = None, math.nan
        return rule
