"""Results of runs in, everything that tables and pages show out, as plain JSON values."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil.bench.analysis import (
    CONFIDENCE,
    Estimate,
    PairedTest,
    accuracy_at,
    dominated_area,
    holm,
    jackknife,
    mean_of,
    paired_t,
    pareto,
    wilcoxon,
)
from fairveil.bench.entrants import contender_named
from fairveil.bench.grid import Grid

TEST_WORDS = {
    "t": "paired t test whose variance is corrected for splits that share rows (Nadeau and Bengio 2003)",
    "wilcoxon": "Wilcoxon's signed-rank test",
}
FAMILY = "Holm's correction over all comparisons of one data set and constraint, of accuracy and of gap alike"


@dataclass(frozen=True)
class Cell:
    """The runs of one contender at one setting, by seed."""

    data: str
    constraint: str
    label: str
    contender: str
    epsilon: float | None
    tolerance: float | None
    runs: Mapping[int, Mapping[str, Any]] = field(repr=False)

    @property
    def is_private(self) -> bool:
        """Whether the contender has a budget."""
        return contender_named(self.contender).is_private

    def values(self, name: str, seeds: Sequence[int]) -> NDArray[np.float64]:
        """Return a figure on the splits of these seeds, NaN where it is not known."""
        found = [self.runs[seed]["figures"].get(name) for seed in seeds]
        return np.array([np.nan if one is None else one for one in found], dtype=float)

    def seeds(self) -> list[int]:
        """Return the seeds of runs whose accuracy and gap are known."""
        return sorted(seed for seed, one in self.runs.items() if one["figures"].get("gap") is not None)

    def mean(self, name: str) -> Estimate:
        """Return the mean of a figure over seeds."""
        known = self.values(name, self.seeds())
        known = known[~np.isnan(known)]
        return mean_of(known.tolist()) if len(known) else Estimate(None)

    @property
    def place(self) -> dict[str, Any]:
        """What tells it from others."""
        names = ("data", "constraint", "label", "contender", "tolerance")
        return {name: getattr(self, name) for name in names} | {"epsilon": shown(self.epsilon)}


def shown(epsilon: float | None) -> float | str | None:
    """Return an epsilon as JSON knows it."""
    return "inf" if epsilon == math.inf else epsilon


def cells_of(results: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """Return the runs by what is common to several seeds."""
    found: dict[tuple[str, str, str, str, float | None, float | None], dict[int, Mapping[str, Any]]]
    found = defaultdict(dict)
    for one in results:
        epsilon = math.inf if one["epsilon"] == "inf" else one["epsilon"]
        key = (one["data"]["name"], one["constraint"], one["label"], one["contender"], epsilon, one["tolerance"])
        found[key][one["seed"]] = one
    return [Cell(*key, runs) for key, runs in found.items()]


def compare(grid: Grid, results: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return all that tables and pages show.

    Parameters
    ----------
    grid : Grid
    results : sequence of mappings
        Runs that are whole.
    about : mapping
        Further facts: when, by which command, what failed and what is missing.
    """
    cells = cells_of(results)
    order = {(one.data, one.constraint): None for one in cells}
    panels = [
        panel
        for data, constraint in order
        for panel in _panels(grid, [one for one in cells if (one.data, one.constraint) == (data, constraint)])
    ]
    return {
        **about,
        "confidence": CONFIDENCE,
        "reference_gap": grid.reference_gap,
        "gaps": list(grid.gaps),
        "baseline": grid.baseline,
        "test": TEST_WORDS[grid.test],
        "family": FAMILY,
        "n_seeds": len(grid.seeds),
        "train_share": grid.train_share,
        "delta": grid.delta,
        "data": [_about_data(grid, one, cells) for one in dict.fromkeys(cell.data for cell in cells)],
        "versions": _versions(results),
        "headline": [_headline(cell, cells) for cell in cells if cell.is_private],
        "cells": [_row(cell) for cell in cells],
        "panels": panels,
        "tests": [row for key in order for row in _tests(grid, [c for c in cells if (c.data, c.constraint) == key])],
    }


def _about_data(grid: Grid, name: str, cells: Sequence[Cell]) -> dict[str, Any]:
    own = next(one for one in grid.data if one.name == name)
    first = next(run for cell in cells if cell.data == name for run in cell.runs.values())
    schema = own.public()
    return {
        "name": name, "sensitive": [one.column for one in schema.sensitive], "aware": own.aware, "split": own.split,
        "unit": own.unit, "source": schema.source, "n_train": first["n_train"], "n_test": first["n_test"],
        "constant_accuracy": _constant([one for one in cells if one.data == name]),
    }  # fmt: skip


def _constant(cells: Sequence[Cell]) -> float:
    """Return the accuracy of deciding for everybody what is most frequent in training, the mean over all splits."""
    by_seed = {seed: run["figures"]["constant_accuracy"] for cell in cells for seed, run in cell.runs.items()}
    return float(np.mean(list(by_seed.values())))


def _versions(results: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return every version that a run was made with: several show that figures may not be of one program."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in results:
        for name, version in one["versions"].items():
            found[name].add(version)
    return {name: sorted(several) for name, several in found.items()}


def _row(cell: Cell) -> dict[str, Any]:
    spent = [one["epsilon_spent"] for one in cell.runs.values()]
    return cell.place | {
        "accuracy": cell.mean("accuracy").to_dict(),
        "gap": cell.mean("gap").to_dict(),
        "roc_auc": cell.mean("roc_auc").to_dict(),
        "seeds": len(cell.seeds()),
        "epsilon_spent": None if None in spent else max(spent),
        "protects": sorted({one["protects"] for one in cell.runs.values()}),
        "seconds": float(np.mean([one["seconds"] for one in cell.runs.values()])),
    }


def _headline(cell: Cell, cells: Sequence[Cell]) -> dict[str, Any]:
    """Return a private contender beside the most accurate one that is not private and has the same bound, or none."""
    place = (cell.data, cell.constraint, cell.tolerance)
    rivals = [one for one in cells if not one.is_private and (one.data, one.constraint, one.tolerance) == place]
    best = max(rivals, key=lambda one: one.mean("accuracy").value or 0.0, default=None)
    optimum = None if best is None else {"label": best.label, **{name: best.mean(name).to_dict() for name in FIGURES}}
    return _row(cell) | {"optimum": optimum}


FIGURES = ("accuracy", "gap")


# --- frontiers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """All points of one contender at one epsilon, on the splits that they share: shape (points, seeds)."""

    label: str
    cells: tuple[Cell, ...]
    gaps: NDArray[np.float64]
    accuracies: NDArray[np.float64]

    def means(self, seeds: NDArray[np.int64]) -> tuple[list[float], list[float]]:
        """Return mean gaps and accuracies over some of the seeds."""
        return self.gaps[:, seeds].mean(axis=1).tolist(), self.accuracies[:, seeds].mean(axis=1).tolist()

    def best_at(self, limit: float, seeds: NDArray[np.int64]) -> float | None:
        """Return the best mean accuracy at a gap."""
        return accuracy_at(*self.means(seeds), limit)

    def area(self, gap: float, accuracy: float, seeds: NDArray[np.int64]) -> float:
        """Return the dominated area of the means."""
        return dominated_area(*self.means(seeds), gap, accuracy)


def _curves(cells: Sequence[Cell]) -> Iterator[Curve]:
    for label in dict.fromkeys(one.label for one in cells):
        own = [one for one in cells if one.label == label]
        common = sorted(set.intersection(*(set(one.seeds()) for one in own)))
        if common:
            gaps, accuracies = (np.stack([one.values(name, common) for one in own]) for name in ("gap", "accuracy"))
            yield Curve(label, tuple(own), gaps, accuracies)


def _panels(grid: Grid, cells: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    """Return, for each epsilon, the points and frontiers of all contenders; those without a budget stand in each."""
    found = sorted({one.epsilon for one in cells if one.epsilon is not None})
    epsilons: list[float | None] = [*found] if found else [None]
    reference = _constant(cells)
    for epsilon in epsilons:
        curves = list(_curves([one for one in cells if one.epsilon in {epsilon, None}]))
        rows = []
        for curve in curves:
            everyone = np.arange(curve.gaps.shape[1])
            best = set(pareto(*curve.means(everyone)))
            area = jackknife(partial(curve.area, grid.reference_gap, reference), len(everyone))
            at = [jackknife(partial(curve.best_at, limit), len(everyone)).to_dict() for limit in grid.gaps]
            points = [
                cell.place
                | {name: mean_of(values[place].tolist()).to_dict()
                   for name, values in (("accuracy", curve.accuracies), ("gap", curve.gaps))}
                | {"is_on_frontier": place in best}
                for place, cell in enumerate(curve.cells)
            ]  # fmt: skip
            rows.append(
                {"label": curve.label, "contender": curve.cells[0].contender, "is_private": curve.cells[0].is_private,
                 "seeds": len(everyone), "points": points, "area": area.to_dict(), "accuracy_at": at}
            )  # fmt: skip
        yield {
            "data": cells[0].data, "constraint": cells[0].constraint, "epsilon": shown(epsilon),
            "reference_accuracy": reference, "curves": rows,
        }  # fmt: skip


# --- paired tests -----------------------------------------------------------------------------------------------------


def _tests(grid: Grid, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return every contender against the baseline on common splits, at equal epsilon and tolerance."""
    rows: list[dict[str, Any]] = []
    for base, other in product(cells, cells):
        is_base = base.label == grid.baseline or base.label.startswith(f"{grid.baseline} ")
        is_fair = other.label != base.label and base.tolerance == other.tolerance
        if not (is_base and is_fair and (base.epsilon == other.epsilon or other.epsilon is None)):
            continue
        common = sorted(set(base.seeds()) & set(other.seeds()))
        for figure in FIGURES:
            found = _test(grid, other.values(figure, common) - base.values(figure, common))
            epsilon = shown(base.epsilon)
            rows.append(
                other.place
                | {"epsilon": epsilon, "baseline": base.label, "figure": figure, "n": found.n, "p": found.p,
                   "difference": found.difference.to_dict()}
            )  # fmt: skip
    known = [row for row in rows if row["p"] is not None]
    for row, corrected in zip(known, holm([row["p"] for row in known]), strict=True):
        row["p_holm"] = corrected
    return [{"p_holm": None} | row for row in rows]


def _test(grid: Grid, differences: NDArray[np.float64]) -> PairedTest:
    if grid.test == "wilcoxon":
        return wilcoxon(differences.tolist())
    return paired_t(differences.tolist(), (1 - grid.train_share) / grid.train_share)
