"""Runs behind the veil: a secret number of them, one debit first, what was paid for and no more, the best comes out."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fairveil._random import secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import Charge, DiscreteGaussianRelease, GaussianRelease, NonPrivateRelease
from fairveil.errors import BudgetExceededError, InvalidParameterError, UnplannedReleaseError
from fairveil.privacy.ledger import Budget, Ledger, Receipt
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import Count, one_cell
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.selection import Runs, TunedPlan, best_of_plans, draw_count, open_selection

DELTA = 1e-5
P_VALUE = 1e-6

# --- the number of runs -----------------------------------------------------------------------------------


def is_poisson(counts, mean):
    """Chi-square at 1e-6 against Poisson(mean) given at least 1; cells of fewer than 10 are joined to the last."""
    law = stats.poisson(mean)
    last = int(law.isf(20 / len(counts)))
    expected = np.append(law.pmf(np.arange(1, last)), law.sf(last - 1)) * len(counts) / law.sf(0)
    seen = np.bincount(np.minimum(counts, last), minlength=last + 1)[1:]
    return stats.chisquare(seen, expected).pvalue > P_VALUE


@pytest.mark.parametrize("mean", [0.7, 3.0, 8.0])
def test_the_number_of_runs_has_its_law_and_no_other(mean, seeded):
    coins = secret_coins()
    counts = np.array([draw_count(mean, coins) for _ in range(20_000)])
    assert counts.min() >= 1
    assert is_poisson(counts, mean)
    assert not is_poisson(counts, mean * 1.1)
    assert not is_poisson(counts, mean * 0.9)


@pytest.mark.parametrize("mean", [1e-6, 1000.0])
def test_extreme_means_are_drawn(mean, seeded):
    counts = [draw_count(mean, secret_coins()) for _ in range(20)]
    assert np.mean(counts) == pytest.approx(max(mean, 1.0), abs=200)


# --- runs behind the veil ---------------------------------------------------------------------------------


def records(n=40):
    return MemoryRecords(np.zeros((n, 1), np.float32), np.zeros(n, np.int16), np.zeros(n, np.int16))


def run_plan(std):
    parts = [Stage(name, (Release(name, "discrete_gaussian", std),), 0.5) for name in ("train", "score")]
    return Plan(tuple(parts), 1.0, DELTA)


HELD = Stage("holdout", (Release("outcomes", "discrete_gaussian", 4.0),), 0.25)
SIZE = Stage("size", (Release("size", "discrete_laplace", 50.0),))
PLAN = TunedPlan((run_plan(9.0), run_plan(10.0)), 3.0, (SIZE, HELD), 1.0, DELTA)


def ask(veils, name):
    return float(veils[name].draw().release_counts(Count(one_cell(2), 1), name=name)[0])


def count_both(candidate, veils):
    trained, score = ask(veils, "train"), ask(veils, "score")
    return score, (candidate, trained)


def test_the_plan_debits_one_event_beside_the_holdout():
    charges = PLAN.charges("s")
    assert [(charge.split, charge.part) for charge in charges] == [("", ""), ("s", "holdout"), ("s", "fit")]
    assert charges[-1].event == PLAN.event == best_of_plans(PLAN.runs, 3.0)
    assert set(PLAN.event.ways) == {(DiscreteGaussianRelease(std),) for std in (9.0, 10.0)}
    assert PLAN.shares == {"fit": 0.75, "holdout": 0.25}
    everyone = replace(PLAN, around=())
    assert everyone.shares == {} and everyone.charges()[0].split == ""


def test_the_plan_tells_every_number_and_can_be_rebuilt():
    told = PLAN.to_list()
    assert [row["part"] for row in told] == [
        "size", "holdout", "run 1: train", "run 1: score", "run 2: train", "run 2: score",
    ]  # fmt: skip
    assert [row.get("mean_runs") for row in told] == [None, None, 3.0, 3.0, 3.0, 3.0]
    assert told[2]["share"] == pytest.approx(0.375)
    assert told[2]["releases"][0]["noise_multiplier"] == 9.0
    assert told[2]["epsilon"] == pytest.approx(epsilon_of([DiscreteGaussianRelease(9.0)], DELTA))
    assert PLAN.stage("run 2: score").releases[0].noise_multiplier == 10.0
    facts = json.loads(json.dumps(PLAN.to_dict(), allow_nan=False))
    assert TunedPlan.from_dict(facts, 1.0, DELTA) == PLAN


def test_a_part_that_a_run_asks_twice_of_one_piece_is_one_way():
    look = Stage("look", (Release("look", "gaussian", 7.0),), 0.5, subset="train")
    run = replace(run_plan(9.0), stages=(*run_plan(9.0).stages, look))
    ways = best_of_plans([run], 2.0).ways
    assert (DiscreteGaussianRelease(9.0), GaussianRelease(7.0)) in ways
    assert len(ways) == 2


def test_plans_that_cannot_be_are_refused():
    with pytest.raises(InvalidParameterError, match="at least one candidate"):
        TunedPlan((), 3.0, (), 1.0, DELTA)
    with pytest.raises(InvalidParameterError, match="mean_runs"):
        replace(PLAN, mean_runs=0.0)
    with pytest.raises(InvalidParameterError, match="holdout"):
        replace(PLAN, around=(replace(HELD, subset="train"),))


def test_the_debit_is_one_entry_and_on_disk_first(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    seen = []

    def run(candidate, veils):
        seen.append(len(Ledger(ledger.path).entries))
        return count_both(candidate, veils)

    veils, runs = open_selection(records(), PLAN, ledger, secret_coins(), "a test")
    assert set(veils) == {"size", "holdout"}
    best = runs.keep_best(run)
    assert set(seen) == {1}
    (entry,) = ledger.entries
    assert entry.charges[-1].event == PLAN.event
    assert best.candidate == best.outcome[0]
    assert ledger.epsilon(DELTA) == pytest.approx(epsilon_of(PLAN.charges(), DELTA))
    assert entry.details == {"epsilon": 1.0, "delta": DELTA}  # nothing of the number of runs


def test_a_budget_refuses_before_any_run():
    ledger = Ledger(budget=Budget(0.1, DELTA))
    with pytest.raises(BudgetExceededError):
        open_selection(records(), PLAN, ledger, secret_coins(), "a test")
    assert not ledger.entries


def test_seeded_noise_is_recorded_as_not_private(seeded):
    ledger = Ledger()
    _, runs = open_selection(records(), PLAN, ledger, secret_coins(), "a test")
    runs.keep_best(count_both)
    assert {type(charge.event) for charge in ledger.entries[0].charges} == {NonPrivateRelease}


def test_without_a_budget_the_release_is_recorded_as_not_private():
    ledger = Ledger()
    plan = TunedPlan((replace(run_plan(0.0), epsilon=math.inf),), 3.0, (), math.inf, DELTA)
    _, runs = open_selection(records(), plan, ledger, secret_coins(), "a test")
    runs.keep_best(count_both)
    assert math.isinf(ledger.epsilon(DELTA))


def test_one_debit_buys_one_choice():
    _, runs = open_selection(records(), PLAN, Ledger(), secret_coins(), "a test")
    runs.keep_best(count_both)
    with pytest.raises(UnplannedReleaseError, match="one choice"):
        runs.keep_best(count_both)


def test_runs_cannot_be_made_without_their_debit():
    with pytest.raises(UnplannedReleaseError, match="receipt"):
        Runs(records(), PLAN, None, secret_coins())
    other = Ledger().debit([Charge(GaussianRelease(5.0))], "something else")
    with pytest.raises(UnplannedReleaseError, match="one debit"):
        Runs(records(), PLAN, other, secret_coins())


@pytest.mark.parametrize("std", [8.0, 10.0], ids=["with less noise", "booking less than was priced"])
def test_a_run_whose_own_charges_differ_from_the_debit_is_refused(std):
    paid = replace(PLAN, runs=(run_plan(9.0),)).charges("s")
    receipt = Receipt(Ledger().debit(paid, "a test", split="s").entry, "s")
    runs = Runs(records(), replace(PLAN, runs=(run_plan(std),)), receipt, secret_coins())
    with pytest.raises(UnplannedReleaseError, match="paid for"):
        runs.keep_best(count_both)


def test_a_run_cannot_ask_more_than_its_plan():
    def greedy(candidate, veils):
        ask(veils, "train")
        return count_both(candidate, veils)

    _, runs = open_selection(records(), PLAN, Ledger(), secret_coins(), "a test")
    with pytest.raises(UnplannedReleaseError, match="draws"):
        runs.keep_best(greedy)


def test_the_best_score_wins_and_no_number_loses(seeded):
    for place in range(30):
        scores = []

        def run(candidate, veils, scores=scores, place=place):
            scores.append(float(secret_coins().generator.random() + len(scores)) if place % 2 else math.nan)
            return scores[-1], len(scores)

        _, runs = open_selection(records(), PLAN, Ledger(), secret_coins(), "a test")
        best = runs.keep_best(run)
        assert best.score == (max(scores) if place % 2 else -math.inf)
        assert best.outcome == (int(np.argmax(scores)) + 1 if place % 2 else 1)


def law_of_best(mean):
    """Half of the runs are worse; of the better ones three in five are of one kind, two of the other."""
    wins = -math.expm1(-mean / 2) / -math.expm1(-mean)
    return np.array([1 - wins, 0.6 * wins, 0.4 * wins])


def test_the_best_has_the_law_that_is_priced(seeded):
    """Outcomes 0, 1, 2 of masses .5, .3, .2, the last two tied: chi-square at 1e-6 accepts m = 3, rejects 2 and 4."""
    masses, ranks = np.array([0.5, 0.3, 0.2]), np.array([0, 1, 1])
    coins, won = secret_coins(), np.zeros(3)
    plan = TunedPlan((run_plan(9.0),), 3.0, (), 1.0, DELTA)

    def run(candidate, veils):
        outcome = int(np.searchsorted(np.cumsum(masses), coins.generator.random()))
        return float(ranks[outcome]), outcome

    for _ in range(3000):
        _, runs = open_selection(records(1), plan, Ledger(), coins, "a test")
        won[runs.keep_best(run).outcome] += 1
    accepted = [stats.chisquare(won, won.sum() * law_of_best(mean)).pvalue > P_VALUE for mean in (2.0, 3.0, 4.0)]
    assert accepted == [False, True, False]
