"""Every method of the registry, with what it needs to be trained: by name, as parameters and as options."""

from typing import Any

from fairveil import DemographicParity, Descent, Groupwise, LagrangianDual
from fairveil.request import BOUNDING, METHODS, TOLERANCELESS

TOLERANCE = 0.1
NAMES = tuple(name for name in METHODS if name != "auto")
READS_GROUP = {"dp2dp", "parity"}
HIDES_ATTRIBUTE = {"pfld"}

QUICK = {"fairdp": Groupwise(Descent(n_steps=20)), "pfld": LagrangianDual(Descent(n_steps=20))}
"""How to train where the method's own way takes seconds."""


def parameters_of(name: str) -> dict[str, Any]:
    """Return the parameters with which `FairClassifier` trains by a method."""
    bound = {"constraint": DemographicParity(TOLERANCE)} if name in BOUNDING else {}
    if name in TOLERANCELESS:
        bound = {"constraint": DemographicParity()}
    hidden = {"protects": "attribute"} if name in HIDES_ATTRIBUTE else {}
    training = {"estimator": QUICK[name]} if name in QUICK else {}
    return {"method": name, "aware": name in READS_GROUP, "sensitive": "sex", **bound, **hidden, **training}


def options_of(name: str) -> tuple[str, ...]:
    """Return the options with which the command line trains by a method."""
    options = ["--method", name, "--aware" if name in READS_GROUP else "--unaware"]
    if name in BOUNDING:
        options += ["--tolerance", str(TOLERANCE)]
    if name in HIDES_ATTRIBUTE:
        options += ["--protects", "attribute", "--model", "linear"]
    return tuple(options)
