"""Every kind of model, kinds that research registers included, survives JSON; unknown kinds are refused."""

import json

import pytest

from fairveil.models import Decoupled, LinearSoftmax, Perceptron, PrefittedProbabilities
from fairveil.models.base import model_from_dict, model_to_dict
from fairveil.research.fair_smooth import SmoothedModel

MODELS = [
    LinearSoftmax(3, 4, bias=False),
    Perceptron(5, (7, 2), 3, "tanh"),
    PrefittedProbabilities(3),
    Decoupled(LinearSoftmax(2), 3),
    Decoupled(Perceptron(2, (4,)), 2),
    SmoothedModel(Perceptron(3, (4,)), 0.5, "all", 8),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_model_survives_json(model):
    assert model_from_dict(json.loads(json.dumps(model_to_dict(model)))) == model


def test_the_format_of_saved_models_stays_as_it_is():
    assert model_to_dict(Decoupled(LinearSoftmax(2), 3)) == {
        "kind": "decoupled",
        "n_groups": 3,
        "base": {"kind": "linear", "n_features": 2, "n_classes": 2, "bias": True},
    }
    assert model_to_dict(PrefittedProbabilities(3)) == {"kind": "given", "n_classes": 3}


@pytest.mark.parametrize("facts", [{"kind": "forest"}, {"n_classes": 2}, {"kind": "given", "depth": 3}])
def test_unknown_kinds_and_fields_are_refused(facts):
    with pytest.raises((KeyError, TypeError)):
        model_from_dict(facts)
