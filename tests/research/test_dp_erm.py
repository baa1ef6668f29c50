"""DP-ERM mitigation: its gradient against differences of the penalties, its bound, its price, and a twin."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fairveil import Descent, Ledger, PrivateClassifier
from fairveil._random import reproducible_coins, secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.audit.bounds import free_bound
from fairveil.errors import InvalidParameterError
from fairveil.fairness.rates import Attribute, Population
from fairveil.models import LinearSoftmax
from fairveil.privacy.penalties import STATISTICS_BOUND, GroupStatistics, MitigatedLoss
from fairveil.privacy.plan import Plan, Stage
from fairveil.privacy.queries import CrossEntropy, GradientSum, Sum
from fairveil.privacy.records import MemoryRecords, Rows
from fairveil.privacy.veil import open_veils
from fairveil.research.dp_erm import Mitigation, penalty_weights
from fairveil.training.recipe import Task
from fairveil.training.run import make_plan, run_plan

PEOPLE = Population((Attribute("side", ("left", "right")),), ("a", "b", "c"))
TASK = Task(n_features=4, people=PEOPLE, input_norm=math.sqrt(5), n_public=300, epsilon=math.inf, delta=1e-5)
MODEL = LinearSoftmax(4, 3)
GROUPS = np.repeat(np.arange(2)[:, None], 3, axis=1)


def make_records(rng, n=300):
    X = rng.uniform(-1, 1, size=(n, 4)).astype(np.float32)
    y = (X[:, :3] + rng.gumbel(size=(n, 3))).argmax(axis=1).astype(np.int16)
    return MemoryRecords(X, y, (X[:, 0] > 0.2).astype(np.int16))


def run(recipe, task, records):
    plan = make_plan(recipe, task)
    return run_plan(plan, recipe, task, records, Ledger(), reproducible_coins(0), np.random.default_rng(0)).fit.params


def penalized(params, records, direction, gammas):
    """Return loss and both penalties as they are printed, one record after the other, as a mean."""
    W, V = (np.column_stack([one[:12].reshape(3, 4), one[12:]]).astype(float) for one in (params, direction))
    losses, slopes, doubts = [], [], []
    for x, label in zip(records.X, records.y, strict=True):
        row = np.append(x.astype(float), 1.0)
        scores = W @ row
        chances = np.exp(scores - scores.max())
        chances /= chances.sum()
        losses.append(-math.log(chances[label]))
        gradient = np.outer(chances - np.eye(3)[label], row)
        slopes.append(float((gradient * V).sum()))
        doubts.append(1 - float(chances @ chances))
    total = np.mean(losses)
    for gamma, numbers in zip(gammas, (np.array(slopes), np.array(doubts)), strict=True):
        total += gamma * sum(abs(numbers[records.groups == code].mean() - numbers.mean()) for code in (0, 1))
    return total


def exact_objective(params, records, direction, gammas):
    """Return what the recipe clips and adds up, with weights from exact statistics."""
    statistics = Sum(GROUPS, 2, GroupStatistics(MODEL, params, direction, 100.0))
    sums = statistics.total(Rows(records, np.arange(len(records.y))), STATISTICS_BOUND, 2)
    weights = [penalty_weights(sums[:, j], sums[:, 2], gamma) for j, gamma in enumerate(gammas)]
    return MitigatedLoss(MODEL, direction, *(np.append(one, 0.0).astype(np.float32) for one in weights))


@pytest.mark.parametrize("gammas", [(0.0, 0.0), (0.7, 0.0), (0.0, 1.3), (0.5, 0.9)])
def test_the_gradient_is_that_of_the_printed_penalties(rng, gammas):
    records = make_records(rng, 60)
    params, direction = (rng.normal(size=15).astype(np.float32) for _ in range(2))
    objective = exact_objective(params, records, direction, gammas)
    rows = Rows(records, np.arange(60))
    ours = GradientSum(MODEL, params, objective).total(rows, math.inf) / 60
    for place in range(15):
        shift = np.zeros(15)
        shift[place] = 1e-5
        up, down = (penalized(params + sign * shift, records, direction, gammas) for sign in (1, -1))
        assert ours[place] == pytest.approx((up - down) / 2e-5, abs=2e-3)


def test_no_record_adds_more_than_the_clip_norm(rng):
    records = make_records(rng, 40)
    records.X[:20] *= 1e4
    records.X[20:23] = np.nan
    params, direction = (rng.normal(size=15).astype(np.float32) for _ in range(2))
    objective = MitigatedLoss(MODEL, direction, np.full(3, 1e6, np.float32), np.full(3, -1e6, np.float32))
    for place in range(40):
        row = Rows(records, np.array([place]))
        assert np.linalg.norm(GradientSum(MODEL, params, objective).total(row, 0.5)) <= 0.5 * (1 + 1e-5)
        statistics = Sum(GROUPS, 2, GroupStatistics(MODEL, params, direction, 1.0)).total(row, STATISTICS_BOUND, 2)
        assert np.linalg.norm(statistics) <= STATISTICS_BOUND * (1 + 1e-5)


def test_without_penalties_it_is_plain_descent(rng):
    records = make_records(rng)
    choices = {"model": "linear", "n_steps": 30, "sampling_rate": 1.0, "clip_norm": 0.8}
    plain = run(Descent(**choices), TASK, records)
    assert np.allclose(run(Mitigation(0.0, 0.0, Descent(**choices)), TASK, records), plain, atol=1e-6)


def test_the_second_penalty_brings_uncertainties_together(rng):
    records = make_records(rng)
    records.X[records.groups == 1, 1:] *= 0.1  # labels of one group can hardly be known
    gaps = []
    descent = Descent("linear", n_steps=300, sampling_rate=1.0, learning_rate=0.1)
    for gamma in (0.0, 0.5):
        params = run(Mitigation(0.0, gamma, descent), TASK, records)
        rows = Rows(records, np.arange(300))
        doubts = GroupStatistics(MODEL, params, np.zeros(15, np.float32), 1.0).values_of(rows)[1]
        gaps.append(abs(doubts[records.groups == 0].mean() - doubts[records.groups == 1].mean()))
    assert gaps[1] < 0.5 * gaps[0]


@pytest.mark.parametrize(("gamma_1", "names"), [(0.0, 2), (1.0, 4)])
def test_everything_that_a_step_reads_is_one_joint_event(gamma_1, names):
    task = replace(TASK, epsilon=1.0)
    plan = make_plan(Mitigation(gamma_1), task)
    stage = plan.stage("train")
    assert len(stage.releases) == names
    assert 0.98 < epsilon_of(plan.charges(), task.delta) <= 1.0
    alone = make_plan(Descent("linear"), task).stage("train").noise_multipliers["gradient"]
    more = 1 + 1 / 16 + (2 / 4 if gamma_1 else 0)
    assert stage.noise_multipliers["gradient"] == pytest.approx(alone * math.sqrt(more), rel=0.02)


@pytest.mark.attack
def test_group_means_that_are_not_priced_are_caught(seeded):
    """A twin whose clipped gradient is noisy, and whose weights of the penalties come from exact group means."""

    def shown(statistics_noise, n_draws=1_500):
        (train,) = Mitigation(0.0).stages(1.0, 1.0, replace(TASK, epsilon=1.0, levels=None))[-1:]
        gradient, statistics = train.releases
        noise = replace(statistics, noise_multiplier=statistics_noise)
        stage = Stage("train", (gradient, noise), n_steps=n_draws)
        worlds = []
        for n in (1, 0):
            X, codes = np.full((n + 3, 4), 2.0, np.float32), np.zeros(n + 3, np.int16)
            codes[:2] = 1
            plan = Plan((stage,), 1.0, 1e-5)
            veil = open_veils(MemoryRecords(X, codes, codes), plan, Ledger(), secret_coins(), "a game")["train"]
            params = np.zeros(15, np.float32)
            values = Sum(GROUPS, 2, GroupStatistics(MODEL, params, params, 1.0))
            worlds.append([])
            for _ in range(n_draws):
                batch = veil.draw()
                sums = batch.release_sums(values, STATISTICS_BOUND, "statistics")
                total = batch.release_gradient(MODEL, params, CrossEntropy(), 0.5)
                worlds[-1].append(total[0] / 0.5 + sums[0, 2] / STATISTICS_BOUND / max(statistics_noise, 1e-3) ** 2)
        return free_bound(np.array(worlds[0]), np.array(worlds[1])[::-1], 1e-2)

    honest = Stage("train", Mitigation(0.0).stages(1.0, 1.0, TASK)[-1].releases)
    claim = epsilon_of([honest.event], 1e-2)
    assert shown(4.0) <= claim
    assert shown(0.0) > claim


def test_a_classifier_trains_by_it_within_its_budget(people):
    recipe = Mitigation(descent=Descent("linear", n_steps=40))
    clf = PrivateClassifier(2.0, training=recipe, schema=people.schema, sensitive="sex", ledger=Ledger())
    clf.fit(people.X, people.y)
    assert clf.epsilon_spent_ <= 2.0
    assert clf.score(people.X, people.y) > 0.8


@pytest.mark.parametrize(
    "choices",
    [{"gamma_1": -1.0}, {"gamma_2": math.inf}, {"descent": Descent(clipping="groups")}],
    ids=lambda choices: next(iter(choices)),
)
def test_bad_choices_are_refused(choices):
    with pytest.raises(InvalidParameterError, match="Expected"):
        Mitigation(**choices)


def test_networks_and_people_without_groups_are_refused():
    with pytest.raises(InvalidParameterError, match="linear model"):
        make_plan(Mitigation(descent=Descent("mlp")), TASK)
    with pytest.raises(InvalidParameterError, match="groups"):
        make_plan(Mitigation(), replace(TASK, people=Population((), ("a", "b", "c"))))
