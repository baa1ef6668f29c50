"""Write the tables of the site that follow from `fairveil bench`: rivals of other packages, and which method when.

Each table follows from folders that a bench wrote, and is a small CSV file in docs/research/figures/bench/:

    fairveil bench benchmarks/grids/rivals.toml --out build/bench/rivals
    fairveil bench benchmarks/grids/synthetic.toml --out build/bench/synthetic
    fairveil bench benchmarks/grids/aim.toml --out build/bench/aim
    fairveil bench benchmarks/grids/frontier.toml --out build/bench/frontier
    fairveil bench benchmarks/grids/choose.toml --out build/bench/choose
    python benchmarks/bench_tables.py
    python docs/make_tables.py

The figures are exact counts on held-out rows of public tables. They are not private.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fairveil.bench.analysis import Estimate, mean_of
from fairveil.bench.entrants import contender_named
from reproduce._results import Table, save

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "research" / "figures"
TOLERANCES = {"0.0": "tolerance 0", "0.05": "tolerance 5 %"}
"""As a bench writes them, and as a heading says them."""
DATA = {
    "adult": "Adult, sex",
    "credit_default": "credit default, sex",
    "bank": "bank, age 60",
    "compas": "COMPAS, race",
}
CAVEATS = (
    "Rows that hide nothing are not private. Each private row hides one row of the table, by the account of its own "
    "package.",
    "Means over splits, plus or minus half the width of the 95 % interval. It does not count that splits share rows.",
)
Row = Mapping[str, str]


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def means(runs: Iterable[Row], keys: Sequence[str]) -> dict[tuple[str, ...], dict[str, Estimate]]:
    """Return mean accuracy and gap, with their intervals, of the runs that agree in these columns."""
    found = defaultdict(list)
    for run in runs:
        found[tuple(run[key] for key in keys)].append(run)
    return {
        place: {name: mean_of([float(one[name]) for one in own]) for name in ("accuracy", "gap")}
        for place, own in found.items()
    }


def words(one: Estimate) -> str:
    """Return a mean and half the width of its interval."""
    half = "" if one.high is None or one.value is None else f" ± {one.high - one.value:.3f}"
    return f"{one.value:.3f}{half}"


# --- rivals -----------------------------------------------------------------------------------------------------------


def rivals_table(name: str, title: str, runs: Sequence[Row], caveats: Sequence[str]) -> Table:
    """Return one row for each table and each method that keeps a tolerance."""
    found = means(runs, ("data", "label", "epsilon", "tolerance"))
    rows = []
    for data, label, epsilon in dict.fromkeys(place[:3] for place in found):
        if not contender_named(label.partition(" ")[0]).keeps_tolerance:
            continue
        hides = f"a row, at epsilon {float(epsilon):g}" if epsilon else "nothing"
        row = {"data": DATA[data], "method": title_of(label).removesuffix(", not private"), "hides": hides}
        for tolerance, heading in TOLERANCES.items():
            own = found.get((data, label, epsilon, tolerance))
            if own is not None:
                row |= {f"{which}, {heading}": words(own[which]) for which in ("accuracy", "gap")}
        rows.append(row)
    return Table(name, title, rows, caveats)


def unbounded_table(runs: Sequence[Row]) -> Table:
    """Return the private methods that keep no tolerance: their gap is measured."""
    found = means((run for run in runs if run["epsilon"] and not run["tolerance"]), ("data", "label"))
    rows = [
        {"data": DATA[data], "method": title_of(label)} | {which: words(one) for which, one in own.items()}
        for (data, label), own in found.items()
    ]
    return Table("unbounded", "Private training without a tolerance, epsilon 1", rows, CAVEATS[1:])


def title_of(label: str) -> str:
    """Return what a reader calls a contender; the number after a name is its knob."""
    name, _, knob = label.partition(" ")
    if knob:
        return f"{name} of fairveil, knob {knob}"
    return {"auto": "fairveil", "dpsgd": "DP-SGD of fairveil"}.get(name, contender_named(name).title)


# --- which method when ------------------------------------------------------------------------------------------------


def at_gap(areas: Iterable[Row], data: str, label: str, gap: str) -> str:
    """Return the best accuracy of a method at epsilon 1 among points with at most this mean gap."""
    (row,) = [one for one in areas if (one["data"], one["label"], one["epsilon"]) == (data, label, "1.0")]
    return f"{float(row[f'accuracy_at_{gap}']):.3f}"


def choices_table(frontier: Path, choose: Path, published: Path) -> Table:
    """Return situations, the method for each, and the figures that the choice follows from."""
    areas, runs = rows_of(frontier / "areas.csv"), rows_of(frontier / "runs.csv")
    bounds = means(rows_of(choose / "runs.csv"), ("data", "label", "constraint", "tolerance"))
    private = means((one for one in runs if one["epsilon"] in {"", "1.0"}), ("data", "label", "tolerance"))

    def beside(gap: str, *labels: str) -> str:
        figures = (
            f"{DATA[data]}: " + ", ".join(f"`{named(one)}` {at_gap(areas, data, one, gap)}" for one in labels)
            for data in ("adult", "compas")
        )
        return f"accuracy at a gap of at most {gap}, epsilon 1: " + "; ".join(figures)

    def bounded(constraint: str, hidden: str, *labels: str) -> str:
        figures = []
        for data in ("adult", "compas"):
            own = {one: bounds.get((f"{data}{hidden}", one, constraint, "0.05")) for one in labels}
            parts = [
                f"`{one}` {e['accuracy'].value:.3f} at {e['gap'].value:.3f}" for one, e in own.items() if e is not None
            ]
            figures.append(f"{DATA[data]}: " + ", ".join(parts))
        return "accuracy at its gap, tolerance 0.05, epsilon 1: " + "; ".join(figures)

    def unbounded(label: str) -> str:
        own = private["adult", label, ""]
        return f"{DATA['adult']}, epsilon 1: `{label}` {own['accuracy'].value:.3f} at a gap of {own['gap'].value:.3f}"

    places = {(one["data"], one["parity"]): one for one in rows_of(published / "pfld.csv")}
    attribute = places["Adult, sex", "demographic parity"]
    secret = (
        "accuracy at its gap, epsilon 1 for the attribute: Adult, sex: "
        f"`pfld` {attribute['pfld_accuracy']} at {attribute['pfld_gap']}, "
        f"randomized response {attribute['m_accuracy']} at {attribute['m_gap']}"
    )
    known = ("auto", "raco", "functional", "parity")
    parity, odds, hidden = "demographic_parity", "equalized_odds", ", group hidden"
    rows = [
        ("demographic parity, decisions may read the group", "`dp2dp`", beside("0.05", *known)),
        ("demographic parity, decisions may not read the group", "`dp2dp`", bounded(parity, hidden, "dp2dp", "raco")),
        ("equalized odds, decisions may read the group", "`dp2dp`", bounded(odds, "", "dp2dp", "raco")),
        ("equalized odds, decisions may not read the group", "`raco`", bounded(odds, hidden, "raco", "dp2dp")),
        ("models for many tolerances from one budget", "`functional`", beside("0.1", "auto", "functional")),
        ("features and labels are public, one attribute is secret", "`pfld`", secret),
        ("privacy only; the gap is measured and not bounded", "`dpsgd`", unbounded("dpsgd")),
    ]  # fmt: skip
    shown = [dict(zip(("situation", "method", "figures"), row, strict=True)) for row in rows]
    caveats = [
        "Means over 6 splits (parity where decisions may read the group, many tolerances, privacy only) or over 10 "
        "splits (all others).",
        "The gap of a rule on few test rows is above 0 by chance: on COMPAS by about .03.",
        "For many tolerances, each of `dp2dp` costs epsilon 1 anew, and all of `functional` together can cost it once.",
    ]
    return Table("which_method", "Which method when", shown, caveats)


def named(label: str) -> str:
    """Return the method that "auto" picks for parity."""
    return "dp2dp" if label == "auto" else label


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=Path, default=ROOT / "build" / "bench", help="the folder of the five benches")
    parser.add_argument("--out", type=Path, default=FIGURES / "bench", help="where to write")
    options = parser.parse_args()
    bench, measured = options.bench, "fairveil bench benchmarks/grids/{0}.toml --out build/bench/{0}"
    runs = rows_of(bench / "rivals" / "runs.csv")
    synthetic = rows_of(bench / "synthetic" / "runs.csv")
    synthetic += [one for one in rows_of(bench / "aim" / "runs.csv") if one["label"] == "aim"]
    results = (
        (rivals_table("rivals", "Rivals of other packages", runs, CAVEATS), ["rivals"]),
        (unbounded_table(runs), ["rivals"]),
        (rivals_table("synthetic_tables", "Synthetic tables", synthetic, CAVEATS[1:]), ["synthetic", "aim"]),
        (choices_table(bench / "frontier", bench / "choose", FIGURES), ["frontier", "choose"]),
    )
    for table, grids in results:
        command = " && ".join([*(measured.format(grid) for grid in grids), "python benchmarks/bench_tables.py"])
        print(save(table, options.out, command).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
