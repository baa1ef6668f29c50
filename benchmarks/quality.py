"""Accuracy and gap on held-out rows, over repeated random splits, beside the non-private twin.

The figures are exact counts on held-out rows of public data, for research: a data holder gets private ones from
`fairveil train`. The twin is scikit-learn's LogisticRegression on the same encoding and the same splits, neither
private nor fair; `--epsilon inf` gives our own method without privacy. "boosting_*" are boosted trees on the raw table,
which say what the encoding and the linear model cost (`--no-boosting` leaves them out). For dp2dp and parity, the
*fair* twins are these models with the best rule on all training rows under the bound that is asked for: one that reads
the group ("fair_twin_accuracy", "fair_boosting_accuracy", with the held-out gaps "floor" and "boosting_floor"), or with
`--unaware` one that does not ("unaware_twin_*", "unaware_boosting_*"). Their held-out gap is the floor of the
measurement. With `--before`, "gain" is the accuracy over that of the plain linear model in the same method on the same
splits. Splits are seeded (run r uses seed 1000 + r; seeds below 100 were used while the
defaults were set); noise never is. `--split original` takes the source's own training and test rows every time: runs
then differ by noise and initial weights alone. "gap" is the largest left side of the constraint's bounds: for a parity
the largest difference between groups, for a cap the rate itself; "gap_mean_of_two" is equalized odds as the mean of its
two gaps, whatever the constraint. What no option sets is the estimator's own default.

With `--frontier` the functional mechanism is fitted once a split, at `--tolerance` (0.05 if open); every tolerance then
has a row of its own: the model that was derived from the same release, beside one "retrained" at that tolerance from a
budget of its own. "ledger_epsilon" is what the books say after all models were derived, "fitted_epsilon" before.

PF-LD hides the attribute alone; its epsilon is that of a change a -> a' ("epsilon_known_unknown": what the classifier
was given), "floor" the gap when groups are shuffled, which is chance alone. `--rivals` puts its rivals beside it:
measured now, or from a file of what `baselines.py` printed.

    python benchmarks/quality.py --dataset adult --method raco --epsilon 1 --tolerance 0.05 --runs 10 --json
    python benchmarks/quality.py --dataset adult --method dp2dp --epsilon 0.5,1,3 --runs 20 --json
    python benchmarks/quality.py --schema benchmarks/schemas/adult_fairdp.toml --split original --method fairdp \\
        --epsilon 1.1 --norm-bound 0.3,1,3 --runs 10 --json
    python benchmarks/quality.py --method functional --epsilon 1 --frontier 0,0.05,0.1 --runs 10 --json
    python benchmarks/quality.py --method pfld --dataset bank --constraint equalized_odds --rivals --runs 10 --json
    python benchmarks/quality.py --dataset all --rows 100000 --method dp2dp --epsilon 1 --before --runs 5 --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import contextlib
import itertools
import json
import math
import sys
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import _pf_ld
import fairveil
from _harness import (
    FIRST_SEED,
    Answer,
    Bench,
    Splits,
    interval,
    numbers,
    paired,
    published_curves,
    read_bench,
    rounded,
)
from _yardsticks import Yardsticks, aware_answer, has_optimum, tells_labels_apart
from fairveil import (
    Descent,
    DualSteps,
    FeatureDesign,
    FlipTraining,
    Ledger,
    NoisyDescent,
    OutputPerturbation,
    ParityPostprocessor,
    ParityTraining,
    PrivateClassifier,
    RandomizedParityPostprocessor,
    RateConstrained,
    RateConstrainedClassifier,
    Schema,
    ScoreHistogram,
    SmallTableWarning,
    ToleranceNotMetWarning,
)
from fairveil.data.datasets import dataset_names, dataset_path, dataset_schema
from fairveil.errors import BadStructureError, FairveilError
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, Parity

UNBOUNDED = {
    "dpsgd": lambda descent: descent,
    "dpsgdf": lambda descent: replace(descent, clipping="groups"),
    "dpsgdg": lambda descent: replace(descent, clipping="global_adapt"),
    "output": lambda descent: OutputPerturbation(),
}
RULES = ("dp2dp", "parity")
NEWER = ("fairdp", "functional", "pfld")
OWN_MODELS = {"fairdp": fairveil.Groupwise().descent.model, "pfld": fairveil.LagrangianDual().descent.model}
METHODS = sorted([*UNBOUNDED, *RULES, *NEWER, "raco"])
SOLVERS = {"auto": None, "histogram": ScoreHistogram(), "steps": DualSteps(), "descent": NoisyDescent()}
SWEPT = ("tolerance", "clip_norm", "norm_bound", "rounds", "lambda_max", "slack")
COMPARED = ("dpsgd", "dpsgdf", "functional", "raco", *RULES)
"""Methods whose model, or features, `--before` replaces."""

FRONTIER_TOLERANCE = 0.05
"""What the one fit behind a frontier is asked for, where nothing else is said."""

NAMES = {"adult": "adult", "credit_default": "credit-card"}
"""Data sets as the published curves call them."""


def plain_descent() -> Descent:
    """Return the plain linear model that `--before` compares with: the schema's own bins, every level alike."""
    return Descent(model="linear", features=FeatureDesign(frequency_power=0))


def bench_of(options: argparse.Namespace) -> Bench:
    schema = Schema.read(options.schema) if options.schema else dataset_schema(options.dataset)
    names = options.sensitive.split(",") if options.sensitive else ()
    bench = read_bench(options.dataset, schema, options.split == "original", names, options.aware)
    return bench.subset(options.rows)


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
    norm_bound: float | None
    divisors: str
    weighting: str
    rounds: int
    lambda_max: float
    slack: float
    is_before: bool = False

    @property
    def descent(self) -> Descent:
        """How the model is trained."""
        return plain_descent() if self.is_before else Descent(model=self.model)

    @property
    def asked(self) -> Constraint:
        kind, tolerance = CONSTRAINT_TYPES[self.constraint], self.tolerance or 0.0
        return kind(tolerance, against=self.against) if issubclass(kind, Parity) else kind(tolerance)

    def classifier(self, schema: Schema, sensitive: list[str]) -> PrivateClassifier:
        if self.method in UNBOUNDED:
            recipe = UNBOUNDED[self.method](self.descent)
            return PrivateClassifier(self.epsilon, self.delta, recipe, schema, sensitive, ledger=Ledger())
        budget = (self.epsilon, self.delta)
        if self.method == "dp2dp":
            how = ParityTraining(
                self.aware,
                SOLVERS[self.solver],
                self.part,
                decoupled=self.decoupled,
                base=self.descent,
            )
            return ParityPostprocessor(self.asked, *budget, how, schema, sensitive, ledger=Ledger())
        if self.method == "parity":
            flips = FlipTraining(self.mode, self.decoupled, rule_fraction=self.part, base=self.descent)
            return RandomizedParityPostprocessor(self.asked, *budget, flips, schema, sensitive, ledger=Ledger())
        if self.method in NEWER:
            return getattr(self, self.method)(schema, sensitive)
        descent = replace(self.descent, clip_norm=self.clip_norm)
        recipe = RateConstrained(descent=descent, final_check=self.last_look)
        return RateConstrainedClassifier(
            self.asked, self.epsilon, self.delta, recipe, schema, sensitive, ledger=Ledger()
        )

    def fairdp(self, schema: Schema, sensitive: list[str]) -> PrivateClassifier:
        own = fairveil.Groupwise().descent
        how = fairveil.Groupwise(replace(own, model=self.model), self.norm_bound, self.divisors)
        return fairveil.GroupwiseClassifier(self.epsilon, self.delta, how, schema, sensitive, ledger=Ledger())

    def functional(self, schema: Schema, sensitive: list[str]) -> PrivateClassifier:
        how = fairveil.Functional(weighting=self.weighting, rounds=self.rounds)
        if self.is_before:
            how = replace(how, features=plain_descent().features)
        asked = None if self.tolerance is None else self.asked
        return fairveil.FunctionalClassifier(asked, self.epsilon, self.delta, how, schema, sensitive, ledger=Ledger())

    def pfld(self, schema: Schema, sensitive: list[str]) -> PrivateClassifier:
        how = _pf_ld.recipe_of(self.model, self.lambda_max, self.slack)
        return _pf_ld.classifier(self.asked, self.epsilon, self.delta, how, schema)


def fitted(splits: Splits, setting: Setting, run: int) -> PrivateClassifier:
    bench, (train, _) = splits.bench, splits(run)
    schema = bench.public(splits.n_public)
    clf = setting.classifier(schema, [entry.column for entry in schema.sensitive])
    return clf.fit(bench.frame.iloc[train], bench.frame[schema.target.column].iloc[train])


def answer_of(splits: Splits, clf: PrivateClassifier, run: int) -> Answer:
    return Answer.of(clf, splits.bench.frame.iloc[splits(run)[1]], splits.bench.people.positive)


def private_run(splits: Splits, setting: Setting, run: int) -> Answer:
    return answer_of(splits, fitted(splits, setting, run), run)


def figures_of(
    splits: Splits, options: argparse.Namespace, asked: Constraint, answers: list[Answer]
) -> list[dict[str, float]]:
    """Return the figures of every run; "gap" is that of the constraint asked for."""
    bench, tests = splits.bench, [splits(run)[1] for run in range(len(answers))]
    return [
        bench.figures(answer, test)
        | {"gap": bench.largest_bound(answer.decisions, test, asked, options.smallest_group)}
        for answer, test in zip(answers, tests, strict=True)
    ]


def means_of(figures: list[dict[str, float]]) -> dict[str, tuple[float, float, float]]:
    """Return the mean of every figure over runs, with its interval."""
    largest = max(one["gap"] for one in figures)
    means = {name: interval([one[name] for one in figures]) for name in figures[0]}
    return means | {"gap_largest": (largest, largest, largest)}


def measure(splits: Splits, options: argparse.Namespace, setting: Setting, sticks: Yardsticks) -> dict:
    start = time.perf_counter()
    answers = [private_run(splits, setting, run) for run in range(options.runs)]
    seconds = (time.perf_counter() - start) / options.runs
    positive = splits.bench.people.positive
    figures, plain = (
        figures_of(splits, options, setting.asked, some)
        for some in (answers, [twin.answer(positive) for twin in sticks.plain])
    )
    ours, theirs = means_of(figures), means_of(plain)
    return {
        **described(splits, options, setting), **with_ends(ours), "runs": options.runs, "seconds_per_run": seconds,
        "auc_pr": ours["auc_pr"][0], "roc_auc": ours["roc_auc"][0], "gap_mean_of_two": ours["equalized_odds_mean"][0],
        "nonprivate_accuracy": theirs["accuracy"][0], "nonprivate_gap": theirs["gap"][0],
        "nonprivate_auc_pr": theirs["auc_pr"][0], "nonprivate_roc_auc": theirs["roc_auc"][0],
        "nonprivate_gap_mean_of_two": theirs["equalized_odds_mean"][0],
        **boosting(splits, options, setting, sticks), **fair_twins(splits, options, setting, sticks),
        **before(splits, options, setting, figures),
        "evaluation": "exact, on public held-out rows",
        **published(options, setting), **_pf_ld.more_figures(splits, options, setting, answers),
    }  # fmt: skip


def with_ends(ours: dict) -> dict:
    accuracy, gap = ours["accuracy"], ours["gap"]
    return {
        "accuracy_mean": accuracy[0], "accuracy_low": accuracy[1], "accuracy_high": accuracy[2],
        "gap_mean": gap[0], "gap_low": gap[1], "gap_high": gap[2], "gap_largest": ours["gap_largest"][0],
    }  # fmt: skip


def measure_frontier(splits: Splits, options: argparse.Namespace, setting: Setting) -> list[dict]:
    """Return a row for every tolerance: models of one release a run, beside models trained for it alone."""
    derived, spent = [], []
    for run in range(options.runs):
        clf = fitted(splits, setting, run)
        before = clf.ledger.epsilon(setting.delta)
        models = clf.frontier(options.frontier)
        spent.append((before, clf.ledger.epsilon(setting.delta)))
        derived.append([answer_of(splits, model.classifier, run) for model in models])
    books = dict(zip(("fitted_epsilon", "ledger_epsilon"), map(max, zip(*spent, strict=True)), strict=True))
    rows = []
    for tolerance, *answers in zip(options.frontier, *derived, strict=True):
        alone = replace(setting, tolerance=tolerance)
        others = [private_run(splits, alone, run) for run in range(options.runs)]
        ours, theirs = (means_of(figures_of(splits, options, alone.asked, some)) for some in (answers, others))
        rows.append(
            described(splits, options, alone) | frontier_figures(ours, theirs, tolerance) | books
            | {"fitted_tolerance": setting.tolerance, "runs": options.runs,
               "evaluation": "exact, on public held-out rows"}
        )  # fmt: skip
    return rows


def frontier_figures(ours: dict, theirs: dict, tolerance: float) -> dict:
    return with_ends(ours) | {
        "gap_above_tolerance": ours["gap"][0] - tolerance,
        "retrained_accuracy": theirs["accuracy"][0], "retrained_gap": theirs["gap"][0],
        "accuracy_over_retrained": ours["accuracy"][0] - theirs["accuracy"][0],
    }  # fmt: skip


def described(splits: Splits, options: argparse.Namespace, setting: Setting) -> dict:
    """Return what was asked for: common choices, then those of the method."""
    own = {
        "dp2dp": ("solver", "part", "decoupled"), "parity": ("solver", "part", "decoupled", "mode"),
        "fairdp": ("norm_bound", "divisors"), "functional": ("weighting", "rounds"), "pfld": ("lambda_max", "slack"),
    }  # fmt: skip
    return {
        "dataset": options.dataset if not options.schema else Path(options.schema).stem,
        "method": setting.method, "model": setting.model, "constraint": setting.constraint,
        "against": setting.against, "sensitive": [a.name for a in splits.bench.people.attributes],
        "epsilon": None if math.isinf(setting.epsilon) else setting.epsilon, "delta": setting.delta,
        "tolerance": setting.tolerance, "clip_norm": setting.clip_norm, "last_look": setting.last_look,
        **{name: getattr(setting, name) for name in own.get(setting.method, ())},
        "aware": options.aware, "split": splits.kind, "rows": len(splits.bench.y),
    }  # fmt: skip


def boosting(splits: Splits, options: argparse.Namespace, setting: Setting, sticks: Yardsticks) -> dict:
    """Return accuracy and gap of boosted trees without a bound."""
    answers = [twin.answer(splits.bench.people.positive) for twin in sticks.boosted]
    return pair_of(splits, options, setting, answers, ("boosting_accuracy", "boosting_gap"))


def fair_twins(splits: Splits, options: argparse.Namespace, setting: Setting, sticks: Yardsticks) -> dict:
    """Return accuracy and gap (the floor) of the best fair rules, neither private nor noisy, on the same splits."""
    if setting.method not in RULES or not has_optimum(setting.asked, splits):
        return {}
    asked, found = setting.asked, {}
    if options.aware:
        is_soft = tells_labels_apart(asked, splits)  # where labels do not matter, the program itself is solved
        found["fair_twin_accuracy", "floor"] = [
            aware_answer(twin, splits, run, asked) if is_soft else twin.fair_answer(splits, run, asked)
            for run, twin in enumerate(sticks.plain)
        ]
        found["fair_boosting_accuracy", "boosting_floor"] = [
            aware_answer(twin, splits, run, asked) for run, twin in enumerate(sticks.boosted)
        ]
    else:
        for name, twins in (("unaware_twin", sticks.pairs), ("unaware_boosting", sticks.boosted_pairs)):
            found[f"{name}_accuracy", f"{name}_gap"] = [
                twin.fair_answer(splits, run, asked) for run, twin in enumerate(twins)
            ]
    pairs = [pair_of(splits, options, setting, answers, names) for names, answers in found.items()]
    return {name: value for pair in pairs for name, value in pair.items()}


def pair_of(
    splits: Splits, options: argparse.Namespace, setting: Setting, answers: list[Answer], names: tuple[str, str]
) -> dict:
    """Return mean accuracy and gap under these names, nothing without answers."""
    if not answers:
        return {}
    means = means_of(figures_of(splits, options, setting.asked, answers))
    return {names[0]: means["accuracy"][0], names[1]: means["gap"][0]}


def before(splits: Splits, options: argparse.Namespace, setting: Setting, figures: list[dict[str, float]]) -> dict:
    """Return what the plain linear model has in the same method, and by how much ours is more accurate, by split."""
    if not options.before:
        return {}
    plain = replace(setting, is_before=True)
    answers = [private_run(splits, plain, run) for run in range(len(figures))]
    others = figures_of(splits, options, setting.asked, answers)
    means = means_of(others)
    gain = paired([one["accuracy"] for one in figures], [one["accuracy"] for one in others])
    return {
        "before_accuracy": means["accuracy"][0], "before_gap": means["gap"][0],
        "gain": gain[0], "gain_low": gain[1], "gain_high": gain[2],
    }  # fmt: skip


def published(options: argparse.Namespace, setting: Setting) -> dict:
    """Return the published curves at the same data set, constraint and epsilon: others' figures, not ours."""
    if options.published is None:
        return {}
    where = (NAMES.get(options.dataset), setting.constraint, setting.epsilon)
    return {"published": published_curves(options.published, *where)}


def add_own_options(parser: argparse.ArgumentParser, several: str) -> None:
    """Add the choices that only some methods have."""
    parser.add_argument("--solver", default="auto", choices=sorted(SOLVERS), help="dp2dp only")
    parser.add_argument("--part", type=float, help="dp2dp and parity: a part of the rows for the rule alone")
    parser.add_argument("--decoupled", action="store_true", help="dp2dp and parity: one model for each group")
    parser.add_argument("--mode", default="flips", choices=["flips", "scores"], help="parity only")
    parser.add_argument("--clip-norm", help=f"{several}; raco only")
    fairdp, functional = fairveil.Groupwise(), fairveil.Functional()
    parser.add_argument("--norm-bound", help=f"{several}; fairdp only: of the last layer")
    parser.add_argument("--divisors", default=fairdp.divisors, choices=["group", "common"], help="fairdp")
    parser.add_argument(
        "--weighting", default=functional.weighting, choices=["people", "groups"], help="functional only"
    )
    parser.add_argument("--rounds", default=f"{functional.rounds}", help=f"{several}; functional: releases")
    parser.add_argument("--frontier", type=numbers, help=f"{several}; functional: tolerances of one release")
    parser.add_argument("--lambda-max", help=f"{several}; pfld: the largest multiplier")
    parser.add_argument("--slack", help=f"{several}; pfld: differences that are not chased")
    parser.add_argument("--rivals", nargs="?", const="", help="pfld: its rivals, or a file of their rows")
    parser.add_argument("--no-final-check", action="store_true", help="raco without its final check")


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    several = "one or several, with commas"
    parser.add_argument("--dataset", default="adult", help="a name, or all: every one whose Parquet file is there")
    parser.add_argument("--rows", type=int, help="of larger data sets, a random part of so many, always the same")
    parser.add_argument("--schema", help="a schema file for another task on the same rows")
    parser.add_argument("--method", default="dpsgd", choices=METHODS)
    parser.add_argument("--model", choices=["auto", "linear", "mlp"], help="else the estimator's own")
    parser.add_argument("--constraint", default="demographic_parity", choices=sorted(CONSTRAINT_TYPES))
    parser.add_argument("--against", default="pairs", choices=["pairs", "rest"])
    parser.add_argument("--sensitive", help=several)
    parser.add_argument("--aware", action="store_true", help="the model may read the sensitive columns")
    parser.add_argument("--unaware", action="store_true", help="dp2dp without reading the sensitive columns")
    parser.add_argument("--epsilon", default="1", help=f"{several}; inf: no privacy")
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--tolerance", help=f"{several}; 0 for dp2dp and parity")
    add_own_options(parser, several)
    parser.add_argument("--smallest-group", type=int, default=0, help="no bound on fewer held-out rows")
    parser.add_argument("--no-boosting", action="store_true", help="without boosted trees, which are slow")
    parser.add_argument("--before", action="store_true", help="also the plain linear model, paired by split")
    parser.add_argument("--published", help="a CSV of published curves to print beside ours")
    parser.add_argument("--split", default="random", choices=["random", "original"], help="or the source's")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help="of the splits")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    options = parser.parse_args(arguments)
    if options.frontier is not None and options.method != "functional":
        parser.error(f"Expected --method functional for a frontier, got {options.method}.")
    if options.before and options.method not in COMPARED:
        parser.error(f"Expected --before with one of {', '.join(COMPARED)}, got {options.method}.")
    if options.dataset == "all" and options.schema:
        parser.error("Expected one data set for --schema, got all; name it.")
    fill(options)
    return options


def fill(options: argparse.Namespace) -> None:
    """Set what follows from other options or is the estimator's own default."""
    if options.method in RULES:
        options.aware = not options.unaware
        options.tolerance = options.tolerance or "0"
    if options.frontier is not None:
        options.tolerance = options.tolerance or f"{FRONTIER_TOLERANCE}"
    options.model = options.model or OWN_MODELS.get(options.method, Descent().model)
    options.lambda_max = options.lambda_max or f"{fairveil.LagrangianDual().lambda_max}"
    options.slack = options.slack or f"{fairveil.LagrangianDual().slack}"
    if options.norm_bound is None:
        own = fairveil.Groupwise(Descent(model=options.model)) if options.method == "fairdp" else fairveil.Groupwise()
        options.norm_bound = f"{own.largest_norm}"


def settings_of(options: argparse.Namespace) -> list[Setting]:
    if options.method == "raco" and options.tolerance is None:
        raise SystemExit("Expected --tolerance for raco, got none.")
    asked = (options.epsilon, *map(vars(options).get, SWEPT))
    several = [(None,) if text is None else numbers(text) for text in asked]
    return [
        Setting(
            options.method, options.model, options.constraint, options.against, epsilon, options.delta, tolerance,
            clip_norm, not options.no_final_check, options.aware, options.solver, options.part, options.decoupled,
            options.mode, norm_bound, options.divisors, options.weighting, int(rounds), most, slack,
        )
        for epsilon, tolerance, clip_norm, norm_bound, rounds, most, slack in itertools.product(*several)
    ]  # fmt: skip


def names_of(options: argparse.Namespace) -> list[str]:
    """Return the data sets that are asked for; of all, those whose rows are there."""
    if options.dataset != "all":
        return [options.dataset]
    found = []
    for name in dataset_names():
        with contextlib.suppress(BadStructureError):
            dataset_path(name)
            found.append(name)
    return found


def rows_of(options: argparse.Namespace, settings: list[Setting]) -> list[dict]:
    """Return the rows of one data set."""
    splits = Splits(bench_of(options), options.split, options.first_seed)
    if options.frontier:
        return [row for setting in settings for row in measure_frontier(splits, options, setting)]
    hides_group = options.method in RULES and not options.aware
    sticks = Yardsticks.of(splits, options.runs, not options.no_boosting, hides_group)
    return [measure(splits, options, setting, sticks) for setting in settings]


def main() -> None:
    options = options_of(sys.argv[1:])
    settings, is_grid, results = settings_of(options), options.dataset == "all", []
    for name in names_of(options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ToleranceNotMetWarning)  # the figures say it
            warnings.simplefilter("ignore", SmallTableWarning)
            try:
                found = rows_of(argparse.Namespace(**vars(options) | {"dataset": name}), settings)
            except FairveilError as error:
                if not is_grid:
                    raise
                found = [{"dataset": name, "method": options.method, "refused": str(error)}]
        results += [rounded(row) for row in found]
        if not options.json:
            for row in found:
                print(line_of(row), file=sys.stderr)
    print(json.dumps({"rows": results}, allow_nan=False))


def line_of(row: dict) -> str:
    if "refused" in row:
        return f"# {row['dataset']}: {row['refused']}"
    own = " ".join(f"{name} {row[name]}" for name in SWEPT if name in row)
    figures = f"accuracy {row['accuracy_mean']:.4f} gap {row['gap_mean']:.4f}"
    return f"# {row['dataset']} epsilon {row['epsilon']} {own}: {figures}"


if __name__ == "__main__":
    main()
