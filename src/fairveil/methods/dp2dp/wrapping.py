"""What post-processors share: a base that is trained here or was fitted elsewhere, and a rule with its key."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fairveil._keys import Key
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.methods.dp2dp.recipe import PrefittedScores
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.inputs import Front
from fairveil.methods.output_perturbation import OutputPerturbation
from fairveil.methods.predictor import Predictor
from fairveil.methods.prefitted import prefitted_classifier
from fairveil.models import PrefittedProbabilities
from fairveil.training.recipe import Recipe

_RECIPES = (Descent, OutputPerturbation)


def base_recipe(estimator: Any) -> Recipe:
    """Return how probabilities come about: training here, or none."""
    if estimator is None:
        return Descent()
    return estimator if isinstance(estimator, _RECIPES) else PrefittedScores()


def wrapped_front(front: Front, estimator: Any, predicts: str) -> Front:
    """Return the public side with the sensitive columns declared; a joint model has none of them as an input."""
    given = None
    if estimator is not None and not isinstance(estimator, _RECIPES):
        given = prefitted_classifier(estimator, front.schema.target.classes)
    schema = _declared(front)
    if predicts == "joint":
        schema = schema.without(*(e.column for e in front.sensitive if e.column in schema.columns))
    return replace(front, schema=schema, predicts=predicts, given=given)


def _declared(front: Front) -> Schema:
    named = [entry.column for entry in front.sensitive]
    others = (entry for entry in front.schema.sensitive if entry.column not in named)
    return front.schema.model_copy(update={"sensitive": (*front.sensitive, *others)})


def coverage(front: Front) -> str:
    """Return in one sentence each what the guarantee covers and what it does not."""
    unit = front.task.unit
    if front.given is None:
        return f"Covered: training and rule, for one {unit} of the rows handed to fit. Not covered: timing."
    return (
        f"Covered: the rule, for one {unit} of the rows handed to fit. Not covered: how the "
        f"{type(front.given.classifier).__name__} was trained, an error it raises on a value, and timing."
    )


def keyed_rule(decider: Predictor, key: Key | str | Path | None) -> Predictor:
    """Return the decider with another key, read from its file where a path is given."""
    return replace(decider, key=key if isinstance(key, Key) or key is None else Key.read(key))


def load_decider(rule: Any, estimator: Any) -> Predictor:
    """Return the decider of a rule that was just read from its folder."""
    schema, is_wrapped = rule.schema_, isinstance(rule.model_, PrefittedProbabilities)
    if is_wrapped and estimator is None:
        raise InvalidParameterError(
            "Expected the classifier that this rule was fitted to, got none; load it and hand it over as estimator."
        )
    given = prefitted_classifier(estimator, schema.target.classes) if is_wrapped else None
    entries = tuple(schema.sensitive_named(name) for name in rule.sensitive)
    front = Front(schema, entries, rule.epsilon, rule.delta, rule._predicts, given)
    return Predictor(front, rule.model_, rule.params_, rule.rule_)
