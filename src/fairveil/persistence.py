"""A fitted rule as a folder: `model.json` with every public fact, `params.safetensors` with the weights.

No pickle: opening a folder runs no code. What was damaged, cut off or written by another version is refused, and so is
what does not fit together. Checksums tell damage, not forgery: who can write the folder can write another rule.
"""

import dataclasses
import hashlib
import json
import math
import tempfile
import tomllib
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fairveil.data.schema import Schema
from fairveil.errors import BadStructureError, FairveilError
from fairveil.models.base import model_from_dict, model_to_dict
from fairveil.models.rules import RULES
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Stage
from fairveil.privacy.selection import TunedPlan

FORMAT = 2
FACTS, WEIGHTS = "model.json", "params.safetensors"
T = TypeVar("T")


def save_rule(rule: Any, folder: Path, more: Mapping[str, Any] | None = None) -> None:
    """Write a fitted estimator, and more facts about it; the folder appears whole or not at all."""
    weights = save_tensors({"params": rule.params_, **_rule_tensors(rule.rule_)})
    facts = {
        "format": FORMAT,
        "estimator": type(rule).__name__,
        "schema": rule.schema_.to_toml(),
        "model": model_to_dict(rule.model_),
        "classes": rule.classes_.tolist(),
        "classes_dtype": rule.classes_.dtype.str if rule.classes_.dtype != object else "object",
        "plan": _plan_facts(rule.plan_),
        "epsilon": float(rule.plan_.epsilon) if rule.plan_.is_private else None,
        "delta": float(rule.plan_.delta),
        "unit": rule.plan_.unit,
        "epsilon_spent": rule.epsilon_spent_ if rule.plan_.is_private else None,
        **_asked(rule),
        **_deciding(rule),
        **(more or {}),
        "sha256": hashlib.sha256(weights).hexdigest(),
    }
    facts["checksum"] = _checksum(facts)
    write_folder(folder, {FACTS: json.dumps(facts, indent=2, allow_nan=False).encode(), WEIGHTS: weights})


def _checksum(facts: Mapping[str, Any]) -> str:
    """Return a digest of all facts but itself: it tells damage, not forgery."""
    rest = {name: value for name, value in facts.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _asked(rule: Any) -> dict[str, list[str]]:
    """Return the bounds that a rule was trained under, if any."""
    trace = getattr(rule, "constraint_trace_", None)
    return {} if trace is None else {"bounds": [str(bound) for bound in trace.bounds]}


def _plan_facts(plan: Plan | TunedPlan) -> Any:
    """Return the parts of a plan; of a choice among runs, those of each run and around them."""
    return plan.to_dict() if isinstance(plan, TunedPlan) else [stage.to_dict() for stage in plan.stages]


def _plan(facts: dict[str, Any]) -> Plan | TunedPlan:
    budget = (facts["epsilon"] or math.inf, facts["delta"], facts["unit"])
    if isinstance(facts["plan"], dict):
        return TunedPlan.from_dict(facts["plan"], *budget)
    return Plan(tuple(Stage.from_dict(stage) for stage in facts["plan"]), *budget)


def _rule_tensors(rule: Any) -> dict[str, np.ndarray]:
    """Return the arrays of a rule; the key that decides its lots is never written."""
    fields = {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}
    return {
        f"rule.{name}": np.ascontiguousarray(value)
        for name, value in fields.items()
        if isinstance(value, np.ndarray)
    }


def _deciding(rule: Any) -> dict[str, Any]:
    """Return how decisions come about: the kind of rule, what the model is of, whose groups are read."""
    kind = next(name for name, cls in RULES.items() if isinstance(rule.rule_, cls))
    decider = getattr(rule, "_decider", None)
    if decider is None:
        names = [rule.sensitive] if isinstance(rule.sensitive, str) else list(rule.sensitive or ())
        return {"rule": {"kind": kind}, "sensitive": names}
    return {
        "rule": {"kind": kind, "jitter": float(getattr(rule.rule_, "jitter", 0.0))},
        "predicts": decider.front.predicts,
        "sensitive": [entry.column for entry in decider.front.sensitive],
    }


def write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Write files into a new folder that appears whole or not at all."""
    if folder.exists():
        raise BadStructureError(
            f"Expected a folder that does not exist yet, got {folder}; remove it or name another one."
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fairveil-") as stage:
            whole = Path(stage, "whole")
            whole.mkdir()
            for name, content in files.items():
                (whole / name).write_bytes(content)
            whole.rename(folder)
    except OSError as problem:
        raise BadStructureError(
            f"Expected a folder that can be written, got {problem.strerror} for {folder}."
        ) from None


def load_rule(cls: type[T], folder: Path) -> T:
    """Return a fitted estimator of class `cls` from its folder."""
    facts, tensors = _read(folder)
    if facts.get("estimator") != cls.__name__:
        raise BadStructureError(
            f"Expected a saved {cls.__name__}, got a {facts.get('estimator')} in {folder}."
        )
    fitted, sealed = _fitted(facts, tensors), copy(Ledger())
    rule = cls(epsilon=fitted["plan_"].epsilon, delta=fitted["plan_"].delta)  # type: ignore[call-arg]
    for name, value in (fitted | {"ledger": sealed, "ledger_": sealed, "timing_": {}}).items():
        setattr(rule, name, value)
    return rule


def read_facts(folder: Path) -> dict[str, Any]:
    """Return the facts in a folder; refuse what was cut off, changed, or written by another version."""
    try:
        facts: dict[str, Any] = json.loads((folder / FACTS).read_bytes())
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


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    facts = read_facts(folder)
    try:
        weights = (folder / WEIGHTS).read_bytes()
        intact = facts["sha256"] == hashlib.sha256(weights).hexdigest()
        tensors = load_tensors(weights) if intact else {}
    except (OSError, ValueError, KeyError, SafetensorError):
        raise BadStructureError(
            f"Expected a model folder with {FACTS} and {WEIGHTS}, got something else in {folder}; save it again."
        ) from None
    if not intact:
        raise BadStructureError(
            f"Expected the weights that {FACTS} names, got other ones in {folder}; save it again."
        )
    return facts, tensors


def _fitted(facts: dict[str, Any], tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    try:
        params = tensors["params"]
        schema = Schema(**tomllib.loads(facts["schema"]))
        model = model_from_dict(facts["model"])
        fitted = {
            "schema": schema,
            "schema_": schema,
            "model_": model,
            "params_": params,
            "rule_": _rule(facts.get("rule", {"kind": "most_likely"}), tensors),
            "sensitive": facts.get("sensitive"),
            "_predicts": facts.get("predicts", "label"),
            "classes_": np.array(facts["classes"], dtype=facts["classes_dtype"]),
            "plan_": _plan(facts),
            "epsilon_spent_": facts["epsilon_spent"] or math.inf,
            "evaluation_": None,
            "n_features_in_": len(schema.columns),
            "feature_names_in_": np.array(schema.feature_names, dtype=object),
        }
        is_sound = _fits_together(fitted, facts)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        OverflowError,
        FairveilError,
    ) as problem:
        raise BadStructureError(
            f"Expected a sound {FACTS}, got a damaged one ({type(problem).__name__}); save the model again."
        ) from None
    if len(params) != model.n_params:
        raise BadStructureError(
            f"Expected {model.n_params} weights, got {len(params)}; save the model again."
        )
    if not is_sound:
        raise BadStructureError(
            "Expected a model, a rule and a schema that fit together, got others; save the model again."
        )
    return fitted


def _fits_together(fitted: dict[str, Any], facts: dict[str, Any]) -> bool:
    """Return whether sizes and types agree: what does not fit would fail on some rows and not on others."""
    schema, model, rule, params = (fitted[name] for name in ("schema_", "model_", "rule_", "params_"))
    names = fitted["sensitive"] or []
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        return False
    groups = [len(schema.sensitive_named(name).groups) for name in names]
    n_groups, n_classes = math.prod(n + 1 for n in groups), len(schema.target.classes)
    n_outputs = n_classes * (math.prod(groups) if fitted["_predicts"] == "joint" else 1)
    is_whole = params.ndim == 1 and params.dtype == np.float32 and bool(np.isfinite(params).all())
    has_classes = fitted["classes_"].shape == (n_classes,) and model.n_classes == n_outputs
    return is_whole and has_classes and rule.fits(n_groups, n_classes, n_outputs) and _number(facts["delta"])


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _rule(facts: dict[str, Any], tensors: dict[str, np.ndarray]) -> Any:
    arrays = {name.removeprefix("rule."): value for name, value in tensors.items() if name != "params"}
    fields = {name: value for name, value in facts.items() if name != "kind"}
    return RULES[facts["kind"]](**(fields | arrays)) if arrays else RULES[facts["kind"]]()
