"""fairveil: classifiers that are differentially private and group-fair at once, with evidence.

The house, from the ground up (a room imports only from lower floors)::

    errors.py coins.py keyed.py _validate.py                                                  floor 0
    data/        files -> rows with stated public facts                                       floor 1
    privacy/     records in, noisy sums out, every crossing debited (the veil)                floor 1
    fairness/    histogram -> rates -> violations; counts -> gaps with intervals              floor 1
    models/      parameters + rows -> logits -> clipped gradient sums                         floor 1
    training/    veil + model + constraint + plan -> parameters                               floor 2
    postprocess/ veil of scores -> decision rule                                              floor 3
    certify/     noisy counts of a released rule -> claims with intervals; the statement      floor 3
    estimators/  the scikit-learn front, one file per method, and the front door              floor 4
    report/      a summary or a frontier -> one self-contained HTML page                      floor 6
    cli/         train predict certify explain frontier check ledger schema                   floor 7

To know whether fairveil is private, read `privacy/`, each model's `clipped_gradient`, and the two places that see one
row at a time: the encoder of `data/` and the row functions of `training/`.
Where a sensitive attribute alone is secret, `privacy/attribute.py` says what crosses without noise.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairveil.certify.holdout import Certificate
    from fairveil.data.datasets import Dataset, load_dataset
    from fairveil.data.schema import Category, Number, Schema, Sensitive, Target, Where
    from fairveil.data.synthetic import make_biased_mixture, make_separated_groups
    from fairveil.errors import FairveilError, ToleranceNotMet
    from fairveil.estimators.fair import FairClassifier
    from fairveil.estimators.functional import FunctionalClassifier
    from fairveil.estimators.groupwise import GroupwiseClassifier
    from fairveil.estimators.lagrangian import LagrangianClassifier
    from fairveil.estimators.parity import ParityPostprocessor
    from fairveil.estimators.private import PrivateClassifier
    from fairveil.estimators.randomized_parity import RandomizedParityPostprocessor
    from fairveil.estimators.rate_constrained import RateConstrainedClassifier
    from fairveil.estimators.smoothed import SmoothedClassifier
    from fairveil.fairness.cells import smallest_partition
    from fairveil.fairness.constraints import (
        DemographicParity,
        EqualizedOdds,
        ErrorRateParity,
        FalseNegativeRateCap,
        FalseNegativeRateParity,
        FalsePositiveRateCap,
        FalsePositiveRateParity,
        PrecisionParity,
        TruePositiveRateParity,
    )
    from fairveil.fairness.expressions import Rule
    from fairveil.keyed import Key
    from fairveil.postprocess.choices import FlipFitting, ParityFitting
    from fairveil.postprocess.dual_steps import DualSteps
    from fairveil.postprocess.flips import fewest_changes
    from fairveil.postprocess.noisy_descent import NoisyDescent
    from fairveil.postprocess.score_histogram import ScoreHistogram
    from fairveil.privacy.accounting import Neighbours
    from fairveil.privacy.ledger import Budget, Ledger, session_ledger
    from fairveil.report.frontier import frontier_of, frontier_page
    from fairveil.report.page import report_page
    from fairveil.training.descent import Descent
    from fairveil.training.functional import Functional
    from fairveil.training.groupwise import Finish, Groupwise
    from fairveil.training.lagrangian import LagrangianDual
    from fairveil.training.minimising import OutputPerturbation
    from fairveil.training.rate_constrained import RateConstrained
    from fairveil.training.smoothing import Smoothing
    from fairveil.training.stopping import Stopping
    from fairveil.training.tuning import Tuning

__version__ = "0.1.0"

_HOMES = {
    "Budget": "privacy.ledger",
    "Category": "data.schema",
    "Certificate": "certify.holdout",
    "Dataset": "data.datasets",
    "DemographicParity": "fairness.constraints",
    "Descent": "training.descent",
    "DualSteps": "postprocess.dual_steps",
    "EqualizedOdds": "fairness.constraints",
    "ErrorRateParity": "fairness.constraints",
    "FairClassifier": "estimators.fair",
    "FairveilError": "errors",
    "FalseNegativeRateCap": "fairness.constraints",
    "FalseNegativeRateParity": "fairness.constraints",
    "FalsePositiveRateCap": "fairness.constraints",
    "FalsePositiveRateParity": "fairness.constraints",
    "Finish": "training.groupwise",
    "FlipFitting": "postprocess.choices",
    "Functional": "training.functional",
    "FunctionalClassifier": "estimators.functional",
    "Groupwise": "training.groupwise",
    "GroupwiseClassifier": "estimators.groupwise",
    "Key": "keyed",
    "LagrangianClassifier": "estimators.lagrangian",
    "LagrangianDual": "training.lagrangian",
    "Ledger": "privacy.ledger",
    "Neighbours": "privacy.accounting",
    "NoisyDescent": "postprocess.noisy_descent",
    "Number": "data.schema",
    "OutputPerturbation": "training.minimising",
    "ParityFitting": "postprocess.choices",
    "ParityPostprocessor": "estimators.parity",
    "PrecisionParity": "fairness.constraints",
    "PrivateClassifier": "estimators.private",
    "RandomizedParityPostprocessor": "estimators.randomized_parity",
    "RateConstrained": "training.rate_constrained",
    "RateConstrainedClassifier": "estimators.rate_constrained",
    "Rule": "fairness.expressions",
    "Schema": "data.schema",
    "ScoreHistogram": "postprocess.score_histogram",
    "Sensitive": "data.schema",
    "SmoothedClassifier": "estimators.smoothed",
    "Smoothing": "training.smoothing",
    "Stopping": "training.stopping",
    "Target": "data.schema",
    "ToleranceNotMet": "errors",
    "TruePositiveRateParity": "fairness.constraints",
    "Tuning": "training.tuning",
    "Where": "data.schema",
    "fewest_changes": "postprocess.flips",
    "frontier_of": "report.frontier",
    "frontier_page": "report.frontier",
    "load_dataset": "data.datasets",
    "make_biased_mixture": "data.synthetic",
    "make_separated_groups": "data.synthetic",
    "report_page": "report.page",
    "session_ledger": "privacy.ledger",
    "smallest_partition": "fairness.cells",
}

__all__ = [
    "Budget",
    "Category",
    "Certificate",
    "Dataset",
    "DemographicParity",
    "Descent",
    "DualSteps",
    "EqualizedOdds",
    "ErrorRateParity",
    "FairClassifier",
    "FairveilError",
    "FalseNegativeRateCap",
    "FalseNegativeRateParity",
    "FalsePositiveRateCap",
    "FalsePositiveRateParity",
    "Finish",
    "FlipFitting",
    "Functional",
    "FunctionalClassifier",
    "Groupwise",
    "GroupwiseClassifier",
    "Key",
    "LagrangianClassifier",
    "LagrangianDual",
    "Ledger",
    "Neighbours",
    "NoisyDescent",
    "Number",
    "OutputPerturbation",
    "ParityFitting",
    "ParityPostprocessor",
    "PrecisionParity",
    "PrivateClassifier",
    "RandomizedParityPostprocessor",
    "RateConstrained",
    "RateConstrainedClassifier",
    "Rule",
    "Schema",
    "ScoreHistogram",
    "Sensitive",
    "SmoothedClassifier",
    "Smoothing",
    "Stopping",
    "Target",
    "ToleranceNotMet",
    "TruePositiveRateParity",
    "Tuning",
    "Where",
    "__version__",
    "fewest_changes",
    "frontier_of",
    "frontier_page",
    "load_dataset",
    "make_biased_mixture",
    "make_separated_groups",
    "report_page",
    "session_ledger",
    "smallest_partition",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `fairveil --help` does not wait for scikit-learn."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fairveil' has no attribute {name!r}")
    value = getattr(import_module(f"fairveil.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
