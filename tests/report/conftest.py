"""Summaries and frontiers to draw, a real browser to draw them in, and a folder for its pictures."""

import base64
import copy
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fairveil.bench.output import bench_page
from fairveil.report.frontier import frontier_page
from fairveil.report.page import report_page

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,900",
)  # fmt: skip
RATES = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}} {% raw %} {0} %s",
    "it's \"quoted\" & 'single' \\ back",
    "مجموعة א \u202eright to left",
    "long " * 60,
    "👩🏽‍⚖️ 東京 été",
    "</script><svg onload=alert(1)>",
    "</title></style><!--",
    "javascript:alert(1)",
    "\x00\x1b[31m end",
)


def interval(value, half=0.02):
    """An interval as a summary writes it; unknown values may be anything."""
    if value is None:
        return {"value": None, "low": 0.0, "high": 1.0}
    return {"value": value, "low": max(value - half, 0.0), "high": min(value + half, 1.0)}


def group(name, base, size=2394):
    values = (base, 0.55 + base / 4, base / 4, 0.9 - base / 3)
    return {
        "group": name,
        "size": size,
        "rates": {rate: interval(one) for rate, one in zip(RATES, values, strict=True)},
    }


def claim(bound, value, verdict, rows_needed=None, words=""):
    return {
        "bound": bound, "limit": 0.02, "value": value, "low": value - 0.0186, "high": value + 0.0156,
        "upper": value + 0.0156, "verdict": verdict, "rows_needed": rows_needed, "words": words,
    }  # fmt: skip


def pair(rate, highest, lowest):
    ends = [{"group": name, "value": value} for name, value in (highest, lowest)]
    return {"rate": rate, "of_class": None, "highest": ends[0], "lowest": ends[1]}


def gap(constraint, rate, highest, lowest, is_large=False):
    value = highest[1] - lowest[1]
    return {"constraint": constraint, **interval(value, 0.0156), "worst_pair": pair(rate, highest, lowest),
            "is_large": is_large}  # fmt: skip


def release(name, law, multiplier):
    return {"name": name, "law": law, "noise_multiplier": multiplier, "joint_batch": False}


PLAN = [
    {"part": "train", "share": 0.85, "sampling_rates": {"all": 0.1}, "n_steps": 300,
     "releases": [release("gradient", "gaussian", 7.106561410838201)], "epsilon": 0.918, "delta": 1e-05},
    {"part": "rule", "piece": "train", "share": 0.85, "sampling_rates": {"all": 1.0}, "n_steps": 1,
     "releases": [release("histogram", "gaussian", 25.2), release("counts 1", "gaussian", 21.8)],
     "epsilon": 0.3495, "delta": 1e-05},
    {"part": "holdout", "share": 0.15, "sampling_rates": {"all": 1.0}, "n_steps": 1,
     "releases": [release("outcomes", "discrete_gaussian", 3.74)], "epsilon": 0.99998, "delta": 1e-05},
]  # fmt: skip
UP = "selection_rate[sex=Male] - selection_rate[sex=Female] <= 0.02"
WORDS = "the selection rate of {} minus that of {}"
DOWN = "selection_rate[sex=Female] - selection_rate[sex=Male] <= 0.02"


def evidence(groups, columns=("age", "sex"), name="sex", owner="Ann Owner"):
    """What a summary states for auditors, with a row for each group."""
    rows = [
        {"category": one, "size": 2394 * place, "share": interval(place / 9), "selection_rate": interval(0.2),
         "impact_ratio": interval(1 / place), "under_two_percent": "no"}
        for place, one in enumerate(groups, start=1)
    ]  # fmt: skip
    schema = {
        "name": name, "source": "a registry", "sha256": "cd" * 32, "n_public": 48842, "id_column": name,
        "approval": {"by": owner, "at": "2026-11-16T11:00:00+00:00", "is_unchanged": True,
                     "sentence": f"Approved by {owner} at 2026-11-16T11:00:00+00:00."},
        "n_row_rules": 2, "target": {"column": name, "classes": ["no", "yes"]},
        "sensitive": [{"column": name, "groups": list(groups), "unknown": "ignore"}],
        "columns": [{"column": one, "kind": "number", "bounds": [0.0, 9.0], "n_bins": 3, "n_categories": None,
                     "declared": "number from 0 to 9, in 3 bins"} for one in columns],
    }  # fmt: skip
    unknown = {"size": 12, "share": interval(0.004), "worst_gap": interval(0.03), "sentences": ["About 12 people."]}
    stated = {"owner": owner, "purpose": None, "data_reference": "12ab" * 8, "inputs": list(columns), "schema": schema}
    return {
        "model_digest": "ab" * 32, "provenance": stated, "unknown_groups": unknown,
        "impact_ratios": [{"by": [name], "categories": rows, "notes": [f"No category of {name} is small."]}],
    }  # fmt: skip


def shapes(columns, groups=("",), n_columns=None, seed=3):
    """Points of a linear model: `columns` are names with their levels."""
    random = np.random.default_rng(seed)
    facts = [
        {"column": name, "kind": "category", "range": float(3 - place / 10), "levels": list(levels),
         "n_levels": len(levels), "points": random.normal(0, 1, (len(groups), len(levels))).tolist()}
        for place, (name, levels) in enumerate(columns.items())
    ]  # fmt: skip
    return {
        "sentence": None, "groups": list(groups), "n_groups": len(groups), "intercepts": [-1.25] * len(groups),
        "columns": facts, "n_columns": n_columns or len(facts),
    }  # fmt: skip


NO_SHAPES = {
    "sentence": "The model is a neural network: there are no shapes to draw.", "groups": [], "n_groups": 0,
    "intercepts": [], "columns": [], "n_columns": 0,
}  # fmt: skip


def usual_summary():
    """The summary of a training on Adult."""
    return evidence(("Female", "Male")) | {
        "data": "adult", "target": "income", "classes": ["<=50K", ">50K"], "positive": ">50K",
        "created": "2026-11-16T12:00:00+00:00",
        "command": "fairveil train adult --method dp2dp --aware --epsilon 1 --tolerance 0.02 --out results",
        "method": "dp2dp", "model": "linear", "constraint": "demographic_parity", "tolerance": 0.02,
        "aims_at_zero": False, "against": "pairs", "rules": [], "asked": [DOWN, UP], "epsilon": 1.0, "delta": 1e-05,
        "epsilon_spent": 0.999977621280001, "neighbours": "ADD_OR_REMOVE_ONE", "epsilon_replace_one": 2.138570192254375,
        "protects": "record", "unit": "record", "aware": True, "sensitive": ["sex"], "n_public": 48842, "plan": PLAN,
        "version": "0.1.0", "epsilon_spent_total": 0.999977621280001,
        "roc_auc": {"value": 0.9012, "low": 0.8834, "high": 0.9187}, "average_precision": interval(None),
        "accuracy": {"value": 0.8418230563002681, "low": 0.8332858390091432, "high": 0.850360273591393},
        "gap": {"value": 0.013585508747875313, "low": 0.0, "high": 0.0292},
        "best_constant": {"decision": "<=50K", **interval(0.7607, 0.01)},
        "most_common_decision": {"decision": "<=50K", **interval(0.84, 0.01), "is_nearly_everyone": False},
        "worst_pair": pair("selection_rate", ("Male", 0.1646), ("Female", 0.151)),
        "gaps": [
            gap("demographic_parity", "selection_rate", ("Male", 0.1646), ("Female", 0.151)),
            gap("true_positive_rate_parity", "true_positive_rate", ("Female", 0.801), ("Male", 0.49), is_large=True),
            gap("false_positive_rate_parity", "false_positive_rate", ("Female", 0.07), ("Male", 0.05)),
            gap("error_rate_parity", "error_rate", ("Male", 0.18), ("Female", 0.12)),
        ],
        "smallest_tolerance_that_holds": 0.0292, "comparisons": {"all": 2, "unknown": 0}, "bounds": [],
        "confidence": 0.95, "private_evaluation": True, "cautions": [], "seconds": 1.097,
        "ratio": {"value": 0.917, "low": 0.812, "high": 1.0},
        "groups": [group("Female", 0.151, 2394), group("Male", 0.1646, 4932)],
        "certificate": {
            "confidence": 0.95, "verdict": "not enough data", "smallest_tolerance": 0.0292, "rows_needed": 21000,
            "n_rows": 7326,
            "sentence": "With 7326 held-out rows it cannot be shown at 95 % confidence that every bound holds; the "
            "smallest tolerance that can be shown is 0.0292, and about 21000 held-out rows would probably do.",
            "claims": [
                claim(DOWN, -0.0136, "holds", words=WORDS.format("Female (15.1 %)", "Male (16.5 %)")),
                claim(UP, 0.0136, "not enough data", 21000, WORDS.format("Male (16.5 %)", "Female (15.1 %)")),
            ],
        },
        "expected_tolerance": 0.03,
        "statement": {
            "covered": ["Whether any one record was among the 48842.", "Everything written: model and report."],
            "not_covered": ["What was declared public in the schema.", "How long the computation took."],
            "accountant": "Privacy loss distributions, rounded to the private side.",
            "sampling": "Every record enters a batch by its own coin (Poisson sampling), as the accountant assumes.",
            "total": "Everything ever released from these people costs epsilon 1.0000 at delta 1e-05.",
        },
        "ledger": {
            "delta": 1e-05, "epsilon_spent_total": 0.999977621280001, "epsilon_spent_total_replace_one": 2.14,
            "unit": "record", "head": {"n_lines": 2, "chain": "5e" * 16},
            "entries": [{"at": "2026-11-16T12:00:00+00:00", "purpose": "fit of FairClassifier", "epsilon": 1.0,
                         "delta": 1e-05}],
        },
        "timing": {"plan": 0.3, "read": 0.4, "train": 0.5, "report": 0.1}, "noise_statements": [],
        "changes": None,
        "shapes": shapes({"education": ["9th", "Bachelors", "Masters", "other", "missing"],
                          "age": ["[15, 30)", "[30, 50)", "[50, 100]", "missing"]}),
    }  # fmt: skip


def fairdp_summary():
    """A training without a tolerance, certified at the gap that came out, with statements over the training noise."""
    about = "over the training noise, not for this model"
    given = usual_summary() | {"method": "fairdp", "tolerance": None, "asked": [], "expected_tolerance": None}
    given["noise_statements"] = [
        {"name": "Worst case (Theorem 3.2)", "gap": 0.0237, "error": None, "about": about, "assumes": "Any people."},
        {"name": "Empirical (Proposition 3.3)", "gap": None, "error": None, "about": about, "assumes": "An estimate."},
        {"name": "Share of 16 models (Algorithm 3)", "gap": 0.1, "error": 0.25, "about": about, "assumes": "So."},
    ]  # fmt: skip
    return given


def many_groups_summary():
    """Eighteen groups of two columns, three classes, two unknown groups and every pair bounded."""
    given, random = usual_summary(), np.random.default_rng(18)
    names = [
        f"race={race}, age={age}"
        for race in ("White", "Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Unknown")
        for age in ("<30", "30-50", ">50")
    ]
    given["groups"] = [
        group(name, float(base), int(random.integers(20, 900)))
        for name, base in zip(names, random.uniform(0.05, 0.35, 18), strict=True)
    ]
    given |= evidence(names, [f"column {place}" for place in range(40)])
    for place in (11, 14):
        given["groups"][place]["rates"] = {rate: interval(None) for rate in RATES}
    given |= {
        "sensitive": ["race", "age"],
        "aware": False,
        "classes": ["low", "middle", "high"],
        "positive": "high",
    }
    verdicts = ("holds", "does not hold", "not enough data", "measured above the tolerance")
    given["certificate"]["claims"] = [
        claim(f"selection_rate[{one}] - selection_rate[{other}] <= 0.02", float(random.normal(0, 0.05)),
              verdicts[(i + j) % 4])
        for i, one in enumerate(names) for j, other in enumerate(names) if i != j
    ]  # fmt: skip
    given["certificate"]["verdict"] = "does not hold"
    given["cautions"] = ["The released rule breaks 3 bounds by more than noise can feign."]
    levels = [f"level {place}" for place in range(30)]
    given["shapes"] = shapes({f"column {place}": levels for place in range(20)}, ("Female", "Male"), n_columns=70)
    given["shapes"]["columns"][0]["n_levels"] = 43
    return given


def fifty_groups_summary():
    """Fifty groups with long names: 2,450 pairs, and as many claims."""
    given, random = usual_summary(), np.random.default_rng(50)
    names = [f"race=Asian-Pac-Islander {place}, age=30-50" for place in range(50)]
    given["groups"] = [
        group(name, float(base)) for name, base in zip(names, random.uniform(0.05, 0.35, 50), strict=True)
    ]
    given |= evidence(names, [f"column {place}" for place in range(40)])
    verdicts = ("holds", "does not hold", "not enough data", "measured above the tolerance")
    claims = [
        claim(f"selection_rate[{one}] - selection_rate[{other}] <= 0.02", float(random.normal(0, 0.05)),
              verdicts[(i + j) % 4], 21000, WORDS.format(f"{one} (15.1 %)", f"{other} (16.5 %)"))
        for i, one in enumerate(names) for j, other in enumerate(names) if i != j
    ]  # fmt: skip
    given["certificate"] |= {"claims": claims, "verdict": "does not hold"}
    bounds = [{key: one[key] for key in ("bound", "limit", "value", "low", "high")} for one in claims]
    return given | {"sensitive": ["race", "age"], "asked": [one["bound"] for one in claims], "bounds": bounds}


def not_private_summary():
    """Nothing is known, nothing is private, nothing was held out."""
    given = usual_summary()
    given |= dict.fromkeys(("epsilon", "epsilon_spent", "epsilon_replace_one", "epsilon_spent_total", "tolerance"))
    given |= {
        "certificate": None,
        "expected_tolerance": None,
        "ratio": interval(None),
        "accuracy": interval(None),
    }
    given |= {"worst_pair": None, "gaps": [], "best_constant": {"decision": None, **interval(None)}}
    given["most_common_decision"] = {"decision": None, **interval(None), "is_nearly_everyone": False}
    given |= {"gap": interval(None), "groups": [], "n_public": None, "private_evaluation": False, "shapes": NO_SHAPES}
    given |= {"impact_ratios": [], "unknown_groups": None, "model_digest": None}
    given["provenance"] |= {"owner": None, "data_reference": None}
    given["ledger"]["head"] = None
    given["ledger"] |= {"epsilon_spent_total": None, "epsilon_spent_total_replace_one": None}
    given["ledger"]["entries"][0]["epsilon"] = None
    given["plan"] = [part | {"epsilon": None} for part in given["plan"]]
    return given


def usual_trace(n_bounds=2, n_steps=300):
    """Bounds that settle at their limit."""
    random, steps = np.random.default_rng(7), np.arange(1, n_steps + 1)
    parts = []
    for place in range(n_bounds):
        value = 0.02 + (0.12 - 0.03 * place) * np.exp(-steps / 60) + random.normal(0, 0.003, n_steps)
        width = 0.01 + 0.05 * np.exp(-steps / 15)
        name = (UP, DOWN)[place] if place < 2 else f"selection_rate[group={place}] - selection_rate <= 0.02"
        parts.append(
            pd.DataFrame({"step": steps, "bound": name, "value": value, "low": value - width, "high": value + width,
                          "limit": 0.02, "multiplier": np.clip(np.cumsum(value - 0.02) / (1 + place), 0, None)})
        )  # fmt: skip
    return pd.concat(parts, ignore_index=True).sort_values("step", kind="stable", ignore_index=True)


VERDICTS = ("holds", "not enough data", "does not hold")


def frontier_point(method, epsilon, tolerance, accuracy, gap):
    asked = "inf" if epsilon is None else f"{epsilon:g}"
    return {
        "method": method, "model": "linear", "epsilon": epsilon, "tolerance": tolerance,
        "accuracy": interval(accuracy, 0.008), "gap": interval(gap, 0.012), "smallest_tolerance_that_holds": 0.03,
        "epsilon_spent": None if epsilon is None else epsilon * 0.99997, "seconds": 1.1,
        "verdict": "nothing was asked" if tolerance is None else VERDICTS[round(100 * tolerance) % 3],
        "command": f"fairveil train adult --method {method} --epsilon {asked} --tolerance {tolerance} --out chosen",
    }  # fmt: skip


def usual_frontier():
    """Three methods, three epsilons and one not private, three tolerances, one point unknown, two missing."""
    given = []
    for epsilon, loss in ((0.5, 0.02), (1.0, 0.008), (3.0, 0.003), (None, 0.0)):
        for tolerance in (0.1, 0.02, 0.05):
            gain = 0.02 * tolerance / 0.1
            given.append(frontier_point("dp2dp", epsilon, tolerance, 0.828 + gain - loss, 0.8 * tolerance))
            given.append(frontier_point("raco", epsilon, tolerance, 0.821 + gain - loss, tolerance + loss))
        given.append(frontier_point("dpsgd", epsilon, None, 0.851 - loss, 0.175))
    given.append(frontier_point("dpsgd", 0.1, None, None, None))
    return {
        "data": "adult", "created": "2026-11-16T12:00:00+00:00", "version": "0.1.0",
        "constraint": "demographic_parity", "delta": 1e-05, "protects": "record", "unit": "record",
        "sensitive": ["sex"], "aware": True, "confidence": 0.95, "n_planned": len(given) + 2,
        "epsilon_spent_total": 5.2, "epsilon_spent_total_replace_one": 11.0,
        "epsilon_sweep": 4.7, "epsilon_sweep_replace_one": 10.1, "epsilon_besides_sweep": 1.9, "points": given,
    }  # fmt: skip


def bench_row(label, tolerance, accuracy, gap, epsilon=1.0):
    return {
        "data": "adult", "constraint": "demographic_parity", "label": label, "contender": label, "epsilon": epsilon,
        "tolerance": tolerance, "accuracy": interval(accuracy, 0.004), "gap": interval(gap, 0.008),
    }  # fmt: skip


def usual_bench():
    """Three methods and a yardstick at two epsilons, with a failed run and a table that is not there."""
    panels, headline = [], []
    for epsilon in (1.0, "inf"):
        curves = []
        for label, loss in (("dp2dp", 0.0), ("raco", 0.01), ("dpsgd", 0.0), ("fair-logistic", 0.004)):
            rows = [bench_row(label, one, 0.83 + 0.2 * one - loss, one * 0.9, epsilon) for one in (0.0, 0.05, 0.1)]
            if label == "dpsgd":
                rows = [bench_row(label, None, 0.86, 0.18, epsilon)]
            is_private = label != "fair-logistic"
            points = [row | {"is_on_frontier": label != "raco" or row["tolerance"] != 0.05} for row in rows]
            at = [interval(None), interval(0.83), interval(0.84)]
            curves.append({"label": label, "contender": label, "is_private": is_private, "seeds": 5, "points": points,
                           "area": interval(0.08), "accuracy_at": at})  # fmt: skip
            beside = {"label": "fair-logistic", "accuracy": interval(0.85), "gap": interval(0.02)}
            headline += [row | {"optimum": beside} for row in rows if is_private]
        panels.append({"data": "adult", "constraint": "demographic_parity", "epsilon": epsilon,
                       "reference_accuracy": 0.76, "curves": curves})  # fmt: skip
    tests = [
        {"data": "adult", "constraint": "demographic_parity", "epsilon": 1.0, "tolerance": 0.05, "label": "raco",
         "baseline": "dp2dp", "figure": "accuracy", "n": 5, "p": p, "p_holm": p, "difference": interval(-0.01)}
        for p in (0.00001, 0.2, None)
    ]  # fmt: skip
    data = {"name": "adult", "sensitive": ["sex"], "aware": True, "split": "row", "unit": "record", "source": "UCI",
            "n_train": 36000, "n_test": 12000, "constant_accuracy": 0.76}  # fmt: skip
    return {
        "created": "2026-11-16T12:00:00+00:00", "version": "0.1.0", "command": "fairveil bench quick.toml",
        "n_planned": 40, "n_done": 39, "failures": [{"id": "adult-raco", "error": "Expected rows, got none."}],
        "missing": ["compas"], "confidence": 0.95, "reference_gap": 0.2, "gaps": [0.01, 0.05, 0.1],
        "baseline": "dp2dp", "test": "paired t test", "family": "Holm's correction", "n_seeds": 5, "train_share": 0.75,
        "delta": 1e-5, "data": [data], "versions": {"fairveil": ["0.1.0", "0.2.0"]}, "headline": headline,
        "cells": [], "panels": panels, "tests": tests,
    }  # fmt: skip


def hostile_bench():
    """Every text that may come from a grid is hostile."""
    facts = json.dumps(usual_bench())
    for place, name in enumerate(("adult", "raco", "dp2dp", "dpsgd", "compas", "UCI", "quick.toml")):
        facts = facts.replace(name, json.dumps(HOSTILE[place])[1:-1])
    return json.loads(facts)


def hostile_summary():
    """Every text that may come from the data is hostile."""
    given = usual_summary()
    given["groups"] = [group(name, 0.1 + place / 50) for place, name in enumerate(HOSTILE)]
    given |= {
        "data": HOSTILE[0],
        "target": HOSTILE[1],
        "classes": [HOSTILE[7], HOSTILE[2]],
        "positive": HOSTILE[7],
    }
    given |= evidence(HOSTILE, HOSTILE, HOSTILE[1], HOSTILE[7])
    given["provenance"]["purpose"] = HOSTILE[5]
    given["unknown_groups"]["sentences"] = list(HOSTILE)
    given |= {"command": HOSTILE[7] + HOSTILE[3], "sensitive": list(HOSTILE[:3]), "cautions": list(HOSTILE)}
    given["statement"] |= {"covered": list(HOSTILE), "not_covered": list(HOSTILE), "total": HOSTILE[8]}
    given["certificate"] |= {
        "sentence": HOSTILE[1], "claims": [claim(name, 0.01, "holds") for name in HOSTILE],
    }  # fmt: skip
    entry = given["ledger"]["entries"][0]
    given["ledger"]["entries"] = [entry | {"purpose": name, "at": name} for name in HOSTILE]
    given["plan"] = copy.deepcopy(PLAN)
    given["plan"][0] |= {"part": HOSTILE[0], "sampling_rates": {HOSTILE[1]: 0.1}}
    given["timing"] = dict.fromkeys(HOSTILE, 0.1)
    given["shapes"] = shapes(dict.fromkeys(HOSTILE, HOSTILE), HOSTILE[:3])
    given["noise_statements"] = [
        {"name": name, "gap": 0.1, "error": None, "about": name, "assumes": name} for name in HOSTILE
    ]
    return given


def hostile_trace():
    """Bounds with hostile names, and values that are no numbers."""
    trace = usual_trace(5, 40)
    names = dict(zip(trace["bound"].unique(), HOSTILE, strict=False))
    trace["bound"] = trace["bound"].map(names)
    trace.loc[trace.index % 7 == 0, ["value", "low"]] = np.nan
    trace.loc[trace.index % 11 == 0, "high"] = np.inf
    return trace


def hostile_frontier():
    """Every text that may come from the data is hostile."""
    given = usual_frontier()
    for place, point in enumerate(given["points"]):
        point |= {"command": HOSTILE[place % len(HOSTILE)], "method": HOSTILE[place % 4]}
    return given | {"data": HOSTILE[1], "sensitive": [HOSTILE[0]], "version": HOSTILE[7]}


def tamed(value):
    """The same structure with harmless text of its own in place of every hostile one."""
    if isinstance(value, dict):
        return {tamed(key): tamed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [tamed(one) for one in value]
    if isinstance(value, str):
        for place, name in enumerate(HOSTILE):
            value = value.replace(name, f"tame {place}")
    return value


CASES = {
    "usual": lambda: report_page(usual_summary(), usual_trace()),
    "fairdp": lambda: report_page(fairdp_summary()),
    "many": lambda: report_page(many_groups_summary(), usual_trace(12, 500)),
    "not-private": lambda: report_page(not_private_summary()),
    "hostile": lambda: report_page(hostile_summary(), hostile_trace()),
    "frontier": lambda: frontier_page(usual_frontier()),
    "hostile-frontier": lambda: frontier_page(hostile_frontier()),
    "bench": lambda: bench_page(usual_bench()),
    "hostile-bench": lambda: bench_page(hostile_bench()),
    "empty-frontier": lambda: frontier_page(usual_frontier() | {"points": [], "epsilon_spent_total": None}),
}


@pytest.fixture(params=CASES)
def any_page(request):
    """Each page in turn: its name and its text."""
    return request.param, CASES[request.param]()


@pytest.fixture
def made():
    """Makers of what pages are drawn from."""
    return SimpleNamespace(
        HOSTILE=HOSTILE, usual=usual_summary, fairdp=fairdp_summary, many=many_groups_summary,
        fifty=fifty_groups_summary,
        not_private=not_private_summary, hostile=hostile_summary, trace=usual_trace, hostile_trace=hostile_trace,
        frontier=usual_frontier,
        hostile_frontier=hostile_frontier, tamed=tamed, interval=interval, group=group,
    )  # fmt: skip


@pytest.fixture(scope="session")
def chrome():
    """A headless Chromium that logs its console and its network."""
    program, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if program is None or driver is None:
        (pytest.fail if "CI" in os.environ else pytest.skip)("no chromium or chromedriver on PATH")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield browser
    browser.quit()


@pytest.fixture
def open_page(chrome, tmp_path):
    """A function that writes a page to disk and opens it in a window of a given width and colour scheme."""

    def opened(page, width=1200, scheme="light"):
        path = tmp_path / "page.html"
        path.write_text(page, encoding="utf-8")
        chrome.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})
        for log in ("browser", "performance"):
            chrome.get_log(log)
        chrome.get(path.as_uri())
        chrome.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        return chrome

    return opened


@pytest.fixture
def artefacts(tmp_path) -> Path:
    """The folder for pictures: FAIRVEIL_ARTEFACTS if set."""
    folder = Path(os.environ.get("FAIRVEIL_ARTEFACTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def picture(artefacts):
    """A function that saves the whole page as PNG."""

    def taken(browser, name):
        width, height = browser.execute_script(
            "const page = document.documentElement; return [page.scrollWidth, page.scrollHeight]"
        )
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, 12000), "scale": 1}
        shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
        (artefacts / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))

    return taken
