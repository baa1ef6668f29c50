"""A fitted model and its rule: rows in, decisions and their law out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil._keys import Key, uniforms_of_rows
from fairveil._typing import Float32Array
from fairveil.errors import BadStructureError, InvalidParameterError
from fairveil.methods.inputs import Front
from fairveil.models.base import Model
from fairveil.models.rules import DecisionRule, label_probabilities


@dataclass(frozen=True, eq=False)
class Predictor:
    """Everything that a decision depends on; all of it is public but the key."""

    front: Front
    model: Model
    params: Float32Array
    rule: DecisionRule
    key: Key | None = None

    def decide(self, X: Any, sensitive_features: Any = None, record_ids: Any = None) -> NDArray[np.integer]:
        """Return a class code for each row; the same record and key give the same answer."""
        groups = self._groups(X, sensitive_features)
        uniforms = self._lots(X, record_ids) if self.rule.needs_uniforms else np.zeros((2, len(groups)))
        return self.rule.decide(self._logits(X, groups), groups, uniforms)

    def probabilities(self, X: Any, sensitive_features: Any = None) -> NDArray[np.float64]:
        """Return the law of a rule that draws lots, else the model's probability of each class, one row a record."""
        if self.rule.is_random:
            return self.distribution(X, sensitive_features)
        logits = self._logits(X, self._groups(X, sensitive_features))
        return label_probabilities(logits, self.front.people.n_classes).T

    def distribution(self, X: Any, sensitive_features: Any = None) -> NDArray[np.float64]:
        """Return the probability of each decision, one row a record."""
        groups = self._groups(X, sensitive_features)
        return self.rule.distribution(self._logits(X, groups), groups)

    def _groups(self, X: Any, sensitive_features: Any) -> NDArray[np.integer]:
        if self.rule.reads_group or self.front.predicts == "decoupled":
            return self.front.groups(X, sensitive_features)
        return np.zeros(len(X), dtype=np.int64)

    def _logits(self, X: Any, groups: NDArray[Any]) -> NDArray[Any]:
        # In double precision a row's answer does not depend on how many rows are asked for with it.
        params: Any = self.params.astype(np.float64)
        return self.model.logits(params, self.front.rows(X, groups).astype(np.float64))

    def _lots(self, X: Any, record_ids: Any) -> NDArray[np.float64]:
        """Return two keyed numbers for each row: of its id where there is one, else of what the schema reads of it."""
        if self.key is None:
            raise InvalidParameterError(
                "Expected the key that decides lots, got none; hand over its file with use_key(path) or --key, or make "
                "one with Key.create(path)."
            )
        encoder, schema = self.front.encoder, self.front.schema
        uniforms = uniforms_of_rows(self.key, _bytes_of(encoder.codes(X), encoder.numbers(X)))
        name = schema.id_column
        if record_ids is None and name is not None and isinstance(X, pd.DataFrame) and name in X.columns:
            record_ids = X[name]
        if record_ids is None:
            return uniforms
        persons = encoder.persons(record_ids)
        if len(persons) != uniforms.shape[1]:
            raise BadStructureError(
                f"Expected one id for each of {uniforms.shape[1]} rows, got {len(persons)}; name every record."
            )
        return np.where(persons >= 0, uniforms_of_rows(self.key, persons[:, None]), uniforms)


def _bytes_of(codes: NDArray[np.uint16], numbers: NDArray[np.float32]) -> NDArray[np.uint8]:
    parts = [codes, numbers + np.float32(0)]  # 0 and -0 are one number
    return np.hstack(
        [
            np.ascontiguousarray(part).view(np.uint8).reshape(len(codes), part.shape[1] * part.dtype.itemsize)
            for part in parts
        ]
    )
