"""Where the attribute alone is secret: who is in noisy sums, how far one attribute moves them, what is public."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fairveil._random import reproducible_coins, secret_coins
from fairveil.errors import BudgetExceededError, UnplannedReleaseError
from fairveil.fairness.constraints import DemographicParity, EqualizedOdds
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.pf_ld.group_gradients import SHARPNESS, NoisyGroupGradients, Schedule
from fairveil.methods.pf_ld.membership import against_all
from fairveil.methods.pf_ld.recipe import LagrangianDual
from fairveil.models import LinearSoftmax, Perceptron
from fairveil.privacy.attribute import AttributeRecords, attribute_unit
from fairveil.privacy.ledger import Budget, Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import (
    Bin,
    Count,
    Decision,
    DecisionGradient,
    DecisionGradientNorm,
    DecisionPrice,
    SoftDecision,
    Sum,
)
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import ROUNDING, open_veils
from fairveil.privacy.votes import VotePrice, Votes
from fairveil.training.recipe import Task
from fairveil.training.run import make_plan, run_plan

UNIT = attribute_unit(["side"], "record")
PEOPLE = Population((Attribute("side", ("few", "many", "most")),), ("no", "yes"))
KNOWN = PEOPLE.codes
SIDES = against_all(EqualizedOdds(), PEOPLE).groups
MODELS = {"linear": LinearSoftmax(3, 2), "perceptron": Perceptron(3, (5,), 2)}
BOUND = 0.7
EDGES = np.array([0.05, 0.2, 0.4])


def table(rng, n=60, persons=None):
    X = rng.normal(size=(n, 3)).astype(np.float32)
    cells = rng.choice([*KNOWN, -1], size=n).astype(np.int16)
    return MemoryRecords(X, rng.integers(2, size=n).astype(np.int16), cells, persons)


def params_of(model, rng, size=1.0):
    return (size * rng.normal(size=model.n_params)).astype(np.float32)


def plan_of(*parts, unit=UNIT):
    return Plan(parts, 1.0, 1e-5, unit)


def asks_of(model, params, rng):
    """Everything that PF-LD asks of rows whose attribute is secret, with the bound that its noise follows."""
    cells, n_cells = SIDES.cells, SIDES.n_cells
    sums = Sum(cells, n_cells, DecisionGradient(model, params, rng.normal(size=3), rng.normal(size=(3, 2)), 0.3))
    price = DecisionPrice(rng.normal(size=(cells.size, 2)).astype(np.float32), SHARPNESS)
    fresh, stable = Decision(model, params), Decision(model, params, is_row_stable=True)
    votes = {loss_bound: Sum(cells, n_cells, Votes(model, params, loss_bound)) for loss_bound in (None, 0.5)}
    prices = {loss_bound: VotePrice(price.pull, 1.0, loss_bound) for loss_bound in (None, 2.0)}
    by_group = np.array([0.3 * BOUND, 0.6 * BOUND, BOUND, BOUND], np.float32)
    soft, norms = SoftDecision(model, params), Bin(DecisionGradientNorm(model, params, SHARPNESS), EDGES)
    return {
        "decisions": (lambda b: b.release_counts(Count(cells, n_cells, stable)), 1.0),
        "decisions of a step": (lambda b: b.release_counts(Count(cells, n_cells, fresh)), 1.0),
        "soft scores": (lambda b: b.release_sums(Sum(cells, n_cells, soft), BOUND, "counts"), BOUND),
        "lengths": (lambda b: b.release_counts(Count(cells, n_cells, norms)), 1.0),
        "sums": (lambda b: b.release_sums(sums, BOUND, "counts"), BOUND),
        "gradient": (lambda b: b.release_gradient(model, params, price, BOUND, "counts"), BOUND),
        "votes": (lambda b: b.release_sums(votes[None], 1.0, "counts"), 1.0),
        "votes by loss": (lambda b: b.release_sums(votes[0.5], 1.0, "counts"), 1.0),
        "gradient of votes": (lambda b: b.release_gradient(model, params, prices[None], by_group, "counts"), BOUND),
        "gradient by loss": (lambda b: b.release_gradient(model, params, prices[2.0], by_group, "counts"), BOUND),
    }


GRADIENTS = ("gradient", "gradient of votes", "gradient by loss")
ASKED = ("decisions", "decisions of a step", "soft scores", "lengths", "sums", "votes", "votes by loss", *GRADIENTS)


def released(records, ask, seed=0):
    """Return what the veil says without noise, of everyone whose attribute is known."""
    plan = plan_of(Stage("train", (Release("counts", "gaussian", 0.0),)))
    veils = open_veils(AttributeRecords.of(records, KNOWN), plan, Ledger(), reproducible_coins(seed), "a test")
    return ask(veils["train"].draw())


# --- who has a part in it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("kind", sorted(MODELS))
def test_rows_of_unknown_attribute_have_no_part_in_any_sum(rng, kind, name):
    """Whatever they hold, and whichever code says "unknown", the sums are those of the others alone."""
    model = MODELS[kind]
    params = params_of(model, rng)
    ask, _ = asks_of(model, params, rng)[name]
    records = table(rng)
    unknown = records.groups < 0
    alone = MemoryRecords(records.X[~unknown], records.y[~unknown], records.groups[~unknown])
    expected = released(alone, ask)
    assert np.abs(expected).sum() > 0
    wild = records.X.copy()
    wild[unknown] = rng.choice([np.nan, np.inf, -np.inf, 3e38, 1e4], size=wild[unknown].shape)
    other_code = np.where(unknown, PEOPLE.n_groups - 1, records.groups).astype(np.int16)
    for one in (records, replace(records, X=wild), replace(records, groups=other_code)):
        np.testing.assert_allclose(released(one, ask), expected, atol=1e-4)


@pytest.mark.parametrize("name", ASKED)
def test_where_nobody_is_known_nothing_is_summed(rng, name):
    model = MODELS["perceptron"]
    ask, _ = asks_of(model, params_of(model, rng), rng)[name]
    records = table(rng)
    assert not released(replace(records, groups=np.full_like(records.groups, -1)), ask).any()


def test_persons_count_once_with_the_first_attribute_of_their_rows(rng):
    """Forty persons of five rows; one of them is told by two rows, and first by 2, one by none."""
    persons = np.repeat(np.arange(40), 5)
    records = table(rng, 200, persons)
    cells = np.abs(records.groups)
    cells[:5], cells[5:10] = [-1, -1, 2, -1, 0], -1
    records = replace(records, groups=cells)
    secret = AttributeRecords.of(records, KNOWN).secret.gathered()
    assert secret.n_units == 39
    assert secret.persons.tolist() == [*persons[:5], *persons[10:]]
    for person in (0, *range(2, 40)):
        assert len(set(secret.groups[secret.persons == person].tolist())) == 1
    assert (secret.groups[:5] == 2).all()
    for seed in range(20):
        batch = next(secret.draw({-1: 1.0}, reproducible_coins(seed)))
        drawn = secret.persons[batch]
        assert sorted(drawn) == [0, *range(2, 40)]
        assert (secret.groups[batch] >= 0).all()
    model = MODELS["linear"]
    ask, _ = asks_of(model, params_of(model, rng), rng)["decisions"]
    assert released(records, ask).sum() == 39


# --- how far one attribute moves it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("size", [0.0, 1.0, 50.0])
@pytest.mark.parametrize("kind", sorted(MODELS))
def test_an_attribute_known_or_not_moves_a_sum_by_its_bound_at_most(rng, worst_rows, kind, size, name):
    """Each of the worst rows by itself; nobody's sums are 0."""
    model = MODELS[kind]
    ask, bound = asks_of(model, params_of(model, rng, size), rng)[name]
    X = worst_rows(12)
    y, cells = rng.integers(2, size=len(X)).astype(np.int16), rng.choice(KNOWN, len(X)).astype(np.int16)
    moved = np.array([np.linalg.norm(released(MemoryRecords(X[[i]], y[[i]], cells[[i]]), ask)) for i in range(len(X))])
    assert np.isfinite(moved).all()
    assert moved.max() <= bound * (1 + 2e-6)
    if name != "gradient by loss" and (name not in {"soft scores", "votes", *GRADIENTS} or size == 1):
        assert moved.max() > 0.99 * bound  # the bound is reached, so the search is worth something


@pytest.mark.parametrize("name", ASKED)
def test_in_a_crowd_too_and_a_change_of_group_moves_it_twice_at_most(rng, worst_rows, name):
    """One row of sixty, each in its turn and of every size, becomes unknown or changes its group."""
    model = MODELS["perceptron"]
    ask, bound = asks_of(model, params_of(model, rng), rng)[name]
    records = table(rng)
    X, cells = records.X.copy(), np.abs(records.groups)
    X[:30] = worst_rows(12)[-30:]
    base = replace(records, X=X, groups=cells)
    whole = released(base, ask)
    assert np.isfinite(whole).all()
    for place in range(0, 60, 3):
        unknown, other = cells.copy(), cells.copy()
        unknown[place], other[place] = -1, KNOWN[(cells[place] + 1) % len(KNOWN)]
        fallen, changed = (released(replace(base, groups=one), ask) for one in (unknown, other))
        assert np.linalg.norm(whole - fallen) <= bound * ROUNDING
        # in a cell each, two of them are sqrt 2 apart; one vector with the sign turned is 2 apart
        assert np.linalg.norm(whole - changed) <= bound * ROUNDING * (2 if name in GRADIENTS else math.sqrt(2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(MODELS))
@pytest.mark.parametrize("name", ["decisions", "lengths"])
def test_a_row_more_tips_no_equal_rows_over_an_edge(rng, kind, name):
    """Counts at parameters that are known beforehand: copies of a row on a tie, or as long as the largest edge.

    The largest edge is the largest public length, so rows lie on it by design. Products that round by place move
    counts by up to 7 here.
    """
    for d in (6, 35):
        model = replace(MODELS[kind], n_features=d)
        params = params_of(model, rng)
        X = np.tile(rng.normal(size=d).astype(np.float32), (500, 1))
        edges = np.array([0.1, 1.0]) * float(DecisionGradientNorm(model, params, SHARPNESS).norms_of(X).max())
        counts = [
            counted(MemoryRecords(X[:n], np.zeros(n, np.int16), np.zeros(n, np.int16)), model, params, name, edges)
            for n in range(480, 501)
        ]
        assert {int(np.abs(more - less).sum()) for less, more in pairwise(counts)} == {1}


def on_the_edge(model, row):
    """Return parameters at which every hidden unit is 0 for this row, but for how its product is rounded."""
    params = np.random.default_rng(3).normal(size=model.n_params).astype(np.float32)
    weights, biases = model.layers(params)[0]
    biases[:] = -(np.tile(row, (500, 1)) @ weights)[-1]
    return params


@pytest.mark.parametrize(("d", "step"), [(35, 0), (35, 1), (100, 0)])
def test_a_row_more_tips_no_hidden_unit_of_equal_rows(rng, monkeypatch, d, step):
    """The gradient that PF-LD releases, at parameters that are known, as the first are, or can be guessed.

    With products that round by place, slopes of many rows turned at once: the sum moved by up to 10 bounds.
    """
    model = Perceptron(d, (8,), 2)
    row = rng.normal(size=d).astype(np.float32)
    params, exact, answer = on_the_edge(model, row), [], MemoryRecords.answer
    monkeypatch.setattr(MemoryRecords, "answer", lambda *words: exact.append(answer(*words)) or exact[-1])
    parts = Stage("train", (Release("decisions", "gaussian", 9.0), Release("gradient", "gaussian", 9.0)), n_steps=2)
    sides = against_all(DemographicParity(), PEOPLE)
    sums = []
    for n in range(480, 501):
        records = MemoryRecords(np.tile(row, (n, 1)), np.zeros(n, np.int16), np.zeros(n, np.int16))
        veils = open_veils(AttributeRecords.of(records, KNOWN), plan_of(parts), Ledger(), secret_coins(), "a test")
        public = AttributeRecords.of(records, KNOWN).public
        side = NoisyGroupGradients.start(veils, public, model, sides, Schedule(0, 2), BOUND, None)
        for number in range(step + 1):
            side = side.before(number, params)
        # weights of 1 and -1 however many rows there are
        side.gradient(params, np.tile([0.5, -0.5], (sides.n_cells, 1)) / n)
        sums.append(exact[-1])
    moves = [np.linalg.norm(more - less) for less, more in pairwise(sums)]
    assert 0.3 * BOUND < max(moves) <= ROUNDING * BOUND


def counted(records, model, params, name, edges):
    cells, n_cells = SIDES.cells, SIDES.n_cells
    if name == "decisions":
        function = Count(cells, n_cells, Decision(model, params, is_row_stable=True))
    else:
        function = Count(cells, n_cells, Bin(DecisionGradientNorm(model, params, SHARPNESS), edges))
    return records.answer(np.arange(len(records.y)), function)


def test_all_rows_of_a_person_move_a_sum_no_more_than_one_row(rng):
    """Six rows, known or not, in groups of any kind: given all coins, the person is one row."""
    model = MODELS["linear"]
    X = (10.0 ** rng.uniform(-3, 4, (6, 1)) * rng.normal(size=(6, 3))).astype(np.float32)
    for name in ASKED:
        ask, bound = asks_of(model, params_of(model, rng), rng)[name]
        moved = [
            np.linalg.norm(
                released(
                    MemoryRecords(X, np.ones(6, np.int16), cells.astype(np.int16), np.zeros(6, np.int64)),
                    ask,
                    seed,
                )
            )
            for seed, cells in enumerate(rng.choice([*KNOWN, -1], size=(40, 6)))
        ]
        assert max(moved) <= bound * (1 + 2e-6)


# --- what is public --------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 40), by_person=st.booleans())
def test_nothing_of_the_public_side_depends_on_an_attribute(seed, n, by_person):
    rng = np.random.default_rng(seed)
    records = table(rng, n, rng.integers(0, 12, n) if by_person else None)
    others = replace(records, groups=rng.choice([*KNOWN, -1, PEOPLE.n_groups - 1], size=n).astype(np.int16))
    worlds = []
    for one in (records, others):
        guarded = AttributeRecords.of(one, KNOWN)
        assert set(vars(guarded.public)) == {"inputs", "y", "persons", "n_units"}
        subsets = guarded.split({"train": 0.6, "holdout": 0.4}, reproducible_coins(seed))
        worlds.append([guarded.public, *(subset.public for subset in subsets.values())])
    for first, second in zip(*worlds, strict=True):
        assert first.n_units == second.n_units and repr(first) == repr(second)
        assert np.array_equal(first.X, second.X) and np.array_equal(first.y, second.y)
        assert np.array_equal(first.weights, second.weights)
        if len(first.y):
            drawn = [side.sample(50, np.random.default_rng(seed)) for side in (first, second)]
            assert np.array_equal(*drawn)


def test_what_is_private_does_not_print_itself(rng):
    assert repr(AttributeRecords(table(rng))) == "AttributeRecords(<private>)"
    assert repr(AttributeRecords(table(rng)).public) == "PublicRows(60 units)"


def test_rows_of_a_person_weigh_one_together_and_are_drawn_by_their_weight(rng):
    """Persons of 1 to 4 rows: chi-square of 20,000 draws; drawn by row, person 3 would be four times too often."""
    persons = np.repeat(np.arange(4), np.arange(1, 5))
    public = AttributeRecords(table(rng, 10, persons)).public
    assert public.n_units == 4
    assert np.bincount(persons, public.weights).tolist() == pytest.approx([1, 1, 1, 1])
    drawn = public.sample(20_000, rng)
    by_row, by_person = np.bincount(drawn, minlength=10), np.bincount(persons[drawn])
    assert chisquare(by_row, 20_000 * public.weights / 4).pvalue > 1e-6
    assert chisquare(by_person, np.full(4, 5000)).pvalue > 1e-6
    assert chisquare(by_person, 20_000 * np.arange(1, 5) / 10).pvalue < 1e-6
    alone = AttributeRecords(table(rng, 10)).public
    assert alone.weights.tolist() == [1.0] * 10
    assert chisquare(np.bincount(alone.sample(20_000, rng), minlength=10)).pvalue > 1e-6


@pytest.mark.parametrize("by_person", [False, True])
def test_public_and_secret_rows_of_a_part_are_of_the_same_units(rng, by_person):
    n = 300
    persons = np.repeat(np.arange(100), 3) if by_person else None
    records = table(rng, n, persons)
    records.X[:, 0] = np.arange(n)  # a name for each row
    parts = (
        Stage("train", (Release("counts", "gaussian", 1.0),), 0.7),
        Stage("sums", (Release("sums", "gaussian", 1.0),), 0.7, subset="train"),
        Stage("holdout", (Release("outcomes", "discrete_gaussian", 1.0),), 0.3),
    )
    veils = open_veils(AttributeRecords(records), plan_of(*parts), Ledger(), secret_coins(), "a test")
    rows = {name: set(veil.public.X[:, 0].astype(int)) for name, veil in veils.items()}
    assert rows["train"] == rows["sums"]
    assert rows["train"].isdisjoint(rows["holdout"])
    assert rows["train"] | rows["holdout"] == set(range(n))
    known = set(np.flatnonzero(records.groups >= 0))
    for name, veil in veils.items():
        assert set(veil._records.gathered().X[:, 0].astype(int)) == rows[name] & known
    if by_person:
        assert {row // 3 for row in rows["train"]}.isdisjoint({row // 3 for row in rows["holdout"]})


# --- the plan and the books ------------------------------------------------------------------------------------------


def test_a_plan_and_records_that_hide_different_things_do_not_meet(rng):
    part, ledger = Stage("train", (Release("counts", "gaussian", 1.0),)), Ledger()
    for records, unit in ((table(rng), UNIT), (AttributeRecords(table(rng)), "record")):
        with pytest.raises(UnplannedReleaseError, match="keep secret what the plan hides"):
            open_veils(records, plan_of(part, unit=unit), ledger, secret_coins(), "a test")
    assert ledger.entries == ()
    whole = open_veils(table(rng), plan_of(part, unit="record"), ledger, secret_coins(), "a test")
    assert whole["train"].public is None


def task_of(n_public=None, unit=UNIT):
    return Task(3, PEOPLE, 2.0, n_public, 1.0, 1e-5, unit)


@pytest.mark.parametrize("primal", ["memberships", "gradients"])
@pytest.mark.parametrize("n_public", [None, 500])
def test_the_number_of_rows_is_public_and_not_bought(rng, primal, n_public):
    recipe = LagrangianDual(DemographicParity(), primal=primal, descent=Descent(n_steps=5))
    task = task_of(n_public)
    plan = make_plan(recipe, task, 0.25)
    assert "size" not in {part.name for part in plan.stages}
    records = table(rng, 400)
    sizes = []
    for cells in (records.groups, np.full_like(records.groups, -1)):
        guarded = AttributeRecords(replace(records, groups=cells))
        sizes.append(run_plan(plan, recipe, task, guarded, Ledger(), secret_coins(), rng).size)
    assert sizes == [300.0, 300.0]  # the share of all, whether their attribute is known or not, whatever was declared


def test_the_ledger_names_the_hidden_attribute_apart_from_records(rng):
    plan = make_plan(LagrangianDual(DemographicParity()), task_of())
    ledger = Ledger()
    open_veils(AttributeRecords(table(rng)), plan, ledger, secret_coins(), "a test")
    (entry,) = ledger.entries
    assert {charge.unit for charge in entry.charges} == {"attribute side of each record"}
    assert 0.98 < ledger.epsilon(1e-5) <= 1.0
    small = Stage("train", (Release("counts", "gaussian", 100.0),))
    open_veils(table(rng), plan_of(small, unit="record"), ledger, secret_coins(), "another test")
    assert ledger.units == ("attribute side of each record", "record")
    assert ledger.epsilon(1e-5) == math.inf
    strict = Ledger(budget=Budget(10.0, 1e-5))
    open_veils(table(rng), plan_of(small, unit="record"), strict, secret_coins(), "a test")
    with pytest.raises(BudgetExceededError, match="attribute side of each record and record"):
        open_veils(AttributeRecords(table(rng)), plan, strict, secret_coins(), "a test")


def test_attributes_of_different_names_have_no_common_total():
    ledger = Ledger()
    for names in (["sex"], ["race"]):
        part = Stage("train", (Release("counts", "gaussian", 10.0),))
        plan = plan_of(part, unit=attribute_unit(names, "record"))
        records = MemoryRecords(np.zeros((1, 1), np.float32), np.zeros(1, np.int16), np.zeros(1, np.int16))
        open_veils(AttributeRecords(records), plan, ledger, secret_coins(), "a test")
    assert len(ledger.units) == 2
    assert ledger.epsilon(1e-5) == math.inf


def test_a_unit_says_whether_it_is_an_attribute():
    for unit in (attribute_unit(["sex"], "record"), attribute_unit(["sex", "race"], "person by id")):
        assert Plan((), 1.0, 1e-5, unit).hides_attribute and task_of(unit=unit).hides_attribute
    for unit in ("record", "person by attribute"):
        assert not Plan((), 1.0, 1e-5, unit).hides_attribute and not task_of(unit=unit).hides_attribute
