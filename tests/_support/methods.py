"""Every method of the registry, with what it needs to be trained: by name, as parameters and as options."""

from typing import Any

from fairveil import DemographicParity, Descent, Groupwise, LagrangianDual
from fairveil.methods.registry import METHODS

TOLERANCE = 0.1
NAMES = tuple(METHODS)

QUICK = {Groupwise: Groupwise(Descent(n_steps=20)), LagrangianDual: LagrangianDual(descent=Descent(n_steps=20))}
"""How to train where the method's own default takes seconds, by the class of its recipe."""


def parameters_of(name: str) -> dict[str, Any]:
    """Return the parameters with which `FairClassifier` trains by a method."""
    method = METHODS[name]
    constraint = DemographicParity(TOLERANCE) if method.bounds_gap else DemographicParity()
    facts = {"method": name, "aware": method.reads_group, "sensitive": "sex", "protects": method.protects}
    return {**facts, "constraint": constraint, "training": QUICK.get(method.recipe)}


def options_of(name: str) -> tuple[str, ...]:
    """Return the options with which the command line trains by a method."""
    method = METHODS[name]
    options = ["--method", name, "--aware" if method.reads_group else "--unaware"]
    if method.bounds_gap:
        options += ["--tolerance", str(TOLERANCE)]
    if method.protects != "record":
        options += ["--protects", method.protects]
    if method.default_model != "linear":  # a network takes seconds
        options += ["--model", "linear"]
    return tuple(options)
