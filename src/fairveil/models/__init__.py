"""Parameters + rows -> logits -> clipped gradient sums.

::

    protocol.py    what every model promises
    linear.py      LinearSoftmax: multinomial logistic regression
    mlp.py         Perceptron: dense layers with ReLU or tanh, any depth
    decoupled.py   Decoupled: one model for each group, side by side
    given.py       PrefittedProbabilities: what somebody else's classifier says, in a model's place
    smoothed.py    SmoothedModel: parameters drawn anew for every answer, and the law of it
    rules.py       decision rules: logits and groups -> decisions and their law
    clipping.py    how a record's gradient is held to its bound in floating point
    last_layer.py  norm and margin of the last layer, its biases as weights of a constant
    steady.py      logits that no other row can move, for a model that is known beforehand
    dense.py       class-major products for few classes
    losses.py      softmax, the pull of the cross entropy, and of rates beside it
    optimizers.py  Sgd, Adam and iterate averages as pure functions
"""

from collections.abc import Mapping
from types import MappingProxyType

from fairveil._typing import Float32Array
from fairveil.models.base import Model, PrefittedProbabilities
from fairveil.models.decoupled import Decoupled
from fairveil.models.linear import LinearSoftmax
from fairveil.models.losses import cross_entropy_pull, logits_pull, softmax, tilted_pull
from fairveil.models.mlp import Perceptron
from fairveil.models.optimizers import Adam, Average, Optimizer, OptimizerState, Sgd

__all__ = [
    "MODELS",
    "Adam",
    "Average",
    "Decoupled",
    "Float32Array",
    "LinearSoftmax",
    "Model",
    "Optimizer",
    "OptimizerState",
    "Perceptron",
    "PrefittedProbabilities",
    "Sgd",
    "cross_entropy_pull",
    "logits_pull",
    "softmax",
    "tilted_pull",
]

MODELS: Mapping[str, type[LinearSoftmax] | type[Perceptron]] = MappingProxyType(
    {"linear": LinearSoftmax, "mlp": Perceptron}
)
"""What can be trained by itself."""
