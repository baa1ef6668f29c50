"""Features scaled by frequency: moments of shortened rows, what scales cannot change, the count in the plan."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fairveil import FeatureDesign
from fairveil._random import reproducible_coins, secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.data.coded import Levels
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import DemographicParity
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.functional.quadratic import NEWTON_SENSITIVITY, START_SENSITIVITY, Quadratic
from fairveil.methods.functional.recipe import Functional
from fairveil.models import LinearSoftmax
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.moments import design_of
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import LogisticMoments
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import open_veils
from fairveil.training.recipe import Task
from fairveil.training.run import make_plan, run_plan

PEOPLE = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
N_LEVELS = (4, 3, 2)
D = sum(N_LEVELS)
NORM = math.sqrt(1 + len(N_LEVELS))
LEVELS = Levels(D, len(N_LEVELS), tuple(range(D)), (), (), D, (), N_LEVELS)
PLAIN = FeatureDesign(frequency_power=0)


def make_records(rng, n=4000):
    """One-hot rows of three columns, a rare level in each; the label depends on levels, the levels on the group."""
    groups = rng.integers(0, 2, n)
    chances = [
        [[0.5, 0.3, 0.15, 0.05], [0.2, 0.3, 0.35, 0.15]],
        [[0.6, 0.35, 0.05], [0.4, 0.5, 0.1]],
        [[0.9, 0.1], [0.8, 0.2]],
    ]
    codes = np.stack(
        [(rng.random(n)[:, None] > np.cumsum(both, axis=1)[groups]).sum(axis=1) for both in map(np.array, chances)]
    )
    codes = np.minimum(codes, np.array(N_LEVELS)[:, None] - 1)
    X = np.concatenate([np.eye(k)[own] for k, own in zip(N_LEVELS, codes, strict=True)], axis=1)
    scores = 1.2 * codes[0] - codes[1] + 1.5 * codes[2] - 1.0
    y = rng.random(n) < 1 / (1 + np.exp(-scores))
    return MemoryRecords(X.astype(np.float32), y.astype(np.int16), groups.astype(np.int16))


def make_task(epsilon=math.inf, levels=LEVELS, n_public=4000):
    return Task(D, PEOPLE, NORM, n_public, epsilon, 1e-5, levels=levels)


def train(recipe, records, task=None):
    task = task or make_task(n_public=len(records.y))
    coins = secret_coins() if task.is_private else reproducible_coins(0)
    return run_plan(make_plan(recipe, task), recipe, task, records, Ledger(), coins, np.random.default_rng(0)).fit


def margins(params, X):
    logits = LinearSoftmax(D, 2).logits(params.astype(np.float64), X.astype(np.float64))
    return logits[1] - logits[0]


# --- moments of scaled rows -----------------------------------------------------------------------------------------

SCALES = np.array([0.6, 0.8, 1.1, 1.9, 0.7, 0.9, 2.2, 0.5, 1.4])
WEIGHTS = np.linspace(-2, 3, D + 1)


@pytest.mark.parametrize(
    ("weights", "bound"),
    [(None, START_SENSITIVITY), (WEIGHTS, NEWTON_SENSITIVITY), (None, 0.9), (WEIGHTS, 0.3)],
    ids=["at zero", "around weights", "at zero, bounded", "around weights, bounded"],
)
def test_moments_of_scaled_rows_equal_a_loop_over_records(weights, bound, rng):
    records = make_records(rng, n=300)
    cells, tables = np.arange(4).reshape(2, 2), np.zeros((2, 2), dtype=int)
    query = LogisticMoments(NORM, (4, 1, D + 1), cells, tables, weights, scales=SCALES)
    plan = Plan((Stage("train", (Release("moments", "gaussian", 0.0),)),), math.inf, 1e-5)
    veil = open_veils(records, plan, Ledger(), secret_coins(), "a test")["train"]
    veil.expect(300)
    ours = veil.draw().release_moments(query, bound)

    first, second, n_short = np.zeros((4, D + 1)), np.zeros((D + 1, D + 1)), 0
    for x, y, group in zip(records.X.astype(float), records.y, records.groups, strict=True):
        features, last = SCALES * x / NORM, 1 / NORM
        length = math.sqrt(features @ features)
        n_short += length**2 + last**2 > 1
        z = np.append(features * min(1.0, math.sqrt(1 - last**2) / length), last)
        u, v = 1.0 - 2.0 * y, 1.0
        if weights is not None:
            chance = 1 / (1 + math.exp(-(weights @ z)))
            u, v = chance - y, 4 * chance * (1 - chance)
        scale = min(1.0, bound / math.hypot(u * math.sqrt(z @ z), v * (z @ z)))
        first[2 * group + y] += scale * u * z
        second += scale * v * np.outer(z, z)
    assert 20 < n_short < 280
    assert np.allclose(ours.first, first, rtol=1e-5, atol=1e-5)
    assert np.allclose(ours.second[0], second, rtol=1e-5, atol=1e-5)


def test_rows_are_no_longer_than_the_norm_and_each_still_counts_once(rng):
    X = np.concatenate([make_records(rng, n=200).X, np.zeros((1, D)), np.full((1, D), 1e6)])
    design = design_of(X, NORM, scales=SCALES)
    lengths = np.linalg.norm(design, axis=1)
    assert lengths.max() <= 1 + 1e-12
    assert np.allclose(design[:, -1], 1 / NORM)
    longer = np.linalg.norm(X * SCALES, axis=1) ** 2 + 1 > NORM**2
    assert np.allclose(lengths[longer], 1)
    assert np.allclose(design[~longer, :-1], X[~longer] * SCALES / NORM)


def test_sizes_of_cells_are_exact_though_rows_are_shortened(rng):
    records = make_records(rng)
    query = LogisticMoments(NORM, (4, 1, D + 1), np.arange(4).reshape(2, 2), np.zeros((2, 2), int), scales=SCALES)
    plan = Plan((Stage("train", (Release("moments", "gaussian", 0.0),)),), math.inf, 1e-5)
    veil = open_veils(records, plan, Ledger(), secret_coins(), "a test")["train"]
    veil.expect(4000)
    first = veil.draw().release_moments(query, START_SENSITIVITY).first
    sizes = np.bincount(2 * records.groups + records.y, minlength=4)
    assert np.allclose(np.abs(first[:, -1]) * NORM, sizes, rtol=1e-5)


# --- what scales cannot change --------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.25, 0.5])
@pytest.mark.parametrize(
    "choices",
    [{}, {"rounds": 3}, {"weighting": "groups"}, {"constraint": DemographicParity(0.05)}],
    ids=["one round", "Newton", "groups", "a constraint"],
)
def test_without_noise_scores_do_not_depend_on_scales(power, choices, rng):
    """Levels of a column add up to the intercept, so that weights are not unique, but every row's score is."""
    records = make_records(rng)
    own = train(Functional(features=FeatureDesign(power), **choices), records).params
    plain = train(Functional(features=PLAIN, **choices), records).params
    assert np.abs(margins(plain, records.X)).max() > 0.5
    assert np.allclose(margins(own, records.X), margins(plain, records.X), atol=2e-3)


def test_only_trimming_depends_on_scales(rng):
    """In other coordinates the same quadratic has the same minimizer, until noise makes its eigenvalues count."""
    root, slope = rng.normal(size=(4, 4)), rng.normal(size=4)
    curvature, scales = root @ root.T + 0.1 * np.eye(4), np.array([0.5, 1.0, 2.0, 1.0])
    far = []
    for edge in (0.0, 4.0):
        plain = Quadratic(slope, curvature, np.zeros(4), edge).minimizer
        scaled = Quadratic(scales * slope, scales[:, None] * curvature * scales, np.zeros(4), edge).minimizer
        far.append(np.abs(scales * scaled - plain).max())
    assert far[0] < 1e-9
    assert far[1] > 0.01


def test_counted_decisions_are_those_of_the_released_model(rng):
    """Scores are counted in scaled coordinates, the model is plain: the gap that is aimed at is the one it has."""
    coded = make_records(rng, n=20_000)
    numbers = rng.uniform(-1, 1, (20_000, 2)).astype(np.float32)  # so that scores are not a few
    y = np.where(rng.random(20_000) < 0.5, numbers[:, 0] > 0, coded.y).astype(np.int16)
    records = MemoryRecords(np.concatenate([coded.X, numbers], axis=1), y, coded.groups)
    task = Task(
        D + 2,
        PEOPLE,
        math.hypot(NORM, math.sqrt(2)),
        20_000,
        1000.0,
        1e-5,
        levels=replace(LEVELS, n_features=D + 2, first_pair=D + 2),
    )
    fit = train(Functional(DemographicParity(0.05), headroom=0.0), records, task)
    logits = LinearSoftmax(D + 2, 2).logits(fit.params, records.X)
    accepted = logits[1] > logits[0]
    own = abs(accepted[records.groups == 1].mean() - accepted[records.groups == 0].mean())
    assert fit.statistics.known.scales is not None
    assert fit.statistics.rule_at().gap == pytest.approx(own, abs=0.01)
    assert fit.statistics.known.sizes.sum() == pytest.approx(20_000, rel=0.01)


# --- the plan -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", [(), DemographicParity(0.05)], ids=["free", "bounded"])
@pytest.mark.parametrize("rounds", [1, 2])
def test_the_count_of_levels_is_in_the_plan_and_within_the_budget(constraint, rounds):
    plan = make_plan(Functional(constraint, rounds=rounds), make_task(1.0))
    levels = plan.stages[0]
    assert (levels.name, levels.subset, [one.name for one in levels.releases]) == ("levels", "train", ["levels"])
    precisions = [stage.precision for stage in plan.stages]
    assert precisions[0] == pytest.approx(0.05 * sum(precisions))
    assert 0.98 < epsilon_of([stage.event for stage in plan.stages], 1e-5) <= 1.0


@pytest.mark.parametrize(
    ("recipe", "levels"),
    [(Functional(features=PLAIN), LEVELS), (Functional(law="laplace"), LEVELS), (Functional(), None)],
    ids=["no scaling", "the scale of the paper", "rows without levels"],
)
def test_nothing_is_counted_that_nobody_uses(recipe, levels, seeded, rng):
    task = make_task(1.0, levels)
    assert [stage.name for stage in make_plan(recipe, task).stages] == ["train"]
    assert np.isfinite(train(recipe, make_records(rng), task).params).all()


@pytest.mark.parametrize("finer", [{"resolution": 8}, {"pair_bins": 5}])
def test_finer_features_are_refused(finer):
    with pytest.raises(InvalidParameterError, match="one resolution and no pairs"):
        Functional(features=FeatureDesign(**finer))
    assert Functional(features=FeatureDesign(resolution=1)).features.resolution == 1
