"""Measure the rows of the tables on the site again: docs/research/figures/scores.csv, raco.csv and private.csv.

Every row is one call of `quality.py` with the options below; its file is written after each row, so a run that was
stopped can go on with `--only`. `python docs/make_tables.py` then writes the tables of README and site.

    python benchmarks/tables.py
    python benchmarks/tables.py --tables scores --only Adult
"""

import argparse
import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIGURES = HERE.parent / "docs" / "research" / "figures"
BUDGETS = (0.5, 1.0, 3.0)


@dataclass(frozen=True)
class Row:
    """One row of a table and the options of `quality.py` that measure it."""

    label: str
    options: str
    runs: int
    epsilon: float = 1.0
    tolerance: float = 0.0

    def measured(self, *more: str) -> list[dict]:
        """Return what `quality.py` prints for these options."""
        words = [*self.options.split(), *more, "--runs", f"{self.runs}", "--no-boosting", "--json"]
        done = subprocess.run([sys.executable, HERE / "quality.py", *words], capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])["rows"]


def _sweep(label: str, options: str, runs: int, *pairs: tuple[float, float]) -> list[Row]:
    return [Row(label, options, runs, epsilon, tolerance) for epsilon, tolerance in pairs]


RULE = "--method dp2dp --dataset"
SCORES = [
    *_sweep("Adult, parity by sex", f"{RULE} adult", 20, (0.5, 0), (1, 0), (3, 0)),
    Row("credit default, parity by sex", f"{RULE} credit_default", 20),
    Row("bank, parity by age 60", f"{RULE} bank", 40),
    Row("COMPAS, parity by race", f"{RULE} compas", 100),
    Row("ACS income, 35 states, parity by sex", f"{RULE} acs_income", 5),
    *_sweep("Parkinsons (rows), parity by sex", f"{RULE} parkinsons", 20, (1, 0), (3, 0)),
    *_sweep("Adult, parity by sex, unaware", f"{RULE} adult --unaware", 20, (1, 0), (1, 0.03)),
    Row("Adult, equalized odds by sex", f"{RULE} adult --constraint equalized_odds", 20, 1, 0.02),
    *_sweep(
        "Adult, parity of five races", f"{RULE} adult --sensitive race --smallest-group 500", 10, (1, 0.02), (1, 0.05)
    ),
    *_sweep(
        "ACS employment, parity of nine races",
        f"{RULE} acs_person_2018 --sensitive RAC1P --smallest-group 500", 10, (1, 0.05), (1, 0.1),
    ),
    Row("Adult, rule on a part of its own (20 %)", f"{RULE} adult --part 0.2", 20),
    Row("bank, rule on a part of its own (20 %)", f"{RULE} bank --part 0.2", 20),
    *_sweep("Adult, random flips", "--method parity --dataset adult", 10, (1, 0), (3, 0)),
    Row("Adult, random flips of decoupled models", "--method parity --dataset adult --decoupled", 10, 3),
    Row("Adult, random decisions in one bin of the score", "--method parity --dataset adult --mode scores", 10),
    Row("credit default, random flips", "--method parity --dataset credit_default", 10, 3),
]  # fmt: skip

RACO = "--method raco --dataset"
ODDS, CAP = "--constraint equalized_odds", "--constraint false_negative_rate_cap"
RACES = "acs_person_2018 --sensitive RAC1P,SEX --aware --against rest --smallest-group 500"
BOUNDS = [
    *_sweep("Adult, demographic parity by sex", f"{RACO} adult", 10, (1, 0.02), (1, 0.05), (1, 0.1), (0.1, 0.05)),
    Row("Adult, demographic parity by sex, aware", f"{RACO} adult --aware", 10, 1, 0.05),
    Row(
        "Adult, demographic parity by sex, network of 64-64 (`--model mlp`)", f"{RACO} adult --model mlp", 10, 1, 0.05
    ),
    *_sweep("Adult, equalized odds by sex", f"{RACO} adult {ODDS}", 10, (0.5, 0.03), (1, 0.03), (3, 0.03)),
    *_sweep(
        "credit default, equalized odds by sex", f"{RACO} credit_default {ODDS}", 10, (0.5, 0.02), (1, 0.02), (3, 0.02)
    ),
    Row("credit default, demographic parity by sex", f"{RACO} credit_default", 10, 1, 0.02),
    *_sweep("bank, demographic parity by age 60", f"{RACO} bank", 10, (1, 0.02), (1, 0.05)),
    *_sweep("ACS income, 35 states, demographic parity by sex", f"{RACO} acs_income", 3, (1, 0.02), (1, 0.05)),
    Row("law school, demographic parity of four races", f"{RACO} law_school", 10, 1, 0.05),
    *_sweep("Adult, false negative rate", f"{RACO} adult {CAP}", 10, (1, 0.1), (1, 0.2), (1, 0.3)),
    *_sweep(
        "heart, false negative rate, aware", f"{RACO} heart {CAP} --aware", 10,
        (1, 0.4), (1, 0.5), (1, 0.55), (1, 0.6), (1, 0.7),
    ),
    Row("ACS employment, 18 groups (race x sex) against the rest, aware", f"{RACO} {RACES}", 10, 1, 0.05),
    Row(
        "ACS income in four bands, demographic parity by sex, every band",
        f"{RACO} acs_person_2018 --schema {HERE / 'schemas' / 'acs_income_bands.toml'}", 10, 1, 0.05,
    ),
]  # fmt: skip

PRIVATE = [
    Row("Adult", "--dataset adult", 10),
    Row("credit default", "--dataset credit_default", 10),
    Row("bank", "--dataset bank", 10),
    Row("COMPAS", "--dataset compas", 10),
    Row("ACS income, 35 states", "--dataset acs_income", 3),
]


def score_cells(row: Row) -> dict[str, str]:
    """Return the cells of one row of scores.csv."""
    (found,) = row.measured("--epsilon", f"{row.epsilon:g}", "--tolerance", f"{row.tolerance:g}")
    has_optimum = "--unaware" not in row.options and ODDS not in row.options
    optimum = {"optimum_accuracy": found["fair_twin_accuracy"], "optimum_gap": found["floor"]} if has_optimum else {}
    return (
        _named(row, found)
        | {name: f"{optimum[name]:.3f}" if optimum else "" for name in OPTIMUM}
        | {"splits": f"{row.runs}"}
    )


OPTIMUM = ("optimum_accuracy", "optimum_gap")


def bound_cells(row: Row) -> dict[str, str]:
    """Return the cells of one row of raco.csv."""
    (found,) = row.measured("--epsilon", f"{row.epsilon:g}", "--tolerance", f"{row.tolerance:g}")
    return _named(row, found) | {
        "unconstrained_accuracy": f"{found['nonprivate_accuracy']:.3f}",
        "unconstrained_gap": f"{found['nonprivate_gap']:.3f}",
    }


def private_cells(row: Row) -> dict[str, str]:
    """Return the cells of one row of private.csv."""
    found = row.measured("--method", "dpsgd", "--epsilon", ",".join(f"{epsilon:g}" for epsilon in BUDGETS))
    named = zip(("epsilon_05", "epsilon_1", "epsilon_3"), found, strict=True)
    return {
        "data": row.label,
        **{name: f"{one['accuracy_mean']:.3f}" for name, one in named},
        "not_private": f"{found[1]['nonprivate_accuracy']:.3f}",
        "gap_at_epsilon_1": f"{found[1]['gap_mean']:.3f}",
        "gap_not_private": f"{found[1]['nonprivate_gap']:.3f}",
    }


def _named(row: Row, found: dict) -> dict[str, str]:
    means = ("accuracy_mean", "accuracy_low", "accuracy_high", "gap_mean", "gap_low", "gap_high")
    cells = {name.removesuffix("_mean"): f"{max(0.0, found[name]):.3f}" for name in means}
    return {"data": row.label, "epsilon": f"{row.epsilon:g}", "tolerance": f"{row.tolerance:g}", **cells}


TABLES = {"scores": (SCORES, score_cells), "raco": (BOUNDS, bound_cells), "private": (PRIVATE, private_cells)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES), help="one or several, with commas")
    parser.add_argument("--only", default="", help="rows whose label contains this text")
    options = parser.parse_args()
    written = []
    for name in options.tables.split(","):
        rows, cells = TABLES[name]
        for row in (one for one in rows if options.only in one.label):
            written.append(cells(row))
            print(f"# {name}: {written[-1]}", file=sys.stderr)
            replace_row(FIGURES / f"{name}.csv", written[-1])
    print(json.dumps({"rows": written}))


def replace_row(path: Path, cells: dict[str, str]) -> None:
    """Write the file with these cells in the place of the row of the same data, epsilon and tolerance."""
    with path.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    key = [name for name in ("data", "epsilon", "tolerance") if name in cells]
    kept = [cells if all(one[name] == cells[name] for name in key) else one for one in found]
    if cells not in kept:
        raise SystemExit(f"Expected a row {[cells[name] for name in key]} in {path.name}, got none; add it.")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)


if __name__ == "__main__":
    main()
