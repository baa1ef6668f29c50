"""DP2DP's synthetic experiment (its Figure 1): gap and accuracy as the tolerance varies, and as the bias of the data
does.

K = 6 classes, d = 20 features, 10,000 rows a run: 80 % to fit (where a method needs a pool of its own: 60 % and 20 %),
20 % held out. Exact figures on held-out rows of made-up data; epsilon covers model and rule. Curves:

    unconstrained   scikit-learn's LogisticRegression, neither private nor fair
    exact           that model with the exact optimum on all rows it was fitted to: the linear program in the first
                    `--programs` runs of a setting, its dual in the others (the largest difference of their values is
                    printed)
    hard-max        the hard-max dual of Denis et al. 2024, minimised on a pool of its own
    descent         DP2DP's own descent, put right, on a pool of its own: without noise, and at epsilon
    ours            ParityPostprocessor's default at epsilon

`--paper pfld` draws Figures 2 and 3 of PF-LD instead, on real data (`_pf_ld_figures.py`).

    python benchmarks/figures.py --runs 30 --out figures --json
    python benchmarks/figures.py --paper pfld --dataset bank --runs 10 --out figures --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import math
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

import _pf_ld_figures
from fairveil import (
    DemographicParity,
    Ledger,
    NoisyDescent,
    ParityPostprocessor,
    ParityTraining,
    SmallTableWarning,
    ToleranceNotMetWarning,
    make_biased_mixture,
)
from fairveil.data.encoding import Encoder
from fairveil.fairness.constraints import constrain
from fairveil.fairness.rates import Attribute, Population
from fairveil.research.dp2dp_forms import ExactProblem

N_CLASSES, N_ROWS = 6, 10_000
FIT, POOL = 8_000, 2_000
TOLERANCES = (0.0, 0.025, 0.05, 0.1, 0.15, 0.2)
BIASES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
PEOPLE = Population((Attribute("s", ("-1", "1")),), tuple(map(str, range(N_CLASSES))))
FIRST_SEED = 1000


class Run:
    """One draw of the data: scores of the plain model, and who is who."""

    def __init__(self, bias: float, seed: int) -> None:
        self.people = make_biased_mixture(N_ROWS, bias, random_state=FIRST_SEED + seed)
        self.y = self.people.y.to_numpy()
        self.group = (self.people.frame["s"].to_numpy() == 1).astype(int)
        self.rows = Encoder(self.people.schema).rows(self.people.X)
        self.test = slice(FIT, None)

    def scores(self, n_train: int) -> np.ndarray:
        model = LogisticRegression(max_iter=1000).fit(self.rows[:n_train], self.y[:n_train])
        return model.predict_proba(self.rows)

    def figures(self, decisions: np.ndarray) -> tuple[float, float]:
        told, y, group = decisions[self.test], self.y[self.test], self.group[self.test]
        rates = [np.bincount(told[group == g], minlength=N_CLASSES) / max(1, (group == g).sum()) for g in (0, 1)]
        return float(np.mean(told == y)), float(np.abs(rates[0] - rates[1]).max())

    def tilted(self, scores: np.ndarray, fitted: slice, tolerance: float, program: bool) -> tuple[np.ndarray, float]:
        """Return decisions at the optimum on some rows, and how far program and dual differ in value."""
        bounds = constrain(DemographicParity(tolerance), PEOPLE)
        cells = bounds.cells[self.group, self.y]
        problem = ExactProblem(scores[fitted], cells[fitted], bounds)
        prices = problem.hard_max_multipliers()
        difference = 0.0
        if program:
            exact = problem.multipliers()
            difference, prices = abs(problem.dual(exact)[0] - problem.dual(prices)[0]), exact
        return (scores - problem.tilts(prices)[cells]).argmax(axis=1), difference

    def private(self, tolerance: float, epsilon: float, fitting: ParityTraining) -> np.ndarray:
        schema = self.people.schema.model_copy(update={"n_public": FIT})
        rule = ParityPostprocessor(
            DemographicParity(tolerance), epsilon, training=fitting, schema=schema, sensitive="s", ledger=Ledger(),
            random_state=0,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ToleranceNotMetWarning)  # the figures say it
            warnings.simplefilter("ignore", SmallTableWarning)
            rule.fit(self.people.X[:FIT], self.y[:FIT])
        return rule.predict(self.people.X)


def measured(bias: float, tolerance: float, options: argparse.Namespace) -> dict:
    """Return means and deviations of all curves at one setting."""
    figures: dict[str, list[tuple[float, float]]] = {}
    differences, paper = [], ParityTraining(solver=NoisyDescent(), rule_fraction=POOL / FIT, headroom=0.0)
    for seed in range(options.runs):
        run = Run(bias, seed)
        whole, part = run.scores(FIT), run.scores(FIT - POOL)
        exact, difference = run.tilted(whole, slice(FIT), tolerance, seed < options.programs)
        differences.append(difference)
        answers = {
            "unconstrained": whole.argmax(axis=1),
            "exact": exact,
            "hard-max": run.tilted(part, slice(FIT - POOL, FIT), tolerance, program=False)[0],
            "descent, no noise": run.private(tolerance, math.inf, paper),
            f"descent, epsilon {options.epsilon:g}": run.private(tolerance, options.epsilon, paper),
            f"ours, epsilon {options.epsilon:g}": run.private(
                tolerance, options.epsilon, ParityTraining(headroom=options.headroom)
            ),
        }
        for name, decisions in answers.items():
            figures.setdefault(name, []).append(run.figures(np.asarray(decisions)))
    row = {"p": bias, "tolerance": tolerance, "runs": options.runs, "program_minus_dual": max(differences)}
    for name, pairs in figures.items():
        (accuracy, gap), (accuracy_sd, gap_sd) = np.mean(pairs, axis=0), np.std(pairs, axis=0)
        row[name] = {"accuracy": accuracy, "gap": gap, "accuracy_sd": accuracy_sd, "gap_sd": gap_sd}
    return row


def draw(rows: list[dict], epsilon: float, folder: Path) -> list[str]:
    """Draw gap and accuracy of all curves over the tolerance and over the bias, with error bars of one deviation."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    left = sorted((row for row in rows if row["p"] == 0.75), key=lambda row: row["tolerance"])
    right = sorted((row for row in rows if row["p"] in BIASES), key=lambda row: row["p"])
    names = [name for name, value in rows[0].items() if isinstance(value, dict)]
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 8), sharex="col")
    for column, (panel, along) in enumerate(((left, "tolerance"), (right, "p"))):
        for axis, what in zip(axes[:, column], ("gap", "accuracy"), strict=True):
            for shift, name in enumerate(names):
                places = [row[along] + 0.001 * (shift - len(names) / 2) for row in panel]
                axis.errorbar(
                    places, [row[name][what] for row in panel], [row[name][f"{what}_sd"] for row in panel],
                    marker="o", markersize=3, linewidth=1, capsize=2, label=name,
                )  # fmt: skip
            axis.set_ylabel(f"{what} on held-out rows")
            axis.grid(alpha=0.3)
        axes[1, column].set_xlabel("tolerance (p = 0.75)" if along == "tolerance" else "bias p (tolerance 0)")
    axes[0, 0].legend(fontsize=8)
    figure.suptitle(f"Synthetic task, 6 classes, 20 features, 10,000 rows; privacy at epsilon {epsilon:g}")
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    paths = [str(folder / f"dp2dp_synthetic.{kind}") for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=150)
    return paths


def rounded(value: object) -> object:
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return float(f"{value:.5g}") if isinstance(value, float) else value


def synthetic(options: argparse.Namespace) -> dict:
    """Return the rows of DP2DP's Figure 1 and where it is drawn."""
    rows = []
    settings = [(0.75, tolerance) for tolerance in TOLERANCES] + [(bias, 0.0) for bias in BIASES]
    for bias, tolerance in settings:
        rows.append(measured(bias, tolerance, options))
        if not options.json:
            print(f"# p {bias:g} tolerance {tolerance:g}: {rounded(rows[-1])}", file=sys.stderr)
    paths = draw(rows, options.epsilon, options.out) if options.out else []
    ours = f"ours, epsilon {options.epsilon:g}"
    worst = {
        what: max(sign * (row[ours][what] - row["exact"][what]) for row in rows)
        for what, sign in (("gap", 1), ("accuracy", -1))
    }
    return {"rows": [rounded(row) for row in rows], "worst_over_exact": rounded(worst), "figures": paths}


PAPERS = {"dp2dp": (synthetic, 30, 0.46), "pfld": (_pf_ld_figures.answer, 10, 1.0)}
"""What draws the figures of each paper, and its own number of runs and epsilon."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paper", default="dp2dp", choices=sorted(PAPERS))
    parser.add_argument("--runs", type=int, help="30, for pfld 10")
    parser.add_argument("--programs", type=int, default=1, help="runs of a setting that solve the linear program")
    parser.add_argument("--epsilon", type=float, help="0.46, for pfld (Figure 3) 1")
    parser.add_argument("--headroom", type=float, default=0.0, help="of ours; 0 aims at the tolerance itself")
    parser.add_argument("--out", type=Path, help="a folder for the figure; none draws nothing")
    _pf_ld_figures.add_options(parser)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    options = parser.parse_args()
    started, (answer, runs, epsilon) = time.perf_counter(), PAPERS[options.paper]
    options.runs = runs if options.runs is None else options.runs
    options.epsilon = epsilon if options.epsilon is None else options.epsilon
    found = answer(options)
    print(json.dumps(found | {"seconds": round(time.perf_counter() - started, 1)}, allow_nan=False))


if __name__ == "__main__":
    main()
