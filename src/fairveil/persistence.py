"""A fitted rule as a folder: `model.json` with every public fact, `params.safetensors` with the weights.

No pickle: opening a folder runs no code. What was damaged, cut off or written by another version is refused, and so is
what does not fit together. Checksums tell damage, not forgery: who can write the folder can write another rule.
"""

import dataclasses
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fairveil._durable import stage_in, sync
from fairveil._reading import read_bounded
from fairveil.data.coded import Detail
from fairveil.data.schema import Schema
from fairveil.errors import BadStructureError, FairveilError
from fairveil.models.base import model_from_dict, model_to_dict
from fairveil.models.rules import RULES
from fairveil.privacy.plan import Plan, Stage
from fairveil.privacy.selection import TunedPlan

FORMAT = 3
FACTS, WEIGHTS = "model.json", "params.safetensors"
MOST_FACTS_BYTES, MOST_WEIGHTS_BYTES = 2**26, 2**31
"""What is read of a folder at most: every public fact of a large schema, and the weights of half a billion features."""


def save_folder(estimator: Any, folder: Path, more: Mapping[str, Any] | None = None) -> str:
    """Write a fitted estimator, and more facts about it, and return its digest; the folder appears whole or not."""
    rule, plan, inputs = estimator.rule_, estimator.plan_, estimator.inputs_
    arrays = {
        f"rule.{field.name}": np.ascontiguousarray(getattr(rule, field.name))
        for field in dataclasses.fields(rule)
        if isinstance(getattr(rule, field.name), np.ndarray)
    }
    weights = save_tensors({"params": estimator.params_, **arrays})
    trace, classes = getattr(estimator, "constraint_trace_", None), estimator.classes_
    facts = {
        "format": FORMAT,
        "estimator": type(estimator).__name__,
        "schema": estimator.schema_.to_toml(),
        "model": model_to_dict(estimator.model_),
        "classes": classes.tolist(),
        "classes_dtype": classes.dtype.str if classes.dtype != object else "object",
        "plan": plan.to_dict() if isinstance(plan, TunedPlan) else [stage.to_dict() for stage in plan.stages],
        "epsilon": float(plan.epsilon) if plan.is_private else None,
        "delta": float(plan.delta),
        "unit": plan.unit,
        "epsilon_spent": estimator.epsilon_spent_ if plan.is_private else None,
        **({} if trace is None else {"bounds": [str(bound) for bound in trace.bounds]}),
        "rule": {
            "kind": next(name for name, kind in RULES.items() if isinstance(rule, kind)),
            "jitter": float(getattr(rule, "jitter", 0.0)),
        },
        "predicts": inputs.predicts,
        "detail": dataclasses.asdict(inputs.detail),
        "sensitive": [entry.column for entry in inputs.sensitive],
        **(more or {}),
        "sha256": hashlib.sha256(weights).hexdigest(),
    }
    facts["checksum"] = _checksum(facts)
    files = {FACTS: json.dumps(facts, indent=2, allow_nan=False).encode(), WEIGHTS: weights}
    write_folder(folder, files)
    return _digest(files)


def _checksum(facts: Mapping[str, Any]) -> str:
    """Return a digest of all facts but itself: it tells damage, not forgery."""
    rest = {name: value for name, value in facts.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, allow_nan=False).encode()).hexdigest()


def write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Write files into a new folder that appears whole or not at all."""
    if folder.exists():
        raise BadStructureError(
            f"Expected a folder that does not exist yet, got {folder}; remove it or name another one."
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with stage_in(folder.parent) as stage:
            whole = stage / "whole"
            whole.mkdir()
            for name, content in files.items():
                (whole / name).write_bytes(content)
                sync(whole / name)
            sync(whole)
            whole.rename(folder)
            sync(folder.parent)
    except OSError as problem:
        raise BadStructureError(
            f"Expected a folder that can be written, got {problem.strerror} for {folder}."
        ) from problem


def model_digest(folder: Path) -> str:
    """Return the SHA-256 digest of a model folder: of what `sha256sum model.json params.safetensors` prints in it.

    Anybody can compute it without fairveil: `cd model; sha256sum model.json params.safetensors | sha256sum`.
    """
    sizes = {FACTS: MOST_FACTS_BYTES, WEIGHTS: MOST_WEIGHTS_BYTES}
    return _digest({name: read_bounded(folder / name, "a file of a model", most) for name, most in sizes.items()})


def _digest(files: Mapping[str, bytes]) -> str:
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def read_facts(folder: Path) -> dict[str, Any]:
    """Return the facts in a folder; refuse what was cut off, changed, or written by another version."""
    try:
        facts: dict[str, Any] = json.loads(read_bounded(folder / FACTS, "a model file", MOST_FACTS_BYTES))
        written = int(facts["format"])
        intact = written == FORMAT and facts["checksum"] == _checksum(facts)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise BadStructureError(
            f"Expected a model folder with {FACTS} and {WEIGHTS}, got something else in {folder}; save it again."
        ) from None
    if written != FORMAT:
        what = "newer; update fairveil" if written > FORMAT else "older; train it again"
        raise BadStructureError(
            f"Expected a model of format {FORMAT}, got format {written} in {folder}, which is {what}."
        )
    if not intact:
        raise BadStructureError(
            f"Expected {FACTS} as it was saved, got a changed one in {folder}; restore it, or train again."
        )
    return facts


def read_folder(folder: Path, name: str) -> dict[str, Any]:
    """Return the fitted attributes of a saved estimator of class `name`; refuse what does not fit together."""
    facts = read_facts(folder)
    if facts.get("estimator") != name:
        raise BadStructureError(f"Expected a saved {name}, got a {facts.get('estimator')} in {folder}.")
    try:
        weights = read_bounded(folder / WEIGHTS, "a file of weights", MOST_WEIGHTS_BYTES)
        intact = facts["sha256"] == hashlib.sha256(weights).hexdigest()
        tensors = load_tensors(weights) if intact else {}
    except (OSError, ValueError, KeyError, SafetensorError):
        raise BadStructureError(
            f"Expected a model folder with {FACTS} and {WEIGHTS}, got something else in {folder}; save it again."
        ) from None
    if not intact:
        raise BadStructureError(f"Expected the weights that {FACTS} names, got other ones in {folder}; save it again.")
    try:
        fitted, is_sound = _restored(facts, tensors)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        OverflowError,
        RecursionError,
        FairveilError,
    ) as problem:
        raise BadStructureError(
            f"Expected a sound {FACTS}, got a damaged one ({type(problem).__name__}); save the model again."
        ) from None
    n_weights, n_expected = len(fitted["params_"]), fitted["model_"].n_params
    if n_weights != n_expected:
        raise BadStructureError(f"Expected {n_expected} weights, got {n_weights}; save the model again.")
    if not is_sound:
        raise BadStructureError(
            "Expected a model, a rule and a schema that fit together, got others; save the model again."
        )
    return fitted


def _restored(facts: dict[str, Any], tensors: dict[str, np.ndarray]) -> tuple[dict[str, Any], bool]:
    """Return the fitted attributes, and whether model, rule and schema fit together."""
    params, schema = tensors["params"], Schema(**tomllib.loads(facts["schema"]))
    model, rule = model_from_dict(facts["model"]), _rule(facts["rule"], tensors)
    budget = (facts["epsilon"] or math.inf, facts["delta"], facts["unit"])
    if isinstance(facts["plan"], dict):
        plan: Plan | TunedPlan = TunedPlan.from_dict(facts["plan"], *budget)
    else:
        plan = Plan(tuple(Stage.from_dict(stage) for stage in facts["plan"]), *budget)
    classes = _classes(facts["classes"], facts["classes_dtype"])
    names, predicts = facts["sensitive"], facts["predicts"]
    if not (isinstance(names, list) and all(isinstance(each, str) for each in names)):
        raise TypeError("sensitive")
    groups = [len(schema.sensitive_named(each).groups) for each in names]
    n_classes = len(schema.target.classes)
    n_outputs = n_classes * (math.prod(groups) if predicts == "joint" else 1)
    # what does not fit together would fail on some rows and not on others
    is_sound = (
        params.ndim == 1
        and params.dtype == np.float32
        and bool(np.isfinite(params).all())
        and classes.shape == (n_classes,)
        and model.n_classes == n_outputs
        and rule.fits(math.prod(n + 1 for n in groups), n_classes, n_outputs)
        and isinstance(facts["delta"], (int, float))
        and not isinstance(facts["delta"], bool)
        and math.isfinite(facts["delta"])
    )
    spent = facts["epsilon_spent"] or math.inf
    fitted = {
        "schema_": schema,
        "model_": model,
        "params_": params,
        "rule_": rule,
        "plan_": plan,
        "classes_": classes,
        "sensitive": names,
        "predicts": predicts,
        "detail": Detail(**facts.get("detail", {})),
        "epsilon_spent_": spent,
        "evaluation_": None,
        "timing_": {},
        "n_features_in_": len(schema.columns),
        "feature_names_in_": np.array(schema.feature_names, dtype=object),
    }
    return fitted, is_sound


def _classes(names: list[Any], dtype: str) -> np.ndarray:
    """Return the classes in the type that was saved, which must not take more memory than their names need."""
    texts = [str(name).encode() for name in names if isinstance(name, (str, bool, int, float))]
    if len(set(texts)) < len(names):
        raise TypeError("classes")
    widest = 4 * max(16, *map(len, texts))
    if not re.fullmatch(r"object|[<>|]?[biufU][0-9]{1,9}", dtype) or np.dtype(dtype).itemsize > widest:
        raise TypeError("classes_dtype")
    return np.array(names, dtype=dtype)


def _rule(facts: dict[str, Any], tensors: dict[str, np.ndarray]) -> Any:
    arrays = {name.removeprefix("rule."): value for name, value in tensors.items() if name != "params"}
    fields = {name: value for name, value in facts.items() if name != "kind"}
    return RULES[facts["kind"]](**(fields | arrays)) if arrays else RULES[facts["kind"]]()
