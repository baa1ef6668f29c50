"""The functional mechanism beside DP-SGD on tables of three and four classes: accuracy and largest gap of any class.

The accuracy and the gap in the rate of every decision between groups are exact, on rows that nobody trained on (the
benchmark sees them, no user does). Under a tolerance the functional mechanism gives one model; DP-SGD bounds nothing.
Splits are random, three quarters to train on, by seeds from 1000 on.

    python benchmarks/several_classes.py --runs 5 --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from _harness import Bench
from fairveil import DemographicParity, Ledger, PrivateClassifier, Schema
from fairveil.data.datasets import dataset_path, dataset_schema
from fairveil.methods.functional import FunctionalClassifier

HERE = Path(__file__).parent
FIRST_SEED, TRAIN_SHARE = 1000, 0.75
TOLERANCE = 0.05


def abalone() -> Schema:
    """Return all rows of abalone with three bands of rings; the groups are the sexes, infants included."""
    schema = Schema.read(HERE / "schemas" / "abalone_fairdp.toml")
    target = schema.target.model_copy(
        update={"classes": ("8 or less", "9 and 10", "more"), "positive": "more", "cuts": (9, 11)}
    )
    sensitive = (schema.sensitive[0].model_copy(update={"groups": ("F", "M", "I")}),)
    return schema.model_copy(update={"target": target, "sensitive": sensitive, "where": (), "n_public": 4177})


def adult() -> Schema:
    """Return Adult with three bands of education, which no longer is an input."""
    schema = dataset_schema("adult").without("education")
    target = schema.target.model_copy(
        update={
            "column": "education_num", "classes": ("school", "some college", "degree"), "positive": "degree",
            "cuts": (10, 13),
        }
    )  # fmt: skip
    return schema.model_copy(update={"target": target, "sensitive": schema.sensitive[:1]})


def measured(clf: Any, frame: pd.DataFrame, y: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """Return the accuracy and the largest gap of any class on other rows."""
    decided = clf.predict(frame)
    shares = [[np.mean(decided[groups == one] == name) for name in clf.classes_] for one in np.unique(groups)]
    return float(np.mean(decided == y)), float(np.ptp(np.array(shares), axis=0).max())


def compare(table: str, name: str, schema: Schema, epsilon: float, runs: int) -> dict[str, Any]:
    """Return mean and standard error of accuracy and gap for each method."""
    column, labels = schema.sensitive[0].column, schema.target.column
    bench = Bench.of(pd.read_parquet(dataset_path(name)), schema, (column,))
    frame, groups, names = bench.frame, bench.groups, np.array(schema.target.classes)
    y = names[bench.y]  # rows that the schema leaves out take no part
    found: dict[str, list[tuple[float, float]]] = {}
    for run in range(runs):
        train, test = bench.random_split(FIRST_SEED + run, TRAIN_SHARE)
        facts = {"epsilon": epsilon, "schema": bench.public(len(train))}
        facts |= {"sensitive": column, "ledger": Ledger()}
        several = {
            "DP-SGD": PrivateClassifier(**facts),
            "functional": FunctionalClassifier(None, **facts),
            f"functional, tolerance {TOLERANCE}": FunctionalClassifier(DemographicParity(TOLERANCE), **facts),
        }
        for method, clf in several.items():
            clf.fit(frame.iloc[train], frame[labels].iloc[train])
            found.setdefault(method, []).append(measured(clf, frame.iloc[test], y[test], groups[test]))
    rows: dict[str, Any] = {
        "table": table,
        "epsilon": epsilon,
        "rows": int(np.sum(bench.y >= 0)),
        "classes": len(names),
    }
    rows["most common"] = round(float(np.bincount(bench.y[bench.y >= 0]).max() / np.sum(bench.y >= 0)), 4)
    for method, pairs in found.items():
        means, errors = np.mean(pairs, axis=0), np.std(pairs, axis=0, ddof=1) / math.sqrt(runs)
        rows[method] = {
            "accuracy": f"{means[0]:.4f} +- {errors[0]:.4f}",
            "gap": f"{means[1]:.4f} +- {errors[1]:.4f}",
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    bands = Schema.read(HERE / "schemas" / "acs_income_bands.toml")
    tables = (("Abalone", "abalone", abalone()), ("Adult", "adult", adult()), ("ACS", "acs_person_2018", bands))
    for epsilon in map(float, options.epsilon.split(",")):
        for table, name, schema in tables:
            found = compare(table, name, schema, epsilon, options.runs)
            print(json.dumps(found) if options.json else found, flush=True)


if __name__ == "__main__":
    main()
