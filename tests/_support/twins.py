"""Broken twins of the veil, each of which an audit must catch, as functions that break it for one test.

Each takes pytest's monkeypatch. What each one claims stays as it was; only what happens is wrong.
"""

from dataclasses import replace

import numpy as np

from fairveil.accounting.events import Joint, PoissonSampled, Repeated
from fairveil.privacy import noise as laws
from fairveil.privacy.plan import Stage
from fairveil.privacy.queries import Bin, GradientSum, GroupGradientSum
from fairveil.privacy.veil import Veil, open_veils


def swap_noise(monkeypatch, change):
    """Let every law draw its noise in another way: `change(add)` returns the new way."""
    for name in list(laws._laws):
        law = laws.noise_distribution(name)
        monkeypatch.setitem(laws._laws, name, replace(law, add=change(law.add)))


def divide_noise(monkeypatch, factor):
    """Draw all noise at a fraction of its scale."""
    swap_noise(monkeypatch, lambda add: lambda total, scale, coins: add(total, scale / factor, coins))


def halve_noise(monkeypatch):
    """Draw all noise at half its scale."""
    divide_noise(monkeypatch, 2)


def draw_noise_once(monkeypatch):
    """Draw the noise of each shape once, and use it in every step."""
    kept = {}

    def change(add):
        def again(total, scale, coins):
            if total.shape not in kept:
                kept[total.shape] = add(np.zeros_like(total, dtype=np.float64), scale, coins) / scale
            return total + scale * kept[total.shape]

        return again

    swap_noise(monkeypatch, change)


def leave_gradients_unclipped(monkeypatch):
    """Trust the caller's clip norm: a gradient may be three times as long."""
    whole = GradientSum.total
    monkeypatch.setattr(GradientSum, "total", lambda self, rows, bound, norm=2: whole(self, rows, 3 * bound, norm))


def leave_group_sums_unscaled(monkeypatch):
    """Release the sums of groups as they are, with the noise of their average."""
    whole = GroupGradientSum.total

    def unscaled(self, rows, bound, norm=2):
        return self.n_groups * whole(self, rows, bound, norm)

    monkeypatch.setattr(GroupGradientSum, "total", unscaled)


def let_the_data_choose_bins(monkeypatch):
    """Put the last edge of a histogram at the largest number of the batch."""

    def codes_of(self, rows, n_labels):
        numbers = self.number.values_of(rows)[0]
        edges = np.append(self.edges[:-1], 0.9 * np.max(numbers, initial=float(self.edges[-1])))
        return np.searchsorted(edges, numbers, side="left"), len(self.edges) + 1

    monkeypatch.setattr(Bin, "codes_of", codes_of)


class ApartStage(Stage):
    """A stage that prices the releases of one shared batch as if each had a batch of its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        apart = tuple(PoissonSampled(self.largest_rate, release.event) for release in self.releases)
        object.__setattr__(self, "event", Repeated(Joint(apart), self.n_steps))


class Tripwire:
    """Records that note whether they were touched before the ledger held an entry."""

    def __init__(self, records, ledger):
        self._records, self._ledger = records, ledger
        self.touched_unpaid = False

    def __getattr__(self, name):
        self.touched_unpaid |= not self._ledger.entries
        return getattr(self._records, name)


def open_before_debit(records, plan, ledger, coins, purpose):
    """Split and arrange the records first, and debit the plan afterwards."""
    subsets = {"": records.arranged(coins), **(records.split(plan.shares, coins) if plan.shares else {})}
    receipt = ledger.debit_plan(plan, coins, purpose)
    return {
        stage.name: Veil(subsets["" if stage.share == 1 else stage.subset], stage, receipt, coins)
        for stage in plan.stages
    }


OPENERS = {"honest": open_veils, "debit after release": open_before_debit}
