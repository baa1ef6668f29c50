"""All methods by name; the command line, `auto`, the frontier, saving, tests and benchmarks iterate over them."""

from fairveil.errors import InvalidParameterError
from fairveil.methods.base import BasePrivateClassifier, Method
from fairveil.methods.decoupled_parity import DECOUPLED_PARITY
from fairveil.methods.dp2dp import DP2DP
from fairveil.methods.dp_sgd import DP_SGD, DPSGD_F, DPSGD_GLOBAL_ADAPT
from fairveil.methods.fairdp import FAIRDP
from fairveil.methods.fermi import FERMI
from fairveil.methods.functional import FUNCTIONAL
from fairveil.methods.output_perturbation import OUTPUT_PERTURBATION
from fairveil.methods.pf_ld import PF_LD
from fairveil.methods.raco import RACO

AUTO = "auto"

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        DP2DP, RACO, DECOUPLED_PARITY, FUNCTIONAL, FAIRDP, PF_LD, FERMI, DP_SGD, DPSGD_F, DPSGD_GLOBAL_ADAPT,
        OUTPUT_PERTURBATION,
    )
}  # fmt: skip
"""Methods in the order in which they are listed, and in which "auto" considers them."""


def register(method: Method) -> Method:
    """Make a method known to the whole program; a name means one method for good."""
    if METHODS.get(method.name, method) != method or method.name == AUTO:
        raise InvalidParameterError(f"Expected a name that no other method has, got {method.name!r}.")
    METHODS[method.name] = method
    return method


def method_named(name: str) -> Method:
    """Return the method of this name; refuse unknown names."""
    if name not in METHODS:
        raise InvalidParameterError(
            f"Expected method to be one of {', '.join(map(repr, (AUTO, *METHODS)))}, got {name!r}."
        )
    return METHODS[name]


def estimator_named(name: str) -> type[BasePrivateClassifier] | None:
    """Return the estimator class of this name, as a model folder states it; None if no method has it."""
    return next((method.estimator for method in METHODS.values() if method.estimator.__name__ == name), None)
