"""A saved model, opened with its key."""

import os
from contextlib import nullcontext
from pathlib import Path

from fairveil._durable import reading
from fairveil.fair_classifier import FairClassifier
from fairveil.methods.registry import estimator_named
from fairveil.persistence import read_facts


def open_model(folder: Path, key: Path | None) -> FairClassifier:
    """Return the saved classifier; a randomized one takes the key beside its folder unless another one is named."""
    beside = Path(os.path.realpath(folder)).parent / "key"
    with reading(beside.parent) if beside.parent.is_dir() else nullcontext():
        if key is None and beside.is_file():
            kind = estimator_named(str(read_facts(folder).get("estimator")))
            key = beside if kind is not None and (kind.postprocesses or kind.is_randomized) else None
        return FairClassifier.load(folder, key=key)
