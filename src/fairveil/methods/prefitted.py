"""A classifier that was fitted elsewhere: what it says of rows, in the order of the schema's classes."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil.data.values import canonical_text
from fairveil.errors import BadStructureError, InvalidParameterError


@dataclass(frozen=True, eq=False)
class PrefittedClassifier:
    """A fitted probabilistic classifier and where it keeps each class."""

    classifier: Any
    columns: tuple[int, ...]

    def probabilities(self, X: Any) -> NDArray[np.float32]:
        """Return the probabilities of each row, one column a class of the schema.

        They come from somebody else's code: that it answers each row by itself, and does not fail on a value, is an
        assumption of the guarantee.
        """
        if len(X) == 0:
            return np.empty((0, len(self.columns)), dtype=np.float32)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter(
                "ignore"
            )  # a warning about a value would be an output that one record decides
            answers = np.asarray(self.classifier.predict_proba(X), dtype=np.float64)
        if answers.ndim != 2 or answers.shape[1] <= max(self.columns):
            raise BadStructureError(
                f"Expected one probability for each of {len(self.columns)} classes, got an array of shape "
                f"{answers.shape}."
            )
        return answers[:, list(self.columns)].astype(np.float32)


def prefitted_classifier(classifier: Any, classes: tuple[str, ...]) -> PrefittedClassifier:
    """Return a fitted classifier made ready; refuse one that is not fitted or knows other classes."""
    if not hasattr(classifier, "predict_proba"):
        raise InvalidParameterError(
            f"Expected a classifier with predict_proba, got {type(classifier).__name__}; calibrate it first "
            "(CalibratedClassifierCV)."
        )
    if not hasattr(classifier, "classes_"):
        raise InvalidParameterError(
            f"Expected a fitted classifier, got a {type(classifier).__name__} that is not; fit it on rows of its own "
            "(and wrap it in FrozenEstimator where clones are made), or hand over Descent() to train one here."
        )
    known = [canonical_text(name) for name in classifier.classes_]
    if sorted(map(str, known)) != sorted(classes):
        raise BadStructureError(
            f"Expected a classifier of the schema's classes {list(classes)}, got one of {known}; edit [target]."
        )
    return PrefittedClassifier(classifier, tuple(known.index(name) for name in classes))
