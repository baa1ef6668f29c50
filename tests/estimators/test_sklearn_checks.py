"""scikit-learn's own checks at epsilon = infinity, with every exception in one table."""

import math

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairveil import (
    Descent,
    DualSteps,
    FairClassifier,
    FalsePositiveRateCap,
    ParityFitting,
    ParityPostprocessor,
    PrivateClassifier,
    RateConstrained,
    RateConstrainedClassifier,
)

EXCEPTIONS: dict[str, str] = {}


def expected_failures(_estimator):
    return EXCEPTIONS


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        PrivateClassifier(epsilon=math.inf, training=Descent(sampling_rate=1.0)),
        RateConstrainedClassifier(
            FalsePositiveRateCap(0.5), math.inf, training=RateConstrained(descent=Descent(sampling_rate=1.0))
        ),
        ParityPostprocessor(Descent(sampling_rate=1.0), FalsePositiveRateCap(0.5), math.inf),
        ParityPostprocessor(
            Descent(sampling_rate=1.0),
            FalsePositiveRateCap(0.5),
            math.inf,
            fitting=ParityFitting(solver=DualSteps()),
        ),
        *(
            FairClassifier(
                FalsePositiveRateCap(0.5),
                math.inf,
                aware=False,
                estimator=Descent(sampling_rate=1.0),
                holdout=holdout,
            )
            for holdout in (0.15, 0)
        ),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)
