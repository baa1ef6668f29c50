"""PF-LD's Figures 2 and 3 on real data: how privacy and the primal bound move accuracy and violation.

Figure 2: PF-LD and M (randomised response, then reductions) over epsilon, for every notion. Figure 3: PF-LD as its
paper makes it (the groups' gradient is released at every step) at one epsilon, over fixed primal bounds C_p in
multiples of the classifier's own default, beside the bound that is chosen privately. Epsilon is that of a change
a -> a'; a violation is the largest difference between two groups on held-out rows, by exact counts on public data,
for research.

Run r splits with seed 1000 + r; in Figure 3 every bound sees the same splits and public coins, so that differences are
those of one run. The best of several fixed bounds is flattered by the choice: "crossed" tells what the best of half of
the runs does in the other half.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from _harness import FIRST_SEED, Answer, Splits, interval, read_bench, rounded
from _pf_ld import classifier, recipe_of, run_figures, summary
from baselines import NOTIONS
from baselines import figures_of as rival_figures
from fairveil import LagrangianClassifier, LagrangianDual
from fairveil.data.datasets import dataset_schema
from fairveil.data.encoding import Encoder
from fairveil.fairness.constraints import CONSTRAINT_TYPES

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
FACTORS = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 2.0, 4.0)
"""Fixed primal bounds over the default one."""

DELTA = 1e-5
LINE = {"marker": "o", "markersize": 3, "linewidth": 1, "capsize": 2}


@dataclass(frozen=True)
class Contest:
    """One data set, its splits, and how our model is trained."""

    dataset: str
    splits: Splits
    how: LagrangianDual
    runs: int

    @classmethod
    def of(cls, options: argparse.Namespace) -> "Contest":
        bench = read_bench(options.dataset, dataset_schema(options.dataset), False)
        return cls(options.dataset, Splits(bench, "random", FIRST_SEED), recipe_of(options.model), options.runs)

    def fitted(self, run: int, notion: str, epsilon: float, how: LagrangianDual) -> LagrangianClassifier:
        """Return our classifier for this run; its public coins are those of the run."""
        bench, (train, _) = self.splits.bench, self.splits(run)
        asked, schema = CONSTRAINT_TYPES[notion](0.0), bench.public(self.splits.n_public)
        clf = classifier(asked, epsilon, DELTA, how, schema, seed=self.splits.first_seed + run)
        return clf.fit(bench.frame.iloc[train], bench.frame[schema.target.column].iloc[train])

    def figures(self, clf: LagrangianClassifier, run: int, notion: str) -> dict[str, float]:
        bench, (_, test) = self.splits.bench, self.splits(run)
        answer = Answer.of(clf, bench.frame.iloc[test], bench.people.positive)
        return run_figures(bench, answer, test, CONSTRAINT_TYPES[notion](0.0))

    def ours(self, notion: str, epsilon: float) -> list[dict[str, float]]:
        return [self.figures(self.fitted(run, notion, epsilon, self.how), run, notion) for run in range(self.runs)]

    def theirs(self, notion: str, epsilon: float) -> list[dict[str, float]]:
        """Return the figures of M."""
        asked = argparse.Namespace(constraint=notion, epsilon=epsilon)
        rows = Encoder(self.splits.bench.schema).rows(self.splits.bench.frame)
        found = (rival_figures(self.splits, rows, "M", asked, run) for run in range(self.runs))
        return [one | {"gap": one["violation"]} for one in found]


def told(figures: list[dict[str, float]]) -> dict[str, float]:
    """Return means and deviations, the gap by the paper's word for it."""
    found = summary(figures)
    return {
        "violation": found["gap_mean"], "violation_sd": found["gap_sd"],
        "accuracy": found["accuracy_mean"], "accuracy_sd": found["accuracy_sd"],
    }  # fmt: skip


def over_epsilon(contest: Contest, options: argparse.Namespace) -> dict[str, Any]:
    """Return the rows of Figure 2."""
    rows = []
    for notion in options.notions:
        for epsilon in options.epsilons:
            row = {"constraint": notion, "epsilon": epsilon, "runs": contest.runs}
            row |= {"PF-LD": told(contest.ours(notion, epsilon)), "M": told(contest.theirs(notion, epsilon))}
            rows.append(row)
            _tell(options, row)
    return {"rows": rows}


def over_bounds(contest: Contest, options: argparse.Namespace) -> dict[str, Any]:
    """Return the rows of Figure 3 and how the private choice stands beside the best fixed bound."""
    notion, names, released = (
        options.notions[0],
        [*FACTORS, "private"],
        replace(contest.how, primal="gradients"),
    )
    figures: dict[Any, list[dict[str, float]]] = {name: [] for name in names}
    for run in range(contest.runs):
        default = contest.fitted(run, notion, options.epsilon, released)
        for name in names:
            bound = name if name == "private" else name * default.clip_norm_
            how = replace(released, primal_bound=bound)
            clf = contest.fitted(run, notion, options.epsilon, how)
            own = {"bound": clf.clip_norm_, "factor": clf.clip_norm_ / default.clip_norm_}
            figures[name].append(contest.figures(clf, run, notion) | own)
        _tell(options, {"run": run, "gaps": {name: found[-1]["gap"] for name, found in figures.items()}})
    rows = [{"choice": name, **told(found), **_bounds(found)} for name, found in figures.items()]
    shared = {"constraint": notion, "epsilon": options.epsilon, "runs": contest.runs}
    return {"rows": [shared | row for row in rows], **beside_fixed(figures)}


def _bounds(figures: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([one[name] for one in figures])) for name in ("bound", "factor")}


def beside_fixed(figures: dict[Any, list[dict[str, float]]]) -> dict[str, Any]:
    """Return the violation of the private choice over that of the best fixed bound, and its paired difference."""
    gaps = {name: np.array([one["gap"] for one in found]) for name, found in figures.items()}
    private = gaps.pop("private")
    best = min(gaps, key=lambda name: gaps[name].mean())
    ratio = float(private.mean() / gaps[best].mean())
    crossed = crossed_best(np.array(list(gaps.values())))
    difference = interval(private - gaps[best])
    return {
        "best_fixed_factor": best, "best_fixed_violation": float(gaps[best].mean()),
        "private_violation": float(private.mean()), "private_over_best": ratio, "within_10_percent": ratio <= 1.1,
        "private_minus_best": dict(zip(("mean", "low", "high"), difference, strict=True)),
        "crossed_best_violation": crossed, "private_over_crossed": float(private.mean() / crossed),
    }  # fmt: skip


def crossed_best(gaps: np.ndarray) -> float:
    """Return the mean gap of the bound (row) that was best in the runs of the other parity."""
    halves = [np.arange(gaps.shape[1]) % 2 == parity for parity in (0, 1)]
    if not all(half.any() for half in halves):
        return math.nan
    chosen = [gaps[:, other].mean(axis=1).argmin() for other in reversed(halves)]
    return float(np.mean([gaps[row, half].mean() for row, half in zip(chosen, halves, strict=True)]))


def _tell(options: argparse.Namespace, row: dict[str, Any]) -> None:
    if not options.json:
        print(f"# {json.dumps(rounded(row))}", file=sys.stderr)


def draw_epsilons(pyplot: Any, found: dict[str, Any], dataset: str) -> Any:
    """Draw violation and accuracy of both methods over epsilon, one column a notion."""
    notions = list(dict.fromkeys(row["constraint"] for row in found["rows"]))
    figure, axes = pyplot.subplots(2, len(notions), figsize=(4 * len(notions), 7), sharex=True, squeeze=False)
    for column, notion in enumerate(notions):
        rows = [row for row in found["rows"] if row["constraint"] == notion]
        for axis, what in zip(axes[:, column], ("violation", "accuracy"), strict=True):
            for shift, name in ((0.97, "PF-LD"), (1.03, "M")):
                places = [row["epsilon"] * shift for row in rows]
                values, spreads = ([row[name][key] for row in rows] for key in (what, f"{what}_sd"))
                axis.errorbar(places, values, spreads, label=name, **LINE)
            axis.set(xscale="log", ylabel=f"{what} on held-out rows")
            axis.grid(alpha=0.3)
        axes[0, column].set_title(notion.replace("_", " "))
        axes[1, column].set_xlabel("epsilon (a change a -> a')")
    axes[0, 0].legend(fontsize=8)
    figure.suptitle(f"{dataset}: PF-LD and M, bars of one deviation")
    return figure


def draw_bounds(pyplot: Any, found: dict[str, Any], dataset: str) -> Any:
    """Draw violation and accuracy over fixed bounds, and the private choice as a point."""
    fixed = [row for row in found["rows"] if row["choice"] != "private"]
    (private,) = (row for row in found["rows"] if row["choice"] == "private")
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    for axis, what in zip(axes, ("violation", "accuracy"), strict=True):
        places = [row["factor"] for row in fixed]
        values, spreads = ([row[key] for row in fixed] for key in (what, f"{what}_sd"))
        axis.errorbar(places, values, spreads, label="fixed", **LINE)
        star = LINE | {"marker": "*", "markersize": 12}
        axis.errorbar([private["factor"]], [private[what]], [private[f"{what}_sd"]], label="private", **star)
        axis.set(xscale="log", xlabel="primal bound over the default", ylabel=f"{what} on held-out rows")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    notion = private["constraint"].replace("_", " ")
    figure.suptitle(f"{dataset}, {notion}, epsilon {private['epsilon']:g}; bars of one deviation")
    return figure


FIGURES: dict[str, tuple[Callable[..., dict], Callable[..., Any]]] = {
    "2": (over_epsilon, draw_epsilons),
    "3": (over_bounds, draw_bounds),
}


def saved(draw: Callable[..., Any], found: dict[str, Any], dataset: str, path: Path) -> list[str]:
    """Draw one figure and return the paths of its PNG and SVG."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure = draw(pyplot, found, dataset)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    paths = [f"{path}.{kind}" for kind in ("png", "svg")]
    for one in paths:
        figure.savefig(one, dpi=150)
    pyplot.close(figure)
    return paths


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choices that only these figures have."""
    parser.add_argument("--dataset", default="bank", help="pfld only")
    parser.add_argument("--model", default=LagrangianDual().descent.model, choices=["linear", "mlp"])
    parser.add_argument("--figures", default=",".join(FIGURES), help="pfld only: with commas")
    parser.add_argument("--notions", default=",".join(NOTIONS), help="pfld only; Figure 3 takes the first")
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)), help="pfld only: of Figure 2")


def answer(options: argparse.Namespace) -> dict[str, Any]:
    """Return rows and paths of the figures that are asked for."""
    options.notions = options.notions.split(",")
    options.epsilons = [float(one) for one in options.epsilons.split(",")]
    contest, found = Contest.of(options), {}
    for name in options.figures.split(","):
        started, (measure, draw) = time.perf_counter(), FIGURES[name]
        result = measure(contest, options)
        path = None if options.out is None else options.out / f"pfld_figure_{name}_{options.dataset}"
        paths = [] if path is None else saved(draw, result, options.dataset, path)
        more = {"dataset": options.dataset, "model": options.model, "figures": paths}
        seconds = {"seconds": round(time.perf_counter() - started, 1)}
        found[f"figure_{name}"] = rounded(more | result | seconds)
    return found
