"""GroupwiseClassifier: groups trained side by side into one private model whose last layer is held to a norm."""

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairveil.certificates.holdout import certify_measured, check_confidence
from fairveil.errors import InvalidParameterError, ToleranceNotMetWarning
from fairveil.fairness.constraints import (
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRateParity,
    FalsePositiveRateParity,
    Parity,
    TruePositiveRateParity,
    constrain,
)
from fairveil.methods.base import PrivateClassifier
from fairveil.methods.fairdp.early_stopping import StoppingCheck
from fairveil.methods.fairdp.noise_certificate import (
    FAILURE,
    LastStep,
    NoiseCertificate,
    SmoothSums,
    batch_bound,
    finite_models_gap,
    several_statements,
    smooth_gap,
    smooth_statement,
    worst_case_gap,
    worst_case_statement,
)
from fairveil.methods.fairdp.recipe import Groupwise
from fairveil.methods.inputs import Front
from fairveil.privacy.plan import Plan
from fairveil.training.run import Trained

RATES_OF_CLASS_1 = (
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRateParity,
    FalsePositiveRateParity,
    TruePositiveRateParity,
)
"""What statements over the training noise can be about: how often class 1 is decided, of everyone or of one label."""

NO_LOOK_PASSED = (
    "Expected the bounds of the stopping rule to be seen to hold at some look, got none, so the last model was kept; "
    "ask for a looser bound, or use ParityPostprocessor or RateConstrainedClassifier, which keep one."
)


class GroupwiseClassifier(PrivateClassifier):
    """A private classifier in which groups count alike and the last layer is bounded: FairDP (Tran et al. 2023).

    The method has no tolerance: `Groupwise(norm_bound=...)` is its knob, and the gap is what comes out. Its noise
    certificates are averages over the training noise and say nothing of the one model that is released
    (`noise_certificate`); what holds for that model is measured on the hold-out.

    Parameters
    ----------
    epsilon, delta : float
        The privacy budget; ``epsilon=math.inf`` gives the same algorithm without privacy.
    training : Groupwise, optional
        How to train; None is ``Groupwise()``.
    schema : Schema
        The public facts: bounds, categories, classes, optionally the size. Needed whenever epsilon is finite.
    sensitive : str or list of str
        The sensitive column or columns whose groups are trained side by side; several stand for their intersections.
        People of no known group take no part in training.
    holdout : float
        Share of the units kept apart by secret coins to measure accuracy and gap privately (`evaluation_`).
    ledger : Ledger, optional
        The books of these people; None is the ledger of this process. Clones share it.
    random_state : int, Generator or None
        Public coins (initial weights); at epsilon = infinity it seeds everything. Noise is never seeded.

    Attributes
    ----------
    last_step_ : LastStep or None
        The public and released numbers of the last step.
    looks_ : tuple of StoppingCheck
        What a stopping rule saw, look by look; empty without one.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Guarantees
    ----------
    Fitted attributes and predictions together are (epsilon, delta)-differentially private: neighbours differ by one
    record (one person, if the schema names an id column) added or removed. Assumes that the schema's facts are public
    and that nobody reads this process's memory. Timing is not covered. No gap is guaranteed.

    Examples
    --------
    >>> from fairveil import Descent, Groupwise, GroupwiseClassifier, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = GroupwiseClassifier(training=Groupwise(Descent()), schema=people.schema, sensitive="sex", holdout=0.15)
    >>> clf.fit(people.X, people.y).noise_certificate().statements[0].about
    'over the training noise, not for this model'
    """

    def _recipe_for(self, front: Front) -> Groupwise:
        training = Groupwise() if self.training is None else self.training
        if not isinstance(training, Groupwise):
            raise InvalidParameterError(
                f"Expected training to be a Groupwise, got {type(training).__name__}; PrivateClassifier takes other "
                "recipes."
            )
        return training

    def _keep(self, front: Front, trained: Trained) -> None:
        super()._keep(front, trained)
        self.last_step_: LastStep | None = trained.fit.sheet
        self.looks_: tuple[StoppingCheck, ...] = trained.fit.sheet.looks
        self._norm_bound = self._recipe_for(front).largest_norm
        self._smooth_sums: SmoothSums | None = trained.evidence
        if self.looks_ and not any(look.passed for look in self.looks_):
            warnings.warn(NO_LOOK_PASSED, ToleranceNotMetWarning, stacklevel=4)

    @property
    def has_noise_certificate(self) -> bool:
        """Whether two classes were trained here and people were held out, so that both kinds of evidence are there."""
        return getattr(self, "_smooth_sums", None) is not None and self.evaluation_ is not None

    def noise_certificate(
        self, constraint: Parity | Sequence[Parity] | None = None, confidence: float = 0.95
    ) -> NoiseCertificate:
        """Return FairDP's certificates over the training noise, beside what holds for the released model.

        Parameters
        ----------
        constraint : parity or sequence of parities, optional
            Which gap is meant; None is demographic parity. Its tolerance does not matter.
        confidence : float
            Of the certificate of the released model.
        """
        check_confidence(confidence)
        last, sums, evaluation = self._evidence()
        asked = DemographicParity() if constraint is None else constraint
        several = asked if isinstance(asked, Sequence) else (asked,)
        if not several or not all(isinstance(one, RATES_OF_CLASS_1) and one.ratio is None for one in several):
            names = ", ".join(kind.__name__ for kind in RATES_OF_CLASS_1)
            raise InvalidParameterError(
                f"Expected differences in how often class 1 is decided ({names}), got another bound; the theorems are "
                "about these."
            )
        bounds = constrain(asked, evaluation.people)
        statements = [smooth_statement(*smooth_gap(bounds, evaluation, sums.smooth, sums.noise_std))]
        n_models = max(1, len(last.several))
        everyone, rate = self._sampled(last)
        n_batch = batch_bound(everyone, rate / n_models)  # each lot picks one of the models
        step = (self._norm_bound, last.learning_rate, last.reach, n_batch, last.noise_std)
        if sums.of_several is not None:
            found = smooth_gap(bounds, evaluation, sums.of_several, sums.noise_std)
            statements += several_statements(*found, finite_models_gap(*step, n_models), n_models)
        elif last.is_unwatched:
            statements.insert(0, worst_case_statement(worst_case_gap(*step), n_batch))
        return NoiseCertificate(tuple(statements), certify_measured(evaluation, asked, confidence))

    def _evidence(self) -> tuple[LastStep, SmoothSums, Any]:
        last, sums = getattr(self, "last_step_", None), getattr(self, "_smooth_sums", None)
        if last is None or sums is None or not self.has_noise_certificate:
            raise InvalidParameterError(
                "Expected a classifier of two classes fitted here with people held out, got none: certificates over "
                "the training noise are shown beside that of the released model; fit with holdout=0.15."
            )
        return last, sums, self.evaluation_

    def _sampled(self, last: LastStep) -> tuple[float, float]:
        """Return how many people there are at most, and with what probability each is in the last batch."""
        plan = self.plan_
        shares = plan.shares if isinstance(plan, Plan) else {}
        share = shares.get("train", 1.0)
        everyone = last.size / share
        noisy = [part for part in getattr(plan, "stages", ()) if part.name == "size"]
        if (
            noisy
        ):  # more than this below the true size a discrete Laplace falls with probability below FAILURE
            everyone += noisy[0].releases[0].noise_multiplier * math.log(1 / FAILURE)
        return everyone, share * last.sampling_rate

    @classmethod
    def load(cls, folder: str | Path) -> "GroupwiseClassifier":
        """Return a fitted rule from its folder; it predicts, and is not for fitting again (its ledger is sealed)."""
        rule = super().load(folder)
        rule.last_step_, rule.looks_ = None, ()
        return rule
