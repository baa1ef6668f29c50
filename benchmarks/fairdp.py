"""FairDP's own experiments (Tran et al. 2023) with our methods, beside the figures that the paper prints.

    paper3      its four data sets at the epsilons of its Table 3
    norm_bound  Adult, full and in the paper's 41 inputs, over the bound M on the last layer
    imbalance   the larger groups of the training rows cut down to rho times the smallest, test rows unchanged
    synthetic   its Table 2 in trend: separated groups, with the worst-case bound over the training noise
    baselines   one data set and one epsilon: DP-SGD, DPSGD-F, FairDP, FM, FairFM, and the smoothed ones

Figures are exact counts on held-out rows of public data, for research. Adult and Abalone keep the train and test rows
of their source (runs differ by noise and initial weights), the others are split 80/20 by group and label with seed
1000 + run; noise is never seeded. "utility" names the figure the paper ranks by: accuracy, on credit default the area
under the precision-recall curve. Equalized odds stands twice, as the larger and as the mean of its two gaps: in most
rows of the paper it is below equal opportunity, so it cannot be the larger. "clean" is scikit-learn's
LogisticRegression on the same rows, neither private nor fair. "published" is what the paper prints for FairDP, whatever
our method. The law school file stops at 65,535 of 124,557 rows: compare in kind only.

    python benchmarks/fairdp.py --table paper3 --runs 10 --published paper_tables.csv --json
    python benchmarks/fairdp.py --table norm_bound --norm-bounds 0.1,0.3,1,3,10 --runs 10 --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import fairveil
from fairveil import DemographicParity, Descent, EqualizedOdds, Ledger, Schema, TruePositiveRateParity
from fairveil.data.datasets import dataset_path, dataset_schema
from fairveil.data.encoding import Encoder
from fairveil.data.synthetic import make_separated_groups
from fairveil.fairness.constraints import Constraint
from measuring import FIRST_SEED, Answer, Bench, interval, published_rows, rounded, with_source_split

SCHEMAS = Path(__file__).parent / "schemas"
TRAIN_SHARE = 0.8
PAPER = "003_2ad90662ac9819f1.txt"
"""FairDP, as files of published figures call it."""

LAST_BATCH, LAST_RATE = 4, 1.0
"""Batch and learning rate of the last tenth of the steps on the synthetic data (Appendix F)."""

HOLDOUT = 0.15
"""The share of the training rows behind the certificates on synthetic data."""


GAPS = {
    "demographic_parity": DemographicParity(),
    "equal_opportunity": TruePositiveRateParity(),
    "equalized_odds_max": EqualizedOdds(),
}
METHODS = (
    "clean", "dpsgd", "dpsgdf", "fairdp", "functional", "functional_groups", "dpsgd_smooth",
    "functional_groups_smooth",
)  # fmt: skip
"""The paper's names for the last four: FM, FairFM, DPSGD-Smooth (of a logistic regression), FairFM-Smooth."""

LINEAR = {"clean", "functional", "functional_groups", "dpsgd_smooth", "functional_groups_smooth"}
SMOOTH = "_smooth"
SMOOTHING = 0.5
"""The deviation of FairSmooth's draws, where none is given."""


@dataclass(frozen=True)
class Source:
    """A data set as the paper uses it: its printed name, our schema, the figure it is ranked by, its epsilons."""

    name: str
    printed: str
    schema: str | None
    utility: str
    epsilons: tuple[float, ...]
    keeps_split: bool = False


SOURCES = {
    source.name: source
    for source in (
        Source("adult", "Adult", "adult_fairdp", "accuracy", (0.5, 1.1, 2.0), keeps_split=True),
        Source("law_school", "Lawschool", "law_school_fairdp", "accuracy", (0.5, 1.0, 2.5)),
        Source("credit_default", "Default-CCC", None, "auc_pr", (1.0, 2.5, 5.0)),
        Source("abalone", "Abalone", "abalone_fairdp", "accuracy", (0.5, 0.9, 2.0), keeps_split=True),
    )
}
SYNTHETIC = Source("synthetic", "Synthetic", None, "roc_auc", (0.1, 0.5, 0.75, 1.0))


@dataclass(frozen=True)
class Method:
    """A way to train; the knobs that it does not have are ignored."""

    name: str
    model: str = "mlp"
    norm_bound: float = 3.0
    divisors: str = "group"
    smoothing: float = SMOOTHING
    last_batch: int | None = None


@dataclass(frozen=True)
class Case:
    """One row of the answer: which people, which method, at what price; `ratio` bounds the imbalance of groups."""

    source: Source
    method: Method
    epsilon: float
    delta: float
    holdout: float = 0.0
    ratio: float = math.inf


# --- methods ----------------------------------------------------------------------------------------------


def recipe_of(case: Case, n_train: int) -> Any:
    """Return how to train; with a last batch, FairDP's last tenth of steps is that of Appendix F."""
    method, name = case.method, case.method.name.removesuffix(SMOOTH)
    if name == "fairdp":
        own = {}
        if method.last_batch is not None:
            rate = method.last_batch / n_train
            own["finish"] = fairveil.Finish(sampling_rate=rate, learning_rate=LAST_RATE)
        descent = Descent(model=method.model)
        return fairveil.Groupwise(
            descent=descent, norm_bound=method.norm_bound, divisors=method.divisors, **own
        )
    if name.startswith("functional"):
        return fairveil.Functional(weighting="groups" if name == "functional_groups" else "people")
    model = "linear" if method.name in LINEAR else method.model
    return Descent(model=model, group_clipping=name == "dpsgdf")


def fitted(case: Case, bench: Bench, train: np.ndarray) -> Any:
    """Return the case's classifier, trained on these rows."""
    schema, recipe = bench.public(len(train)), recipe_of(case, len(train))
    facts = {
        "epsilon": case.epsilon, "delta": case.delta, "schema": schema, "holdout": case.holdout,
        "sensitive": [entry.column for entry in schema.sensitive], "ledger": Ledger(),
    }  # fmt: skip
    if case.method.name.endswith(SMOOTH):
        how = fairveil.Smoothing(std=case.method.smoothing, layers="all")
        clf = fairveil.SmoothedClassifier(recipe, how, **facts)
    else:
        kinds = {"Groupwise": "GroupwiseClassifier", "Functional": "FunctionalClassifier"}
        kind = getattr(fairveil, kinds.get(type(recipe).__name__, "PrivateClassifier"))
        clf = kind(training=recipe, **facts)
    return clf.fit(bench.frame.iloc[train], bench.frame[schema.target.column].iloc[train])


def clean_answer(bench: Bench, train: np.ndarray, test: np.ndarray) -> Answer:
    rows = Encoder(bench.schema).rows(bench.frame)
    model = LogisticRegression(max_iter=2000).fit(rows[train], bench.y[train])
    chances = model.predict_proba(rows[test])
    return Answer(chances.argmax(axis=1), chances[:, bench.people.positive])


def worst_case_tau(clf: Any) -> float:
    """Return Theorem 3.2's bound, the same for every gap: over the last step's noise, not for the released model."""
    return tau_of(clf, DemographicParity(), "Worst case (")


def tau_of(clf: Any, constraint: Constraint, name: str) -> float:
    found = [one.gap for one in clf.noise_certificate(constraint).statements if one.name.startswith(name)]
    return found[0] if found else math.nan


def taus_of(case: Case, clf: Any) -> dict[str, float]:
    """Return the worst case and the private tau_emp of each gap, where FairDP has held people out for them."""
    if case.method.name != "fairdp" or not case.holdout:
        return {}
    means = {f"tau_{name}": tau_of(clf, constraint, "Empirical") for name, constraint in GAPS.items()}
    return {"worst_case_tau": worst_case_tau(clf), **means}


# --- rows -------------------------------------------------------------------------------------------------


@cache
def file_bench(source: Source) -> Bench:
    path = dataset_path(source.name)
    frame = pd.read_parquet(path)
    schema = Schema.read(SCHEMAS / f"{source.schema}.toml") if source.schema else dataset_schema(source.name)
    return Bench.of(with_source_split(frame, path) if source.keeps_split else frame, schema)


def bench_of(source: Source, seed: int) -> Bench:
    """Return the people of a run: made anew by its seed on synthetic data, the same file otherwise."""
    if source != SYNTHETIC:
        return file_bench(source)
    people = make_separated_groups(random_state=seed)
    return Bench.of(people.frame, people.schema)


def split_of(source: Source, bench: Bench, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return bench.source_split() if source.keeps_split else bench.stratified_split(seed, TRAIN_SHARE)


def one_run(case: Case, seed: int) -> dict[str, float]:
    """Return the figures of one fit on its held-out rows."""
    bench = bench_of(case.source, seed)
    train, test = split_of(case.source, bench, seed)
    if math.isfinite(case.ratio):
        train = bench.at_ratio(train, case.ratio, seed)
    sizes = {"n_train": float(len(train)), "ratio": bench.full_ratio(train)}
    if case.method.name == "clean":
        return bench.figures(clean_answer(bench, train, test), test) | sizes
    clf = fitted(case, bench, train)
    answer = Answer.of(clf, bench.frame.iloc[test], bench.people.positive)
    return bench.figures(answer, test) | sizes | taus_of(case, clf)


def mean_row(figures: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each figure under its name, and the ends of its interval beside."""
    row = {}
    for name in figures[0]:
        row[name], row[f"{name}_low"], row[f"{name}_high"] = interval([one[name] for one in figures])
    sizes = {f"{name}_{end}" for name in ("n_train", "ratio") for end in ("low", "high")}
    return {name: value for name, value in row.items() if name not in sizes}


def measured(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    start = time.perf_counter()
    figures = [one_run(case, options.first_seed + run) for run in range(options.runs)]
    seconds = (time.perf_counter() - start) / options.runs
    method = case.method
    knobs = {"norm_bound": method.norm_bound, "divisors": method.divisors} if method.name == "fairdp" else {}
    if method.name.endswith("_smooth"):
        knobs = {"smoothing": method.smoothing}
    return {
        "table": options.table, "dataset": case.source.name, "schema": case.source.schema or case.source.name,
        "n_inputs": Encoder(bench_of(case.source, 0).schema).n_features, "utility": case.source.utility,
        "method": method.name, "model": "linear" if method.name in LINEAR else method.model,
        "epsilon": case.epsilon, "delta": case.delta, **knobs,
        **mean_row(figures), "runs": options.runs, "seconds_per_run": seconds,
        "evaluation": "exact, on public held-out rows", **published(case, options),
    }  # fmt: skip


def published(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Return what the paper prints for FairDP (or its clean model) there: others' figures, not ours."""
    if options.published is None or options.table not in {"paper3", "synthetic"}:
        return {}
    rows = published_rows(options.published, PAPER)
    found = synthetic_prints(rows, case) if case.source == SYNTHETIC else table3_prints(rows, case)
    if not found:
        return {}
    return {"published": {"method": found[0]["method"]} | {row["metric"]: row["value"] for row in found}}


def table3_prints(rows: list[dict[str, Any]], case: Case) -> list[dict[str, Any]]:
    return [
        row
        for row in rows
        if row["table"] == "Table 3"
        and row["dataset"] == case.source.printed
        and math.isclose(float(row["setting"].removeprefix("eps=")), case.epsilon)
    ]


def synthetic_prints(rows: list[dict[str, Any]], case: Case) -> list[dict[str, Any]]:
    """Return the column of Table 2 for this epsilon; its heads are lost, our four are put in their order."""
    if case.method.name == "clean":
        column = "clean"
    elif case.epsilon in SYNTHETIC.epsilons:
        column = f"private column {SYNTHETIC.epsilons.index(case.epsilon) + 1} "
    else:
        return []
    return [row for row in rows if row["table"] == "Table 2" and row["setting"].startswith(column)]


# --- tables -----------------------------------------------------------------------------------------------


def method_of(name: str, options: argparse.Namespace) -> Method:
    return Method(name, options.model, options.norm_bound, options.divisors, options.smoothing)


def cases_at(
    source: Source, options: argparse.Namespace, epsilons: tuple[float, ...], default: str
) -> Iterator[Case]:
    """Yield the cases of one data set; the clean model has no epsilon and stands once."""
    for name in (options.methods or default).split(","):
        for epsilon in (math.inf,) if name == "clean" else options.epsilon or epsilons:
            yield Case(source, method_of(name, options), epsilon, options.delta, options.holdout)


def paper3(options: argparse.Namespace) -> Iterator[Case]:
    for name in options.datasets:
        yield from cases_at(SOURCES[name], options, SOURCES[name].epsilons, "clean,fairdp")


def norm_bound(options: argparse.Namespace) -> Iterator[Case]:
    for schema in ("adult_fairdp", None):
        source = replace(SOURCES["adult"], schema=schema)
        yield Case(source, method_of("clean", options), math.inf, options.delta)
        for case in cases_at(source, options, (1.1,), "fairdp"):
            for bound in options.norm_bounds:
                yield replace(case, method=replace(case.method, norm_bound=bound))


def imbalance(options: argparse.Namespace) -> Iterator[Case]:
    for name in options.datasets:
        source = SOURCES[name]
        bench = bench_of(source, options.first_seed)
        full = bench.full_ratio(split_of(source, bench, options.first_seed)[0])
        for case in cases_at(source, options, source.epsilons[1:2], "fairdp"):
            for ratio in options.ratios:
                if ratio < full or math.isinf(ratio):
                    yield replace(case, ratio=ratio)


def synthetic(options: argparse.Namespace) -> Iterator[Case]:
    for case in cases_at(SYNTHETIC, options, SYNTHETIC.epsilons, "clean,fairdp"):
        method = replace(case.method, last_batch=LAST_BATCH)
        yield replace(case, method=method, holdout=case.holdout or HOLDOUT)


def baselines(options: argparse.Namespace) -> Iterator[Case]:
    source = SOURCES[options.datasets[0]]
    yield from cases_at(source, options, source.epsilons[1:2], ",".join(METHODS))


TABLES = {one.__name__: one for one in (paper3, norm_bound, imbalance, synthetic, baselines)}


def names(text: str) -> list[str]:
    if not set(text.split(",")) <= set(SOURCES):
        raise argparse.ArgumentTypeError(f"Expected some of {', '.join(SOURCES)}, got {text!r}.")
    return text.split(",")


def numbers(text: str) -> tuple[float, ...]:
    return tuple(math.inf if part == "full" else float(part) for part in text.split(","))


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    several = "with commas"
    parser.add_argument("--table", default="paper3", choices=sorted(TABLES))
    parser.add_argument(
        "--datasets", type=names, default=list(SOURCES), help=f"{several}; baselines: the first"
    )
    parser.add_argument("--methods", help=f"{several}: {', '.join(METHODS)}; each table has its own")
    parser.add_argument("--epsilon", type=numbers, help=f"{several}; each table has its own")
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--model", default="mlp", choices=["linear", "mlp"])
    parser.add_argument(
        "--norm-bound", type=float, default=Method.norm_bound, help="of the last layer's weights"
    )
    parser.add_argument(
        "--norm-bounds", type=numbers, default=(0.1, 0.3, 1.0, 3.0, 10.0), help="table norm_bound"
    )
    parser.add_argument(
        "--ratios", type=numbers, default=(1.0, 1.25, 1.5, 2.0, 3.0, math.inf), help="or full"
    )
    parser.add_argument("--divisors", default="group", choices=["group", "common"])
    parser.add_argument(
        "--smoothing", type=float, default=SMOOTHING, help="deviation of the smoothed ones' draws"
    )
    parser.add_argument("--holdout", type=float, default=0.0, help="share for the private taus of fairdp")
    parser.add_argument("--published", help="a CSV of published figures to print beside ours")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help="of splits and synthetic people")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    options = parser.parse_args(arguments)
    for name in (options.methods or "clean").split(","):
        if name not in METHODS:
            parser.error(f"Expected methods among {', '.join(METHODS)}; got {name!r}.")
    return options


def main() -> None:
    options = options_of(sys.argv[1:])
    rows = []
    for case in TABLES[options.table](options):
        row = measured(case, options)
        rows.append(rounded(row))
        if not options.json:
            gaps = " ".join(f"{name} {row[name]:.4f}" for name in (row["utility"], "demographic_parity"))
            print(f"# {row['dataset']} {row['method']} epsilon {case.epsilon:g}: {gaps}", file=sys.stderr)
    print(json.dumps({"rows": rows}, allow_nan=False))


if __name__ == "__main__":
    main()
