"""What counting scores costs the certificate, what ROC-AUC and AUC-PR it buys, and whether their intervals hold.

`coverage` draws tables from laws of which the truth is known, with the order within bins that is hardest for each end,
and counts misses of each end at a nominal 2.5 %. `certificate` is the smallest tolerance that the same counts certify
under the noise without and with scores, mean over many draws of the noise. `measured` holds one fit for each data set
and epsilon beside the exact figures of the same model on all rows, which no user has: not private.

    python benchmarks/ranking.py --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import math
import warnings
from itertools import product
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.metrics import average_precision_score, roc_auc_score

from fairveil import DemographicParity, FairClassifier, load_dataset
from fairveil.fairness.evaluation import Evaluation
from fairveil.fairness.ranking import (
    N_BINS,
    SCORE_EDGES,
    ScoreCounts,
    average_precision_figures,
    roc_auc_figures,
)

FIGURES = {"roc_auc": roc_auc_figures, "average_precision": average_precision_figures}
NOISE = (0.0, 4.0, 8.3, 20.0)
SIZES = (300, 1500, 10_000)
SPREADS = ((-1.0, 0.5), (-1.0, 1.8), (-3.0, 1.5), (0.0, 6.0))
"""Mean and standard deviation of the true log-odds: weak and strong scores, and a rare class."""


def coverage(repeats: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return how often each end misses, at a nominal 2.5 %, and how often the figure is unknown."""
    rows = []
    for (mean, spread), n, std in product(SPREADS, SIZES, NOISE):
        truth = rng.normal(mean, spread, 400_000)
        y = (rng.random(len(truth)) < expit(truth)).astype(int)
        law = np.bincount(y * N_BINS + np.searchsorted(SCORE_EDGES, truth), minlength=2 * N_BINS) / len(y)
        tables = rng.multinomial(n, law, repeats) + np.round(rng.normal(0, std, (repeats, 2 * N_BINS)))
        for name, figures in FIGURES.items():
            low, _, high = figures(*law.reshape(2, -1)[::-1, ::-1])
            found = [getattr(ScoreCounts(one.reshape(2, -1), std**2), name)(0.975) for one in tables]
            known = [one for one in found if one is not None]
            if known:
                ends = np.array(known)
                misses = float(np.mean(ends[:, 1] > low)), float(np.mean(ends[:, 2] < high))
                width = float(np.mean(ends[:, 2] - ends[:, 1]))
                facts = {"figure": name, "odds": [mean, spread], "n": n, "noise": std, "known": len(known) / repeats}
                rows.append(facts | {"low_misses": misses[0], "high_misses": misses[1], "width": round(width, 4)})
    return rows


def certificate(name: str, epsilon: float, repeats: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return the smallest tolerance from the same exact counts under both noises."""
    people = load_dataset(name)
    found: dict[str, Any] = {"data": name, "epsilon": epsilon}
    asked = {"sensitive": people.schema.sensitive[0].column, "aware": True, "schema": people.schema, "holdout": 0.2}
    exact = FairClassifier(DemographicParity(0.05), math.inf, **asked).fit(people.X, people.y).evaluation_
    for auc in (False, True):
        plan = FairClassifier(DemographicParity(0.05), epsilon, auc=auc, **asked).planned()
        std = plan.stage("holdout").releases[0].noise_multiplier
        highs = []
        for _ in range(repeats):
            counts = exact.counts + np.round(rng.normal(0, std, exact.counts.shape))
            highs.append(Evaluation(counts, std**2, exact.people).gap().high)
        word = "with_scores" if auc else "without"
        found |= {f"noise_{word}": round(std, 3), f"tolerance_{word}": round(float(np.mean(highs)), 5)}
        found[f"spread_{word}"] = round(float(np.std(highs) / math.sqrt(repeats)), 5)
    return found


def measured(name: str, epsilon: float) -> dict[str, Any]:
    """Return one fit's figures, and the exact ones of the same model on all rows: not private."""
    people = load_dataset(name)
    sensitive = people.schema.sensitive[0].column
    clf = FairClassifier(
        DemographicParity(), epsilon, sensitive=sensitive, aware=True, method="dpsgd", schema=people.schema,
        holdout=0.2, auc=True,
    ).fit(people.X, people.y)  # fmt: skip
    classes = [str(one) for one in clf.classes_]
    place = classes.index(people.schema.target.positive)
    y = np.asarray(people.y).astype(str) == people.schema.target.positive
    scores = clf.predict_proba(people.X)[:, place]
    found: dict[str, Any] = {"data": name, "epsilon": epsilon}
    for figure, oracle in (("roc_auc", roc_auc_score), ("average_precision", average_precision_score)):
        ends = getattr(clf.evaluation_, figure)().to_dict()
        found[figure] = {end: round(ends[end], 4) for end in ends} | {"all_rows": round(float(oracle(y, scores)), 4)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--dataset", default="adult,compas")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rng, names = np.random.default_rng(1000), options.dataset.split(",")
    found = {
        "coverage": coverage(options.repeats, rng),
        "certificate": [certificate(name, epsilon, options.repeats, rng) for name in names for epsilon in (0.5, 1.0)],
        "measured": [measured(name, epsilon) for name in names for epsilon in (0.5, 1.0, math.inf)],
    }
    ends = [row[end] for row in found["coverage"] for end in ("low_misses", "high_misses")]
    found["largest_share_of_misses"] = max(ends)
    found["mean_share_of_misses"] = float(np.mean(ends))
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for name, rows in found.items():
        print(name, *(rows if isinstance(rows, list) else [rows]), sep="\n  ")


if __name__ == "__main__":
    main()
