"""Shared by the benchmarks of PF-LD: its epsilon for a change a -> a', its rivals, what chance alone shows.

The classifier is planned for neighbours of whom one's attribute is known or unknown; the paper and M state epsilon for
a change of the attribute from a to a'. So epsilon means the latter here, and the classifier is given the largest
known/unknown epsilon whose plan costs no more.
"""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from _harness import Answer, Bench, Splits
from baselines import RIVALS
from baselines import measure as measure_rival
from fairveil import LagrangianClassifier, LagrangianDual, Ledger, Schema
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.pricing import NeighboringRelation
from fairveil.data.encoding import Encoder
from fairveil.errors import BadStructureError
from fairveil.fairness.constraints import Constraint
from fairveil.privacy.plan import Plan

HALVINGS = 14
"""Of the search for epsilon: its answer is less than 1e-4 of the asked one below the best."""

N_SHUFFLES = 200
"""Over all runs together."""

OVER_LABELS = ("demographic_parity", "error_rate_parity")
"""Notions that compare groups over labels; the others compare them within each."""


def recipe_of(model: str, lambda_max: float | None = None, slack: float | None = None) -> LagrangianDual:
    """Return the classifier's own way to train with this kind of model."""
    own = LagrangianDual()
    most = own.lambda_max if lambda_max is None else lambda_max
    unchased = own.slack if slack is None else slack
    return replace(own, descent=replace(own.descent, model=model), lambda_max=most, slack=unchased)


def known_unknown(plan_at: Callable[[float], Plan], epsilon: float, delta: float) -> float:
    """Return the largest known/unknown epsilon, to 1e-4, whose plan costs at most `epsilon` for a change a -> a'."""
    if math.isinf(epsilon):
        return epsilon
    low, high = 0.0, epsilon  # a change never costs less than being known
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        costs = epsilon_of(plan_at(middle).charges(), delta, NeighboringRelation.REPLACE_ONE)
        low, high = (middle, high) if costs <= epsilon else (low, middle)
    return low


@lru_cache(maxsize=256)
def _epsilon_for(asked: Constraint, epsilon: float, delta: float, how: LagrangianDual, facts: str) -> float:
    schema = Schema.model_validate_json(facts)

    def plan_at(own: float) -> Plan:
        return LagrangianClassifier(asked, own, delta, how, schema, _secret(schema), ledger=Ledger()).planned()

    return known_unknown(plan_at, epsilon, delta)


def _secret(schema: Schema) -> list[str]:
    return [entry.column for entry in schema.sensitive]


def classifier(
    asked: Constraint,
    epsilon: float,
    delta: float,
    how: LagrangianDual,
    schema: Schema,
    seed: int | None = None,
) -> LagrangianClassifier:
    """Return a classifier whose fit costs `epsilon` for a change a -> a'; its own epsilon is the known/unknown one."""
    own = _epsilon_for(asked, epsilon, delta, how, schema.model_dump_json())
    secret = _secret(schema)
    return LagrangianClassifier(asked, own, delta, how, schema, secret, ledger=Ledger(), random_state=seed)


def run_figures(bench: Bench, answer: Answer, rows: np.ndarray, asked: Constraint) -> dict[str, float]:
    """Return accuracy, the gap asked about, area and share of positive decisions on these rows."""
    found = bench.figures(answer, rows)
    return {
        "accuracy": found["accuracy"],
        "gap": bench.largest_bound(answer.decisions, rows, asked),
        "roc_auc": found["roc_auc"],
        "positive_rate": float(np.mean(answer.decisions == bench.people.positive)),
    }


def summary(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return means over runs, and the deviations of accuracy and gap."""
    table = pd.DataFrame(figures)
    means, spread = table.mean(), table.std(ddof=1)
    return {
        "accuracy_mean": means["accuracy"], "accuracy_sd": spread["accuracy"],
        "gap_mean": means["gap"], "gap_sd": spread["gap"],
        "positive_rate": means["positive_rate"], "roc_auc": means["roc_auc"],
    }  # fmt: skip


def chance_gap(
    bench: Bench,
    decisions: np.ndarray,
    rows: np.ndarray,
    asked: Constraint,
    by_label: bool,
    n_shuffles: int,
    seed: int,
) -> float:
    """Return the mean gap of these decisions when known groups are shuffled: what so many rows show by chance alone.

    Groups are then exactly alike in law: over all rows, or within each label where the notion looks there.
    """
    coins = np.random.default_rng([seed, 2])
    is_known = np.isin(bench.groups[rows], bench.people.codes)
    strata = [is_known & (bench.y[rows] == label) for label in np.unique(bench.y[rows])]
    strata = [rows[stratum] for stratum in (strata if by_label else [is_known])]
    gaps = []
    for _ in range(n_shuffles):
        groups = bench.groups.copy()
        for stratum in strata:
            groups[stratum] = coins.permutation(groups[stratum])
        gaps.append(replace(bench, groups=groups).largest_bound(decisions, rows, asked))
    return float(np.mean(gaps))


def floor_of(splits: Splits, answers: Sequence[Answer], asked: Constraint, constraint: str) -> float:
    """Return the mean over runs of what chance alone shows."""
    each, by_label = math.ceil(N_SHUFFLES / len(answers)), constraint not in OVER_LABELS
    gaps = [
        chance_gap(splits.bench, answer.decisions, splits(run)[1], asked, by_label, each, run)
        for run, answer in enumerate(answers)
    ]
    return float(np.mean(gaps))


def rivals_of(splits: Splits, options: argparse.Namespace, epsilon: float) -> dict[str, dict[str, float]]:
    """Return the figures of the rivals on the same splits: measured now, or read from what baselines.py printed."""
    if options.rivals:
        rows = [saved_rival(options, name, epsilon) for name in RIVALS]
    else:
        encoded = Encoder(splits.bench.schema).rows(splits.bench.frame)
        asked = argparse.Namespace(**vars(options) | {"epsilon": epsilon})
        rows = [measure_rival(splits, encoded, name, asked) for name in RIVALS]
    return {
        row["rival"]: {
            "accuracy_mean": row["accuracy_mean"], "accuracy_sd": row["accuracy_sd"],
            "gap_mean": row["violation_mean"], "gap_sd": row["violation_sd"],
            "positive_rate": row["positive_rate_mean"], "roc_auc": row["roc_auc_mean"],
        }
        for row in rows
    }  # fmt: skip


def saved_rival(options: argparse.Namespace, name: str, epsilon: float) -> dict[str, Any]:
    """Return the row of one rival from a file; it must be of the same data set, notion, runs and epsilon."""
    wanted = {"dataset": options.dataset, "constraint": options.constraint, "runs": options.runs}
    wanted |= {"rival": name, "epsilon": epsilon if name == "M" and math.isfinite(epsilon) else None}
    for row in json.loads(Path(options.rivals).read_text())["rows"]:
        if all(row[key] == value for key, value in wanted.items()):
            return row
    raise BadStructureError(f"Expected a row {wanted} in {options.rivals}, got none; leave the file out.")


def claims(dataset: str, ours: dict[str, float], rivals: dict[str, dict[str, float]]) -> dict[str, bool]:
    """Return which claims hold: against M, and on Bank that nobody was bought off by deciding alike for everyone."""
    m, plain = rivals["M"], rivals["CLF"]
    found = {
        "half_of_m": ours["gap_mean"] <= m["gap_mean"] / 2,
        "accuracy_not_below_m": ours["accuracy_mean"] >= m["accuracy_mean"],
        "spread_below_m": ours["gap_sd"] < m["gap_sd"],
    }
    if dataset == "bank":
        found |= {
            "accuracy_within_01": ours["accuracy_mean"] >= plain["accuracy_mean"] - 0.01,
            "auc_within_03": ours["roc_auc"] >= plain["roc_auc"] - 0.03,
            "positive_rate_within_factor_2": 0.5 <= ours["positive_rate"] / plain["positive_rate"] <= 2,
        }
    return {name: bool(value) for name, value in found.items()}


class Setting(Protocol):
    """What `quality.py` measures: a method, what it is asked for, and its classifier."""

    method: str
    constraint: str
    epsilon: float

    @property
    def asked(self) -> Constraint: ...

    def classifier(self, schema: Schema, sensitive: list[str]) -> Any: ...


def more_figures(
    splits: Splits, options: argparse.Namespace, setting: Setting, answers: Sequence[Answer]
) -> dict[str, Any]:
    """Return what a row of PF-LD says beyond those of other methods, and nothing for these."""
    if setting.method != "pfld":
        return {}
    bench, asked = splits.bench, setting.asked
    ours = summary([run_figures(bench, answer, splits(run)[1], asked) for run, answer in enumerate(answers)])
    own = setting.classifier(bench.public(splits.n_public), []).epsilon
    more = {
        "epsilon_known_unknown": own if math.isfinite(own) else None,
        **{name: ours[name] for name in ("accuracy_sd", "gap_sd", "positive_rate")},
        "floor": floor_of(splits, answers, asked, setting.constraint),
    }
    if options.rivals is None:
        return more
    rivals = rivals_of(splits, options, setting.epsilon)
    reach = {"floor_above_half_of_m": bool(more["floor"] > rivals["M"]["gap_mean"] / 2)}
    return more | {"rivals": rivals, "holds": claims(options.dataset, ours, rivals), **reach}
