"""Accuracy and gap on held-out rows, over repeated random splits, beside the non-private twin.

The figures are exact counts on held-out rows of public data, for research: a data holder gets private ones from
`fairveil train`. The twin is scikit-learn's LogisticRegression on the same encoding and the same splits, neither
private nor fair; `--epsilon inf` gives our own method without privacy. Under demographic parity with a rule that reads
the group, the *fair* twin is that model with the exact optimum of the same program on all training rows: its held-out
gap is the floor of the measurement. Splits are seeded (run r uses seed 1000 + r; seeds below 100 were used while the
defaults were set); noise never is. "gap" is the largest left side of the constraint's bounds: for a parity the largest
difference between groups, for a cap the rate itself.

    python benchmarks/quality.py --dataset adult --method raco --epsilon 1 --tolerance 0.05 --runs 10 --json
    python benchmarks/quality.py --dataset adult --method dp2dp --epsilon 0.5,1,3 --runs 20 --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
import itertools
import json
import math
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t
from sklearn.linear_model import LogisticRegression

from fairveil import (
    Descent,
    DualSteps,
    FlipFitting,
    Ledger,
    NoisyDescent,
    OutputPerturbation,
    ParityFitting,
    ParityPostprocessor,
    PrivateClassifier,
    RandomizedParityPostprocessor,
    RateConstrained,
    RateConstrainedClassifier,
    Schema,
    ScoreHistogram,
    ToleranceNotMet,
)
from fairveil.data.datasets import dataset_path, dataset_schema
from fairveil.data.encoding import Encoder
from fairveil.fairness.cells import Attribute, Population
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, Parity, constrain
from fairveil.postprocess.exact import ExactProblem

TRAIN_SHARE = 0.75
FIRST_SEED = 1000
UNBOUNDED = {
    "dpsgd": lambda model: Descent(model=model),
    "dpsgdf": lambda model: Descent(model=model, group_clipping=True),
    "output": lambda model: OutputPerturbation(),
}
RULES = ("dp2dp", "parity")
METHODS = sorted([*UNBOUNDED, *RULES, "raco"])
SOLVERS = {"auto": None, "histogram": ScoreHistogram(), "steps": DualSteps(), "descent": NoisyDescent()}
LARGEST_PROGRAM = 100_000
"""Rows for which the fair twin solves the linear program; above, the same optimum by its dual."""
NAMES = {"adult": "adult", "credit_default": "credit-card"}
"""Data sets as the published curves call them."""


@dataclass(frozen=True)
class Bench:
    """A data set with its schema, its groups and labels as codes, ready to be split again and again."""

    frame: pd.DataFrame
    schema: Schema
    people: Population
    y: np.ndarray
    groups: np.ndarray
    first_seed: int

    @classmethod
    def of(cls, options: argparse.Namespace) -> "Bench":
        schema = Schema.read(options.schema) if options.schema else dataset_schema(options.dataset)
        frame, encoder = pd.read_parquet(dataset_path(options.dataset)), Encoder(schema)
        frame = frame[encoder.keep(frame)].reset_index(drop=True)
        names = options.sensitive.split(",") if options.sensitive else [schema.sensitive[0].column]
        entries = tuple(schema.sensitive_named(name) for name in names)
        attributes = tuple(Attribute(entry.column, entry.groups) for entry in entries)
        classes = schema.target.classes
        people = Population(attributes, classes, classes.index(schema.target.positive))
        y = encoder.targets(frame[schema.target.column])
        groups = people.code([encoder.groups(frame[entry.column], entry) for entry in entries])
        schema = schema.model_copy(update={"sensitive": entries, "id_column": None})
        if not options.aware:
            schema = schema.without(*(name for name in names if name in schema.columns))
        return cls(frame, schema, people, y, groups, options.first_seed)

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        known = np.flatnonzero(self.y >= 0)
        is_train = np.random.default_rng(self.first_seed + seed).random(len(known)) < TRAIN_SHARE
        return known[is_train], known[~is_train]

    def figures(
        self, decisions: np.ndarray, rows: np.ndarray, constraint: Constraint, smallest: int
    ) -> tuple[float, float]:
        """Return exact accuracy and gap of decisions (class codes), over bounds on at least `smallest` people each."""
        bounds = constrain(constraint, self.people)
        cells = bounds.cells[self.groups[rows], self.y[rows]]
        counts = np.zeros((bounds.n_cells, bounds.n_classes))
        np.add.at(counts, (cells[cells >= 0], decisions[cells >= 0]), 1)
        is_large = bounds.smallest_parts(counts) >= smallest
        gap = bounds.values(counts)[is_large].max() if is_large.any() else math.nan
        return float(np.mean(decisions == self.y[rows])), float(gap)


@dataclass(frozen=True)
class Setting:
    """One row of the answer."""

    method: str
    model: str
    constraint: str
    against: str
    epsilon: float
    delta: float
    tolerance: float | None
    clip_norm: float | None
    last_look: bool
    aware: bool
    solver: str
    part: float | None
    decoupled: bool
    mode: str

    @property
    def asked(self) -> Constraint:
        kind, tolerance = CONSTRAINT_TYPES[self.constraint], self.tolerance or 0.0
        return kind(tolerance, against=self.against) if issubclass(kind, Parity) else kind(tolerance)

    def classifier(self, schema: Schema, sensitive: list[str]) -> PrivateClassifier:
        if self.method in UNBOUNDED:
            recipe = UNBOUNDED[self.method](self.model)
            return PrivateClassifier(self.epsilon, self.delta, recipe, schema, sensitive, ledger=Ledger())
        budget = (self.epsilon, self.delta)
        if self.method == "dp2dp":
            how = ParityFitting(self.aware, SOLVERS[self.solver], self.part, decoupled=self.decoupled)
            return ParityPostprocessor(
                Descent(model=self.model), self.asked, *budget, how, schema, sensitive, ledger=Ledger()
            )
        if self.method == "parity":
            flips = FlipFitting(self.mode, self.decoupled, part=self.part)
            return RandomizedParityPostprocessor(
                Descent(model=self.model), self.asked, *budget, flips, schema, sensitive, ledger=Ledger()
            )
        recipe = RateConstrained(
            descent=Descent(model=self.model, clip_norm=self.clip_norm), last_look=self.last_look
        )
        return RateConstrainedClassifier(
            self.asked, self.epsilon, self.delta, recipe, schema, sensitive, ledger=Ledger()
        )


def private_run(bench: Bench, setting: Setting, seed: int) -> np.ndarray:
    train, test = bench.split(seed)
    schema = bench.schema.model_copy(update={"n_public": round(TRAIN_SHARE * len(bench.y))})
    clf = setting.classifier(schema, [entry.column for entry in schema.sensitive])
    clf.fit(bench.frame.iloc[train], bench.frame[schema.target.column].iloc[train])
    codes = {name: code for code, name in enumerate(clf.classes_.tolist())}
    return np.array([codes[name] for name in clf.predict(bench.frame.iloc[test]).tolist()])


@dataclass(frozen=True)
class Twin:
    """scikit-learn's model on one split: probabilities of the training and of the held-out rows."""

    train: np.ndarray
    test: np.ndarray

    @classmethod
    def of(cls, bench: Bench, rows: np.ndarray, seed: int) -> "Twin":
        train, test = bench.split(seed)
        model = LogisticRegression(max_iter=1000).fit(rows[train], bench.y[train])
        return cls(model.predict_proba(rows[train]), model.predict_proba(rows[test]))

    def decisions(self) -> np.ndarray:
        return self.test.argmax(axis=1)

    def fair_decisions(self, bench: Bench, seed: int, asked: Constraint) -> np.ndarray:
        """Return the decisions of the exact optimum on the training rows, by linear programming or by its dual."""
        bounds = constrain(asked, bench.people)
        train, test = bench.split(seed)
        problem = ExactProblem(self.train, bounds.cells[bench.groups[train], bench.y[train]], bounds)
        is_small = len(train) <= LARGEST_PROGRAM
        prices = problem.multipliers() if is_small else problem.hard_max_multipliers()
        tilts = problem.tilts(prices)[bounds.cells[bench.groups[test], bench.y[test]]]
        return (self.test - tilts).argmax(axis=1)


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % interval over runs."""
    mean, n = float(np.mean(values)), len(values)
    half = float(t.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    return mean, mean - half, mean + half


def measure(bench: Bench, options: argparse.Namespace, setting: Setting, twins: list[Twin]) -> dict:
    start = time.perf_counter()
    answers = [private_run(bench, setting, seed) for seed in range(options.runs)]
    seconds = (time.perf_counter() - start) / options.runs
    tests = [bench.split(seed)[1] for seed in range(options.runs)]
    ours, theirs = (
        [
            bench.figures(decisions, test, setting.asked, options.smallest_group)
            for decisions, test in zip(answers_of, tests, strict=True)
        ]
        for answers_of in (answers, [twin.decisions() for twin in twins])
    )
    accuracy, gap = interval([pair[0] for pair in ours]), interval([pair[1] for pair in ours])
    return {
        "dataset": options.dataset if not options.schema else Path(options.schema).stem,
        "method": setting.method, "model": setting.model, "constraint": setting.constraint,
        "against": setting.against, "sensitive": [a.name for a in bench.people.attributes],
        "epsilon": None if math.isinf(setting.epsilon) else setting.epsilon, "delta": setting.delta,
        "tolerance": setting.tolerance, "clip_norm": setting.clip_norm, "last_look": setting.last_look,
        **({"solver": setting.solver, "part": setting.part, "decoupled": setting.decoupled}
           if setting.method in RULES else {}),
        **({"mode": setting.mode} if setting.method == "parity" else {}),
        "aware": options.aware, "accuracy_mean": accuracy[0], "accuracy_low": accuracy[1],
        "accuracy_high": accuracy[2], "gap_mean": gap[0], "gap_low": gap[1], "gap_high": gap[2],
        "gap_largest": float(np.max([pair[1] for pair in ours])),
        "nonprivate_accuracy": float(np.mean([pair[0] for pair in theirs])),
        "nonprivate_gap": float(np.mean([pair[1] for pair in theirs])),
        **fair_twin(bench, options, setting, twins),
        "runs": options.runs, "seconds_per_run": seconds, "evaluation": "exact, on public held-out rows",
        **published(options, setting),
    }  # fmt: skip


def fair_twin(bench: Bench, options: argparse.Namespace, setting: Setting, twins: list[Twin]) -> dict:
    """Return accuracy and gap (the floor) of the exact fair optimum, neither private nor noisy, on the same splits."""
    if not (setting.method in RULES and options.aware and setting.constraint == "demographic_parity"):
        return {}
    figures = [
        bench.figures(
            twin.fair_decisions(bench, seed, setting.asked),
            bench.split(seed)[1],
            setting.asked,
            options.smallest_group,
        )
        for seed, twin in enumerate(twins)
    ]
    accuracy, gap = np.mean(figures, axis=0)
    return {"fair_twin_accuracy": float(accuracy), "floor": float(gap)}


def published(options: argparse.Namespace, setting: Setting) -> dict:
    """Return the published curves at the same data set, constraint and epsilon: others' figures, not ours."""
    if options.published is None:
        return {}
    with open(options.published, newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["dataset"] == NAMES.get(options.dataset)
            and row["constraint"] == setting.constraint
            and float(row["epsilon"]) == setting.epsilon
        ]
    return {
        "published": [
            {
                "method": row["method"],
                "accuracy": 1 - float(row["error_or_accuracy"]),
                "gap": float(row["gap"]),
            }
            for row in rows
        ]
    }


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    several = "one or several, with commas"
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--schema", help="a schema file for another task on the same rows")
    parser.add_argument("--method", default="dpsgd", choices=METHODS)
    parser.add_argument("--model", default="linear", choices=["linear", "mlp"])
    parser.add_argument("--constraint", default="demographic_parity", choices=sorted(CONSTRAINT_TYPES))
    parser.add_argument("--against", default="pairs", choices=["pairs", "rest"])
    parser.add_argument("--sensitive", help=several)
    parser.add_argument("--aware", action="store_true", help="the model may read the sensitive columns")
    parser.add_argument("--unaware", action="store_true", help="dp2dp without reading the sensitive columns")
    parser.add_argument("--solver", default="auto", choices=sorted(SOLVERS), help="dp2dp only")
    parser.add_argument("--part", type=float, help="dp2dp and parity: a part of the rows for the rule alone")
    parser.add_argument("--decoupled", action="store_true", help="dp2dp and parity: one model for each group")
    parser.add_argument("--mode", default="flips", choices=["flips", "scores"], help="parity only")
    parser.add_argument("--epsilon", default="1", help=f"{several}; inf: no privacy")
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--tolerance", help=f"{several}; 0 for dp2dp and parity")
    parser.add_argument("--clip-norm", help=f"{several}; raco only")
    parser.add_argument("--no-look", action="store_true", help="raco without its last look")
    parser.add_argument(
        "--smallest-group", type=int, default=0, help="leave out bounds on fewer held-out rows"
    )
    parser.add_argument("--published", help="a CSV of published curves to print beside ours")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help="of the splits")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    options = parser.parse_args(arguments)
    if options.method in RULES:
        options.aware = not options.unaware
        options.tolerance = options.tolerance or "0"
    return options


def settings_of(options: argparse.Namespace) -> list[Setting]:
    if options.method == "raco" and options.tolerance is None:
        raise SystemExit("Expected --tolerance for raco, got none.")
    numbers = [
        [None] if text is None else [float(number) for number in text.split(",")]
        for text in (options.epsilon, options.tolerance, options.clip_norm)
    ]
    return [
        Setting(
            options.method, options.model, options.constraint, options.against, epsilon, options.delta, tolerance,
            clip_norm, not options.no_look, options.aware, options.solver, options.part, options.decoupled,
            options.mode,
        )
        for epsilon, tolerance, clip_norm in itertools.product(*numbers)
    ]  # fmt: skip


def rounded(value: object) -> object:
    if isinstance(value, list):
        return [rounded(one) for one in value]
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, float):
        return round(value, 5) if math.isfinite(value) else None
    return value


def main() -> None:
    options = options_of(sys.argv[1:])
    settings, bench = settings_of(options), Bench.of(options)
    rows = Encoder(bench.schema).rows(bench.frame)
    twins = [Twin.of(bench, rows, seed) for seed in range(options.runs)]
    results = []
    for setting in settings:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ToleranceNotMet)  # the figures say it
            results.append(rounded(measure(bench, options, setting, twins)))
        if not options.json:
            row = results[-1]
            print(
                f"# epsilon {setting.epsilon:g} tolerance {setting.tolerance} clip norm {setting.clip_norm}: accuracy "
                f"{row['accuracy_mean']:.4f} gap {row['gap_mean']:.4f}",
                file=sys.stderr,
            )
    print(json.dumps({"rows": results}, allow_nan=False))


if __name__ == "__main__":
    main()
