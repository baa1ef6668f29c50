"""Parameters + rows -> logits -> clipped gradient sums, and decision rules on top of logits."""

from collections.abc import Mapping
from types import MappingProxyType

from fairveil._typing import Float32Array
from fairveil.models.base import Model, PrefittedProbabilities
from fairveil.models.decoupled import Decoupled
from fairveil.models.linear import LinearSoftmax
from fairveil.models.losses import cross_entropy_pull, logits_pull, softmax, tilted_pull
from fairveil.models.mlp import Perceptron
from fairveil.models.optimizers import Adam, Average, Optimizer, OptimizerState, Sgd
from fairveil.models.torch_module import TorchModel, with_module

MODELS: Mapping[str, type[LinearSoftmax] | type[Perceptron]] = MappingProxyType(
    {"linear": LinearSoftmax, "mlp": Perceptron}
)
"""What can be trained by itself."""
