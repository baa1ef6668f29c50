"""Models, queries and noise that break what the accounting assumes are refused on made-up rows; ours are not."""

from typing import ClassVar

import numpy as np
import pytest

from fairveil import Descent, Ledger, PrivateClassifier, Tuning
from fairveil._random import secret_coins
from fairveil.accounting.events import GaussianRelease
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError, UnplannedReleaseError
from fairveil.models import Decoupled, LinearSoftmax, Perceptron, PrefittedProbabilities
from fairveil.models.base import NONE
from fairveil.privacy import probes
from fairveil.privacy.noise import NoiseDistribution, add_gaussian, add_laplace, noise_distribution
from fairveil.privacy.noise import register_noise_distribution as register
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.probes import check_model, check_noise
from fairveil.privacy.queries import Code, Count, CrossEntropy, GradientSum, Query, Sum, Values, one_cell, row_function
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import open_veils
from fairveil.research.fair_smooth import SmoothedModel
from fairveil.training.tuning import run_tuned_plan


@pytest.fixture(autouse=True)
def nothing_tried(monkeypatch):
    monkeypatch.setattr(probes, "_tried", set())


# --- models -----------------------------------------------------------------------------------------------------------

OURS = [
    LinearSoftmax(1), LinearSoftmax(6, 3), LinearSoftmax(200, 5), LinearSoftmax(4, bias=False), Perceptron(6, (5,), 3),
    Perceptron(30, (8, 4), 2), Decoupled(LinearSoftmax(6), 3), Decoupled(Perceptron(6, (5,), 3), 2),
    PrefittedProbabilities(3),
]  # fmt: skip

honest = LinearSoftmax.clipped_gradient


def unclipped(self, params, X, dlogits, bound, known=NONE):
    return honest(self, params, X, dlogits, np.inf, known)


def clipped_together(self, params, X, dlogits, bound, known=NONE):
    total = np.nan_to_num(honest(self, params, X, dlogits, np.inf, known))
    return total * min(1, len(X) * float(np.min(bound)) / (np.linalg.norm(total) + 1e-9))


def clipped_by_the_longest(self, params, X, dlogits, bound, known=NONE):
    total = honest(self, params, X, dlogits, bound, known)
    return total / max(1, np.nan_to_num(known.row_norms, posinf=0).max())


def one_bad_record_spoils_all(self, params, X, dlogits, bound, known=NONE):
    is_bad = not np.isfinite(X).all()
    return honest(self, params, X, dlogits, bound, known) * (0 if is_bad else 1)


def not_finite_is_kept(self, params, X, dlogits, bound, known=NONE):
    return honest(self, params, X, dlogits, bound, known) + 0 * X.sum()


def reads_the_first(self, params, X, dlogits, bound, known=NONE):
    return honest(self, params, X, dlogits * (1 + (np.nan_to_num(X[0, 0], posinf=9) > 0)), bound, known)


def one_bound_for_all(self, params, X, dlogits, bound, known=NONE):
    return honest(self, params, X, dlogits, float(np.max(bound)), known)


def slightly_too_long(self, params, X, dlogits, bound, known=NONE):
    return 1.01 * honest(self, params, X, dlogits, bound, known)


BROKEN = [
    unclipped, clipped_together, clipped_by_the_longest, one_bad_record_spoils_all, not_finite_is_kept,
    reads_the_first, one_bound_for_all, slightly_too_long,
]  # fmt: skip


@pytest.mark.parametrize("model", OURS, ids=repr)
def test_our_models_pass(model):
    check_model(model)


@pytest.mark.parametrize("broken", BROKEN)
def test_a_model_that_does_not_clip_each_record_is_refused(monkeypatch, broken):
    check_model(LinearSoftmax(6))  # a model that passed earlier does not vouch for another function
    monkeypatch.setattr(LinearSoftmax, "clipped_gradient", broken)
    with pytest.raises(InvalidParameterError, match="clips the gradient of each record by itself, got a LinearSoftmax"):
        check_model(LinearSoftmax(6))


def test_the_copies_of_a_decoupled_model_are_tried(monkeypatch):
    monkeypatch.setattr(LinearSoftmax, "clipped_gradient", unclipped)
    with pytest.raises(InvalidParameterError, match="got a Decoupled"):
        check_model(Decoupled(LinearSoftmax(6), 2))


@pytest.mark.parametrize("broken", [unclipped, reads_the_first])
def test_a_fit_with_such_a_model_ends_before_the_debit(monkeypatch, rng, broken):
    monkeypatch.setattr(LinearSoftmax, "clipped_gradient", broken)
    schema = Schema.for_arrays(3, classes=["0", "1"], n_public=100)
    clf = PrivateClassifier(schema=schema, ledger=Ledger(), training=Descent(n_steps=2))
    X, y = rng.uniform(-1, 1, (100, 3)), rng.integers(0, 2, 100)
    with pytest.raises(InvalidParameterError, match=r"correct its clipped_gradient \(nothing was spent\)"):
        clf.fit(X, y)
    assert clf.ledger.entries == ()


def test_a_choice_among_such_models_ends_before_the_debit(monkeypatch, rng):
    monkeypatch.setattr(LinearSoftmax, "clipped_gradient", unclipped)
    schema = Schema.for_arrays(3, classes=["0", "1"], n_public=100)
    clf = PrivateClassifier(schema=schema, ledger=Ledger())
    tuning = Tuning((Descent(model="mlp", n_steps=2), Descent(n_steps=2)))
    inputs, plan = clf._input_spec(), clf.planned(tuning)
    records = MemoryRecords(np.zeros((9, 6), np.float32), np.zeros(9, np.int16), np.zeros(9, np.int16))
    with pytest.raises(InvalidParameterError, match="got a LinearSoftmax"):
        run_tuned_plan(plan, tuning, inputs.task, records, clf.ledger, secret_coins(), rng)
    assert clf.ledger.entries == ()


def test_without_privacy_nothing_needs_to_be_clipped(monkeypatch, rng):
    monkeypatch.setattr(LinearSoftmax, "clipped_gradient", unclipped)
    schema = Schema.for_arrays(3, classes=["0", "1"], n_public=100)
    clf = PrivateClassifier(np.inf, schema=schema, ledger=Ledger(), training=Descent(n_steps=2))
    assert clf.fit(rng.uniform(-1, 1, (100, 3)), rng.integers(0, 2, 100)).params_.size


def test_the_base_of_a_smoothed_model_is_tried(monkeypatch):
    monkeypatch.setattr(LinearSoftmax, "clipped_gradient", unclipped)
    with pytest.raises(InvalidParameterError, match="got a LinearSoftmax"):
        check_model(SmoothedModel(LinearSoftmax(6), 1.0))


def test_a_model_is_tried_once_at_each_size(monkeypatch):
    calls = []

    def counted(self, *arguments):
        calls.append(self.n_features)
        return honest(self, *arguments)

    monkeypatch.setattr(LinearSoftmax, "clipped_gradient", counted)
    for n_features in (6, 6, 7, 6):
        check_model(LinearSoftmax(n_features))
    assert calls.count(6) == calls.count(7) > 0


# --- queries ----------------------------------------------------------------------------------------------------------


@row_function
class Squares(Values):
    """Honest: each row's own squares, whatever they are; the sum clips them."""

    depends_on_group: ClassVar[bool] = False

    def values_of(self, rows):
        return (rows.X * rows.X).T


@row_function
class Centered(Values):
    def values_of(self, rows):
        return (rows.X - np.nan_to_num(rows.X, posinf=0, neginf=0).mean(axis=0)).T


@row_function
class Shared(Values):
    """Divides by the size of the block."""

    def values_of(self, rows):
        return (rows.X / len(rows)).T


@row_function
class Shifted(Values):
    """Answers each row with the one before."""

    def values_of(self, rows):
        return np.roll(rows.X, 1, axis=0).T * np.arange(1, len(rows) + 1)


@row_function
class Rank(Code):
    def codes_of(self, rows, n_labels):
        return np.minimum(np.argsort(np.argsort(rows.X[:, 0])), 2), 3


@row_function
class Positive(Code):
    """Honest: whether the first column is positive."""

    def codes_of(self, rows, n_labels):
        return rows.X[:, 0] > 0, 2


@row_function
class Unbounded(Query):
    """A query of its own that forgets to clip."""

    def total(self, rows, bound, norm):
        return np.nan_to_num(rows.X, posinf=0, neginf=0).sum(axis=0, dtype=np.float64)


@row_function
class Mixed(Query):
    """A query of its own that clips the sum instead of each row."""

    def total(self, rows, bound, norm):
        total = np.nan_to_num(rows.X, posinf=0, neginf=0).sum(axis=0, dtype=np.float64)
        return total * min(1, bound / (np.abs(total).sum() + 1e-9))


@row_function
class Bounded(Query):
    """Honest: each row is clipped, and one that is not finite adds nothing."""

    def total(self, rows, bound, norm):
        X = np.where(np.isfinite(rows.X).all(axis=1)[:, None], rows.X, 0).astype(np.float64)
        return (X * np.minimum(1, bound / (np.linalg.norm(X, norm, axis=1) + 1e-9))[:, None]).sum(axis=0)


@row_function
class Loudest:
    """An objective that doubles the pull of the row with the largest input."""

    def dlogits(self, logits, rows):
        pulls = np.full_like(logits, 0.1)
        pulls[:, np.argmax(np.nan_to_num(rows.X[:, 0], posinf=0))] *= 2
        return pulls


def release(query, bound=1.0, law="gaussian"):
    X = np.zeros((50, 4), np.float32)
    records = MemoryRecords(X, np.zeros(50, np.int16), np.zeros(50, np.int16))
    plan = Plan((Stage("train", (Release("one", law, 1.0),), n_steps=2),), 1.0, 1e-5)
    veil = open_veils(records, plan, Ledger(), secret_coins(), "a test")["train"]
    for _ in range(2):
        answer = veil.draw()._release(query, bound, "one", is_whole=True)
    return answer


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("values", [Centered, Shared, Shifted])
def test_values_that_mix_rows_are_refused(values, law):
    sentence = rf"got {values.__name__}, whose answer for a block is not the sum"
    with pytest.raises(UnplannedReleaseError, match=sentence):
        release(Sum(one_cell(2), 1, values()), law=law)


def test_codes_that_mix_rows_are_refused():
    with pytest.raises(UnplannedReleaseError, match="got Rank, whose answer"):
        release(Count(one_cell(2), 1, Rank()))


def test_an_objective_that_mixes_rows_is_refused():
    with pytest.raises(UnplannedReleaseError, match="got Loudest, whose answer"):
        release(GradientSum(LinearSoftmax(4), np.zeros(10, np.float32), Loudest()))


@pytest.mark.parametrize("query, why", [(Unbounded, "which exceeds its bound"), (Mixed, "not the sum of its answers")])
def test_a_query_that_does_not_bound_each_row_is_refused(query, why):
    with pytest.raises(UnplannedReleaseError, match=why) as refused:
        release(query())
    assert "the debit of this run stands" in str(refused.value)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_honest_queries_of_a_user_pass(law):
    for query in (Sum(one_cell(2), 1, Squares()), Count(one_cell(2), 1, Positive()), Bounded()):
        assert np.isfinite(release(query, 0.7 if isinstance(query, Sum) else 1.0, law)).all()
    model = LinearSoftmax(4)
    assert np.isfinite(release(GradientSum(model, model.initial(None), CrossEntropy()))).all()


# --- noise ------------------------------------------------------------------------------------------------------------


def half(total, scale, coins):
    return add_gaussian(total, scale / 2, coins)


def two_thirds(total, scale, coins):
    return add_gaussian(total, 2 * scale / 3, coins)


def none_at_all(total, scale, coins):
    return total.astype(float)


def once(total, scale, coins):
    return total + add_gaussian(np.zeros(1), scale, coins)


def shifted(total, scale, coins):
    return add_gaussian(total, scale, coins) + scale


def own_generator(total, scale, coins):
    return total + np.random.default_rng().normal(0, scale, total.shape)


def fixed_generator(total, scale, coins):
    return total + np.random.default_rng(5).normal(0, scale, total.shape)


def follows_the_sum(total, scale, coins):
    return add_gaussian(total, scale * (1 + abs(float(total[0]))), coins)


def forgets_the_scale(total, scale, coins):
    return add_gaussian(total, 1.0, coins)


def not_finite(total, scale, coins):
    return add_gaussian(total, scale, coins) + np.inf


def shorter(total, scale, coins):
    return add_gaussian(total, scale, coins)[:-1]


DISHONEST = {
    half: "adds less noise", two_thirds: "adds less noise", none_at_all: "adds less noise", once: "adds less noise",
    shifted: "not centered", own_generator: "does not come from the coins", fixed_generator: "repeats its noise",
    follows_the_sum: "depends on the sum", forgets_the_scale: "adds less noise", not_finite: "one finite number",
    shorter: "one finite number",
}  # fmt: skip


@pytest.mark.parametrize("add", DISHONEST)
def test_noise_that_is_not_what_it_states_is_not_registered(add):
    with pytest.raises(InvalidParameterError, match=DISHONEST[add]):
        register(NoiseDistribution(add.__name__, GaussianRelease, 2, add))
    with pytest.raises(InvalidParameterError, match="Expected law to be one of"):
        noise_distribution(add.__name__)


def test_an_understated_spread_is_refused_and_a_right_one_taken():
    with pytest.raises(InvalidParameterError, match="less noise than its spread states"):
        check_noise("gaussian", add_gaussian, 2.0, False)
    check_noise("gaussian", add_gaussian, 1.0, False)
    check_noise("laplace", add_laplace, 2.0, False)


@pytest.mark.parametrize("name", ["gaussian", "laplace", "discrete_laplace", "discrete_gaussian"])
def test_our_noise_passes(name):
    law = noise_distribution(name)
    check_noise(law.name, law.add, law.spread, law.is_whole)


def test_registering_uses_no_secret_coin(monkeypatch):
    monkeypatch.setattr("fairveil._random.fresh_secret", lambda: pytest.fail("a secret coin was used"))
    check_noise("laplace", add_laplace, 2.0, False)
    check_model(LinearSoftmax(6))
