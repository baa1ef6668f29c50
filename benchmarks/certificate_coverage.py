"""How often "holds" is said falsely: random rules, people, rates and noise, with limits exactly at the truth.

A setting is a law of (group, label, decision), a number of held-out rows, a rule whose limit is its true left side (the
worst case), noise on the counts and a confidence. "Holds" is false where the upper limit lies below the truth, "does
not hold" where the lower limit lies above it. Settings include groups of 10 to 30 people, rates of 0, .001, .999 and 1,
rates that share all people but a dozen, sums of several rates, caps, ratios, and no, little and much noise.

`pooled` compares the share of all repeats with the nominal one; `significant` counts settings above the nominal rate by
an exact binomial test at 1 %, corrected for the number of tests (Bonferroni). `largest` is over single settings.

    python benchmarks/certificate_coverage.py --settings 1000 --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import binom

from fairveil.fairness.limits import left_sides, range_of
from fairveil.fairness.rates import Attribute, Population
from fairveil.fairness.rule_parser import Rule

EXTREMES = (0.0, 0.001, 0.01, 0.99, 0.999, 1.0)
USUAL = (0.03, 0.15, 0.3, 0.5, 0.7, 0.9)
NOISE = (0.0, 0.0, 0.4, 1.0, 2.5, 5.0, 10.0)
CONFIDENCES = (0.9, 0.95, 0.99)
SIGNIFICANCE = 0.01
SHOWN = 10

DISJOINT = {
    "parity": "selection_rate[g=a] - selection_rate[g=b] <= 1",
    "odds": "true_positive_rate[g=a] - true_positive_rate[g=b] <= 1",
    "errors": "error_rate[g=b] - error_rate[g=a] <= 1",
    "precision": "precision[g=a] - precision[g=b] <= 1",
    "rest": "selection_rate[not g=b] - selection_rate[g=b] <= 1",
    "cap": "false_negative_rate[g=a] <= 1",
    "cap of everyone": "false_positive_rate <= 1",
    "accuracy": "accuracy >= 0",
    "balanced": "0.5 * true_positive_rate + 0.5 * true_negative_rate >= 0",
    "three": "selection_rate[g=a] - 0.5 * selection_rate[g=b] - 0.5 * selection_rate[g=c] <= 1",
    "four": "true_positive_rate[g=a] - true_positive_rate[g=b] + 0.3 * accuracy[g=c] - false_positive_rate[g=a] <= 2",
    "fifths": "0.8 * selection_rate[g=a] - selection_rate[g=b] <= 1",
    "ratio": "{ratio!r} * selection_rate[g=a] - selection_rate[g=b] <= 1",
}
SHARED = {
    "everyone and a group": "selection_rate - selection_rate[g=a] <= 1",
    "a group and everyone": "selection_rate[g=b] - selection_rate <= 1",
    "nearly everyone": "selection_rate[not g=b] - selection_rate <= 1",
    "positives": "true_positive_rate - true_positive_rate[g=a] <= 1",
    "mixed people": "0.8 * selection_rate - precision[g=a] <= 1",
    "same people": "accuracy - 0.5 * selection_rate <= 1",
    "precision and recall": "precision - true_positive_rate <= 1",
    "two attributes": "selection_rate[g=a] - selection_rate[h=x] <= 1",
    "two groups": "selection_rate - 0.5 * selection_rate[g=a] - 0.5 * selection_rate[g=b] <= 1",
    "ratio to everyone": "0.8 * selection_rate - selection_rate[g=b] <= 1",
    "many": "selection_rate + accuracy[g=a] - precision[h=x] - 0.2 * error_rate[h=y] <= 2",
}
PEOPLE = Population((Attribute("g", ("a", "b", "c")), Attribute("h", ("x", "y"))), ("no", "yes"))


@dataclass(frozen=True, eq=False)
class Setting:
    kind: str
    rule: str
    n_rows: int
    sizes: tuple[float, ...]
    rates: tuple[float, ...]
    law: np.ndarray
    std: float
    confidence: float


def draw_setting(rng: np.random.Generator, kinds: dict[str, str]) -> Setting:
    kind = str(rng.choice(list(kinds)))
    n_rows = int(rng.choice([60, 120, 400, 1500, 7000]))
    few = float(rng.choice([10, 12, 15, 20, 30, 0.3 * n_rows]))
    shares = np.array([0.0, few, float(rng.choice([0, few / 2, 12, 0.2 * n_rows])), float(rng.choice([0, 0, 5]))])
    shares = np.minimum(shares, 0.3 * n_rows)
    shares[0] = n_rows - shares.sum()
    if rng.random() < 0.3:
        shares[:2] = shares[1::-1]  # the first group of a rule may be the small one
    # both attributes are known, or almost; the second is independent of the first, or nearly the same
    other = rng.dirichlet([1.0, 1.0], size=4) @ np.eye(2, 3)
    if rng.random() < 0.3:
        other[:, :] = [0.999, 0.001, 0.0]
    spread = rng.choice(EXTREMES if rng.random() < 0.4 else USUAL, size=(4, 2))
    if rng.random() < 0.4:
        spread[:] = spread[0]  # all groups alike
    if rng.random() < 0.5:
        spread[:, 1] = spread[:, 0]  # decisions do not depend on the label
    positives = rng.choice([0.1, 0.3, 0.5, 0.9], size=4)
    labels = np.stack([1 - positives, positives], axis=1)
    law = (shares[:, None] / n_rows * other)[:, :, None, None] * np.stack(
        [labels * (1 - spread), labels * spread], axis=2
    )[:, None]
    first, second = ((labels * spread).sum(axis=1))[:2]
    ratio = round(float(second / first), 6) if 0 < second < first else 0.8
    return Setting(
        kind=kind, rule=kinds[kind].format(ratio=ratio), n_rows=n_rows, sizes=tuple(np.round(shares, 1)),
        rates=tuple(spread.ravel()), law=law.reshape(PEOPLE.n_groups, 2, 2), std=float(rng.choice(NOISE)),
        confidence=float(rng.choice(CONFIDENCES)),
    )  # fmt: skip


def draw_tables(rng: np.random.Generator, setting: Setting, repeats: int) -> np.ndarray:
    """Return noisy counts of sampled people, with discrete Gaussian noise."""
    tables = rng.multinomial(setting.n_rows, setting.law.ravel(), repeats).astype(float)
    if setting.std:
        reach, mass = noise_law(setting.std)
        tables += rng.choice(reach, size=tables.shape, p=mass)
    return tables.reshape(repeats, *setting.law.shape)


@cache
def noise_law(std: float) -> tuple[np.ndarray, np.ndarray]:
    reach = np.arange(-int(9 * std) - 2, int(9 * std) + 3)
    mass = np.exp(-0.5 * (reach / std) ** 2)
    return reach, mass / mass.sum()


def true_value(setting: Setting) -> float | None:
    """Return the left side of the rule for everyone, None if some rate is of nobody."""
    total = 0.0
    for weight, rate in Rule(setting.rule).bound.terms:
        above, below = (float((form * setting.law).sum()) for form in rate.forms(PEOPLE))
        if below <= 0:
            return None
        total += weight * above / below
    return total


def misses(setting: Setting, truth: float, tables: np.ndarray) -> dict[str, int]:
    """Return in how many repeats "holds" and "does not hold" are false, and "holds" a little below the truth."""
    terms = Rule(setting.rule).bound.terms
    found, is_known = left_sides(terms, tables, setting.std**2, PEOPLE)
    low, high = range_of(terms)
    upper = np.where(is_known, found.upper(setting.confidence), high)
    lower = np.where(is_known, found.lower(setting.confidence), low)
    return {
        "holds": int(np.sum(upper < truth - 1e-9)),
        "holds_below": int(np.sum(upper <= truth - 0.002)),
        "broken": int(np.sum(lower > truth + 1e-9)),
    }


def measure(settings: int, repeats: int, seed: int, kinds: dict[str, str]) -> list[dict]:
    rng, rows = np.random.default_rng(seed), []
    while len(rows) < settings:
        setting = draw_setting(rng, kinds)
        truth = true_value(setting)
        if truth is None:
            continue
        found = misses(setting, truth, draw_tables(rng, setting, repeats))
        rows.append(
            {
                "kind": setting.kind, "rule": setting.rule, "truth": round(truth, 6), "n_rows": setting.n_rows,
                "sizes": setting.sizes, "rates": setting.rates, "noise_std": setting.std,
                "confidence": setting.confidence, "repeats": repeats, **found,
            }
        )  # fmt: skip
    return rows


def judge(rows: list[dict], error: str) -> dict:
    """Return pooled and single false rates of one error, and which settings are significantly above nominal."""
    found = np.array([row[error] for row in rows])
    repeats = np.array([row["repeats"] for row in rows])
    nominal = np.array([1 - row["confidence"] for row in rows])
    chance = binom.sf(found - 1, repeats, nominal)
    pooled = {}
    for confidence in sorted({row["confidence"] for row in rows}):
        is_one = np.isclose(nominal, 1 - confidence)
        total = int(repeats[is_one].sum())
        spread = 2 * np.sqrt(confidence * (1 - confidence) / total)
        pooled[f"{confidence:g}"] = {
            "false": round(float(found[is_one].sum() / total), 6),
            "allowed": round(1 - confidence + float(spread), 6),
        }
    worst = np.argsort(chance, kind="stable")[:SHOWN]
    return {
        "pooled": pooled,
        "significant": int(np.sum(chance < SIGNIFICANCE / len(rows))),
        "largest_ratio_to_nominal": round(float(np.max(found / repeats / nominal)), 4),
        "worst": [{**rows[i], "chance": float(chance[i])} for i in worst],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=int, default=1000, help="of each sort: disjoint and shared people")
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    options = parser.parse_args()
    answer = {"settings": options.settings, "repeats": options.repeats, "seed": options.seed}
    for name, kinds in (("disjoint", DISJOINT), ("shared", SHARED)):
        rows = measure(options.settings, options.repeats, options.seed, kinds)
        answer[name] = {error: judge(rows, error) for error in ("holds", "holds_below", "broken")}
        if not options.json:
            for error, found in answer[name].items():
                print(f"{name}, {error}: {found['pooled']}, {found['significant']} significant")
    print(json.dumps(answer, allow_nan=False))


if __name__ == "__main__":
    main()
