"""fairveil: classifiers that are differentially private and group-fair at once, with evidence.

Packages, each of which imports only from those above it::

    errors.py _random.py _random.py _validation.py _typing.py
    data/          files -> encoded rows, from declared public facts
    accounting/    numbers -> (epsilon, delta); never sees data
    fairness/      counts -> rates -> constraints -> evaluation
    models/        parameters + rows -> logits, clipped gradient sums, decision rules
    privacy/       the veil, the only code that sees a record; plan and ledger
    scale/         rows on disk, mapped into memory, and on Ray workers
    training/      plan + records -> released fit, whatever the method
    persistence.py
    methods/       one module or package per method, and the registry
    research/      the papers' own forms and baselines, for comparison
    audit/         games on real veils -> lower bounds on epsilon, beside the claim
    certificates.py  noisy counts of a released rule -> claims with confidence
    request.py summary.py fair_classifier.py
    report/        summary -> text and HTML
    display.py     plots of certificates and frontiers
    bench/         many fits on the same rows -> frontiers, paired tests, tables
    cli/           one file per command

docs/assurance/trusted-base.md lists the code that must be trusted for a privacy guarantee to hold.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairveil._random import Key
    from fairveil.accounting.composition import NeighboringRelation
    from fairveil.certificates import Certificate
    from fairveil.data.datasets import Dataset, load_dataset, make_biased_mixture, make_separated_groups
    from fairveil.data.drafting import draft_schema
    from fairveil.data.images import load_celeba, load_image_folder
    from fairveil.data.schema import Category, Number, Schema, Sensitive, Target, TextFile, Where
    from fairveil.display import CertificateDisplay, FrontierDisplay
    from fairveil.errors import (
        FairveilError,
        MemoryLedgerWarning,
        SmallTableWarning,
        ToleranceNotMetWarning,
        UnknownGroupWarning,
        UnpricedSearchWarning,
    )
    from fairveil.fair_classifier import FairClassifier
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
    from fairveil.fairness.rates import smallest_partition
    from fairveil.fairness.rule_parser import Rule
    from fairveil.methods.decoupled_parity import FlipTraining, RandomizedParityPostprocessor, fewest_changes
    from fairveil.methods.dp2dp import ParityPostprocessor, ParityTraining
    from fairveil.methods.dp2dp.dual_steps import DualSteps
    from fairveil.methods.dp2dp.thresholds import ScoreHistogram
    from fairveil.methods.dp_sgd import Descent, PrivateClassifier
    from fairveil.methods.fairdp import GroupwiseClassifier
    from fairveil.methods.fairdp.early_stopping import EarlyStopping
    from fairveil.methods.fairdp.recipe import FinalSteps, Groupwise
    from fairveil.methods.fermi import FermiClassifier
    from fairveil.methods.fermi.recipe import Fermi
    from fairveil.methods.functional import FunctionalClassifier
    from fairveil.methods.functional.recipe import Functional
    from fairveil.methods.output_perturbation import OutputPerturbation
    from fairveil.methods.pf_ld import LagrangianClassifier
    from fairveil.methods.pf_ld.recipe import LagrangianDual
    from fairveil.methods.raco import RateConstrainedClassifier
    from fairveil.methods.raco.recipe import RateConstrained
    from fairveil.models.resnet import group_norm_resnet
    from fairveil.models.torch_module import TorchModel
    from fairveil.privacy.ledger import Budget, Ledger, session_ledger
    from fairveil.report.card import model_card
    from fairveil.report.frontier import frontier_of, frontier_page
    from fairveil.report.page import report_page
    from fairveil.research.dp2dp_forms import NoisyDescent
    from fairveil.research.fair_smooth import SmoothedClassifier, Smoothing
    from fairveil.training.features import FeatureDesign
    from fairveil.training.tuning import Tuning

__version__ = "0.1.0"

_HOMES = {
    "Budget": "privacy.ledger",
    "Category": "data.schema",
    "Certificate": "certificates",
    "CertificateDisplay": "display",
    "Dataset": "data.datasets",
    "DemographicParity": "fairness.constraints",
    "Descent": "methods.dp_sgd",
    "FeatureDesign": "training.features",
    "DualSteps": "methods.dp2dp.dual_steps",
    "EqualizedOdds": "fairness.constraints",
    "ErrorRateParity": "fairness.constraints",
    "FairClassifier": "fair_classifier",
    "FairveilError": "errors",
    "FalseNegativeRateCap": "fairness.constraints",
    "FalseNegativeRateParity": "fairness.constraints",
    "FalsePositiveRateCap": "fairness.constraints",
    "FalsePositiveRateParity": "fairness.constraints",
    "Fermi": "methods.fermi.recipe",
    "FermiClassifier": "methods.fermi",
    "FinalSteps": "methods.fairdp.recipe",
    "FlipTraining": "methods.decoupled_parity",
    "FrontierDisplay": "display",
    "Functional": "methods.functional.recipe",
    "FunctionalClassifier": "methods.functional",
    "Groupwise": "methods.fairdp.recipe",
    "GroupwiseClassifier": "methods.fairdp",
    "Key": "_random",
    "LagrangianClassifier": "methods.pf_ld",
    "LagrangianDual": "methods.pf_ld.recipe",
    "Ledger": "privacy.ledger",
    "NeighboringRelation": "accounting.composition",
    "NoisyDescent": "research.dp2dp_forms",
    "Number": "data.schema",
    "OutputPerturbation": "methods.output_perturbation",
    "ParityTraining": "methods.dp2dp",
    "ParityPostprocessor": "methods.dp2dp",
    "PrecisionParity": "fairness.constraints",
    "PrivateClassifier": "methods.dp_sgd",
    "RandomizedParityPostprocessor": "methods.decoupled_parity",
    "RateConstrained": "methods.raco.recipe",
    "RateConstrainedClassifier": "methods.raco",
    "Rule": "fairness.rule_parser",
    "Schema": "data.schema",
    "ScoreHistogram": "methods.dp2dp.thresholds",
    "Sensitive": "data.schema",
    "SmoothedClassifier": "research.fair_smooth",
    "Smoothing": "research.fair_smooth",
    "EarlyStopping": "methods.fairdp.early_stopping",
    "Target": "data.schema",
    "TextFile": "data.schema",
    "MemoryLedgerWarning": "errors",
    "SmallTableWarning": "errors",
    "ToleranceNotMetWarning": "errors",
    "TorchModel": "models.torch_module",
    "TruePositiveRateParity": "fairness.constraints",
    "Tuning": "training.tuning",
    "UnknownGroupWarning": "errors",
    "UnpricedSearchWarning": "errors",
    "Where": "data.schema",
    "draft_schema": "data.drafting",
    "fewest_changes": "methods.decoupled_parity",
    "frontier_of": "report.frontier",
    "frontier_page": "report.frontier",
    "group_norm_resnet": "models.resnet",
    "load_celeba": "data.images",
    "load_dataset": "data.datasets",
    "load_image_folder": "data.images",
    "make_biased_mixture": "data.datasets",
    "make_separated_groups": "data.datasets",
    "model_card": "report.card",
    "report_page": "report.page",
    "session_ledger": "privacy.ledger",
    "smallest_partition": "fairness.rates",
}

__all__ = [
    "Budget",
    "Category",
    "Certificate",
    "CertificateDisplay",
    "Dataset",
    "DemographicParity",
    "Descent",
    "DualSteps",
    "EarlyStopping",
    "EqualizedOdds",
    "ErrorRateParity",
    "FairClassifier",
    "FairveilError",
    "FalseNegativeRateCap",
    "FalseNegativeRateParity",
    "FalsePositiveRateCap",
    "FalsePositiveRateParity",
    "FeatureDesign",
    "Fermi",
    "FermiClassifier",
    "FinalSteps",
    "FlipTraining",
    "FrontierDisplay",
    "Functional",
    "FunctionalClassifier",
    "Groupwise",
    "GroupwiseClassifier",
    "Key",
    "LagrangianClassifier",
    "LagrangianDual",
    "Ledger",
    "MemoryLedgerWarning",
    "NeighboringRelation",
    "NoisyDescent",
    "Number",
    "OutputPerturbation",
    "ParityPostprocessor",
    "ParityTraining",
    "PrecisionParity",
    "PrivateClassifier",
    "RandomizedParityPostprocessor",
    "RateConstrained",
    "RateConstrainedClassifier",
    "Rule",
    "Schema",
    "ScoreHistogram",
    "Sensitive",
    "SmallTableWarning",
    "SmoothedClassifier",
    "Smoothing",
    "Target",
    "TextFile",
    "ToleranceNotMetWarning",
    "TorchModel",
    "TruePositiveRateParity",
    "Tuning",
    "UnknownGroupWarning",
    "UnpricedSearchWarning",
    "Where",
    "__version__",
    "draft_schema",
    "fewest_changes",
    "frontier_of",
    "frontier_page",
    "group_norm_resnet",
    "load_celeba",
    "load_dataset",
    "load_image_folder",
    "make_biased_mixture",
    "make_separated_groups",
    "model_card",
    "report_page",
    "session_ledger",
    "smallest_partition",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `fairveil --help` does not wait for scikit-learn."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fairveil' has no attribute {name!r}")
    value = getattr(import_module(f"fairveil.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
