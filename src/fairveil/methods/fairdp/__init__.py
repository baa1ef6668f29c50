"""GroupwiseClassifier: groups trained side by side into one private model whose last layer is held to a norm."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sklearn.utils.validation import check_is_fitted

from fairveil.certificates import certify_measured, check_confidence
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import (
    Constraint,
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRateParity,
    FalsePositiveRateParity,
    Parity,
    TruePositiveRateParity,
    constrain,
)
from fairveil.fairness.evaluation import Evaluation
from fairveil.methods.base import BasePrivateClassifier, Method, training_of
from fairveil.methods.fairdp.early_stopping import StoppingCheck
from fairveil.methods.fairdp.noise_certificate import (
    FAILURE,
    HALF,
    GroupwiseFit,
    LastStep,
    NoiseCertificate,
    SmoothSums,
    Statement,
    batch_bound,
    finite_models_gap,
    several_estimate,
    several_limit,
    smooth_gap,
    smooth_statement,
    worst_case_gap,
    worst_case_statement,
)
from fairveil.methods.fairdp.recipe import Groupwise
from fairveil.methods.inputs import InputSpec
from fairveil.models.last_layer import check_layered, last_layer_size
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

NO_CHECK_PASSED = (
    "Expected the bounds of early stopping to hold at some check, got none, so the last model was kept; "
    "choose a looser bound, or use ParityPostprocessor or RateConstrainedClassifier, which keep one."
)


class GroupwiseClassifier(BasePrivateClassifier):
    """A private classifier with equally weighted groups and a bounded last layer: FairDP (Tran et al. 2023).

    The method has no tolerance: `Groupwise(norm_bound=...)` is its knob, and the gap is what comes out. Its noise
    certificates are averages over the training noise and say nothing of the one model that is released
    (`noise_certificate`); what holds for that model is measured on the hold-out.

    Parameters
    ----------
    {epsilon, delta}
    training : Groupwise, optional
        How to train; None is ``Groupwise()``.
    {schema}
    sensitive : str or list of str
        The sensitive column or columns whose groups are trained side by side; several stand for their intersections.
        People of no known group take no part in training.
    {holdout}
    {ledger}
    {random_state}
    {auc}

    Attributes
    ----------
    last_step_ : LastStep or None
        The public and released numbers of the last step.
    stopping_checks_ : tuple of StoppingCheck
        The results of the early-stopping checks, in order; empty without early stopping.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Notes
    -----
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

    not_saved = ("last_step_", "_smooth_sums")

    def _recipe(self, inputs: InputSpec) -> Groupwise:
        return training_of(self, Groupwise)

    def _store(self, inputs: InputSpec, trained: Trained) -> None:
        super()._store(inputs, trained)
        fit = trained.fit
        self.last_step_: LastStep | None = fit.last_step if isinstance(fit, GroupwiseFit) else None
        recipe = self._recipe(inputs)
        self._norm_bound, self._thresholds = recipe.largest_norm, recipe.thresholds
        self._smooth_sums: SmoothSums | None = trained.evidence

    @property
    def stopping_checks_(self) -> tuple[StoppingCheck, ...]:
        """The results of the early-stopping checks, in order; empty without early stopping."""
        return () if self.last_step_ is None else self.last_step_.checks

    def cautions(self) -> list[str]:
        """Return what users must know about this fitted classifier, in whole sentences."""
        checks = self.stopping_checks_
        failed = bool(checks) and not any(check.passed for check in checks)
        return [*super().cautions(), *([NO_CHECK_PASSED] if failed else [])]

    def noise_statements(self, constraints: Sequence[Constraint], confidence: float) -> list[dict[str, Any]]:
        """Return FairDP's statements over the training noise; only ever beside the certificate of the model."""
        parities = [one for one in constraints if isinstance(one, RATES_OF_CLASS_1)]
        if not self.has_noise_certificate or not parities:
            return []
        return [
            statement
            for threshold in (HALF, *self._thresholds)
            for statement in self.noise_certificate(parities, confidence, threshold).to_dict()["statements"]
        ]

    @property
    def has_noise_certificate(self) -> bool:
        """Whether two classes were trained here and people were held out, so that both kinds of evidence are there."""
        check_is_fitted(self, "params_")
        return self._smooth_sums is not None and self.evaluation_ is not None

    def noise_certificate(
        self,
        constraint: Parity | Sequence[Parity] | None = None,
        confidence: float = 0.95,
        threshold: float = 0.5,
    ) -> NoiseCertificate:
        """Return FairDP's certificates over the training noise, beside what holds for the released model.

        Parameters
        ----------
        constraint : parity or sequence of parities, optional
            Which gap is meant, hence among whom decisions are compared; None is demographic parity. Its tolerance does
            not matter. Of several parities, each has an estimate of its own.
        confidence : float
            Of the certificate of the released model.
        threshold : float
            The probability above which class 1 is decided: 0.5, or one of the thresholds that the training planned. The
            certificate of the released model is about `predict`, which decides at 0.5.
        """
        check_confidence(confidence)
        last, sums, evaluation = self._evidence()
        parities = DemographicParity() if constraint is None else constraint
        several = parities if isinstance(parities, Sequence) else (parities,)
        if not several or not all(isinstance(one, RATES_OF_CLASS_1) and one.ratio is None for one in several):
            names = ", ".join(kind.__name__ for kind in RATES_OF_CLASS_1)
            raise InvalidParameterError(
                f"Expected differences in how often class 1 is decided ({names}), got another bound; the theorems are "
                "about these."
            )
        own = sums.at(threshold)
        if own is None:
            raise InvalidParameterError(
                f"Expected a planned threshold ({', '.join(f'{one:g}' for one in (HALF, *sums.others))}), got "
                f"{threshold!r}; fit with Groupwise(thresholds=...)."
            )
        statements = self._statements(last, own, evaluation, several, threshold)
        return NoiseCertificate(tuple(statements), certify_measured(evaluation, parities, confidence))

    def _statements(
        self, last: LastStep, sums: SmoothSums, evaluation: Evaluation, several: Sequence[Parity], threshold: float
    ) -> list[Statement]:
        n_models = max(1, len(last.several))
        everyone, rate = self._sampled(last)
        n_batch = batch_bound(everyone, rate / n_models)  # a random number picks one of the models
        step = (self._norm_bound, last.learning_rate, last.reach, n_batch, last.noise_std)
        rule = (threshold, last_layer_size(check_layered(self.model_)))
        statements = []
        if sums.of_several is None and last.is_unwatched:
            statements.append(worst_case_statement(worst_case_gap(*step, *rule), n_batch).at("", threshold))
        for parity in several:
            bounds, event = constrain(parity, evaluation.people), parity.name if len(several) > 1 else ""
            found = [smooth_statement(*smooth_gap(bounds, evaluation, sums.smooth, sums.noise_std))]
            if sums.of_several is not None:
                shares = smooth_gap(bounds, evaluation, sums.of_several, sums.noise_std)
                found.append(several_estimate(*shares, n_models))
            statements += [replace(one.at(event, threshold), event=parity.name) for one in found]
        if sums.of_several is not None:
            statements.append(several_limit(finite_models_gap(*step, n_models, *rule), n_models).at("", threshold))
        return statements

    def _evidence(self) -> tuple[LastStep, SmoothSums, Any]:
        if not self.has_noise_certificate:
            raise InvalidParameterError(
                "Expected a classifier of two classes fitted here with people held out, got none: certificates over "
                "the training noise are shown beside that of the released model; fit with holdout=0.15."
            )
        return self.last_step_, self._smooth_sums, self.evaluation_  # type: ignore[return-value]

    def _sampled(self, last: LastStep) -> tuple[float, float]:
        """Return how many people there are at most, and with what probability each is in the last batch."""
        plan = self.plan_
        shares = plan.shares if isinstance(plan, Plan) else {}
        share = shares.get("train", 1.0)
        everyone = last.size / share
        noisy = [part for part in getattr(plan, "stages", ()) if part.name == "size"]
        if noisy:  # more than this below the true size a discrete Laplace falls with probability below FAILURE
            everyone += noisy[0].releases[0].noise_multiplier * math.log(1 / FAILURE)
        return everyone, share * last.sampling_rate


FAIRDP = Method(
    name="fairdp",
    title="groups trained side by side, with certificates over the training noise",
    paper="Tran et al. 2023",
    help="groups trained side by side, the gap is measured",
    estimator=GroupwiseClassifier,
    recipe=Groupwise,
    bounds_gap=False,
    knob="norm_bound",
    knob_help="the largest norm of the last layer; small values select few people [default: 10, mlp 1.5]",
    default_model="mlp",
    models=("linear", "mlp"),
    color=4,
)
