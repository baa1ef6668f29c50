import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from fairveil._random import secret_coins
from fairveil.data.drafting import DraftRequest, draft_privately
from fairveil.data.schema import Category, Number
from fairveil.errors import (
    BadStructureError,
    BudgetExceededError,
    MissingPublicFactError,
    UnplannedReleaseError,
)
from fairveil.privacy.column_counts import RawColumn, open_columns
from fairveil.privacy.ledger import Budget, Ledger


def column(*texts):
    numbers = [float(text) if text is not None and text.lstrip("-").isdigit() else np.nan for text in texts]
    return RawColumn(np.array(texts, dtype=object), np.array(numbers))


def opened(cells, epsilon=1.0, delta=1e-3, ledger=None):
    return open_columns({"c": cells}, epsilon, delta, ledger or Ledger(), secret_coins(), "a test")


def test_counts_put_each_cell_into_one_place(seeded):
    veil = opened(column("1", "5", "-3", "9", "abc", None), epsilon=200.0)
    counts = veil.release_counts("c", [0.0, 5.0], 100.0)
    assert counts.numbers.tolist() == [1, 1, 2]
    assert (counts.texts, counts.missing) == (1, 1)


def test_answers_stop_at_the_budget():
    veil = opened(column("a", "b"), epsilon=1.0)
    veil.release_counts("c", [0.0], 0.6)
    with pytest.raises(UnplannedReleaseError, match="budget"):
        veil.release_counts("c", [0.0], 0.6)
    with pytest.raises(UnplannedReleaseError, match="budget"):
        veil.release_texts("c", 0.1, 0.01)


def test_a_single_text_shows_no_more_often_than_delta(seeded):
    """Exactly: P(noise >= t - 1) <= delta; and in 3000 draws at delta .01 it shows 30 +- 6 x 5.5 times at most."""
    epsilon, delta = 0.5, 0.01
    threshold = 1 + math.ceil(math.log(1 / delta) / epsilon)
    ratio = math.exp(-epsilon)
    assert ratio ** (threshold - 1) / (1 + ratio) <= delta
    cells = column("secret")
    shown = 0
    veil = opened(cells, epsilon=1e9, delta=1 - 1e-9)
    veil._delta_left = math.inf
    for _ in range(3000):
        shown += len(veil.release_texts("c", epsilon, delta))
    assert shown <= 63


def test_frequent_texts_show_with_noisy_counts(seeded):
    cells = column(*["yes"] * 500, *["no"] * 400, "never")
    shown = opened(cells, epsilon=2.0).release_texts("c", 1.0, 1e-4)
    assert set(shown) == {"yes", "no"}
    assert abs(shown["yes"] - 500) < 40


def test_a_draft_is_debited_before_it_is_drawn_and_never_twice(tmp_path, rng):
    path, ledger = people(tmp_path, rng), Ledger()
    schema = draft_privately(path, DraftRequest("y", ("g",)), 2.0, 1e-6, ledger)
    assert ledger.epsilon(1e-5) == pytest.approx(2.0, rel=1e-3)
    assert not schema.private_draft
    assert isinstance(schema.columns["age"], Number)
    assert isinstance(schema.columns["job"], Category)
    assert set(schema.columns["job"].categories) == {"clerk", "nurse"}
    assert schema.target.classes == ("no", "yes")
    assert abs(schema.n_public - 5000) < 300
    assert schema.columns["age"].bounds[0] <= 20
    assert schema.columns["age"].bounds[1] >= 60


def people(tmp_path, rng, n=5000):
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 66, n),
            "job": rng.choice(["clerk", "nurse"], n),
            "g": rng.choice(["a", "b"], n),
            "y": rng.choice(["no", "yes"], n),
        }
    )
    frame.loc[0, "job"] = "astronaut"
    frame.to_csv(tmp_path / "people.csv", index=False)
    return tmp_path / "people.csv"


def test_a_budget_refuses_a_draft(tmp_path, rng):
    with pytest.raises(BudgetExceededError):
        draft_privately(people(tmp_path, rng), DraftRequest("y", ("g",)), 2.0, 1e-6, Ledger(budget=Budget(1.0, 1e-5)))


def test_a_missing_column_is_named(tmp_path, rng):
    with pytest.raises(BadStructureError, match='"income"'):
        draft_privately(people(tmp_path, rng), DraftRequest("income", ("g",)), 2.0, 1e-6, Ledger())


def test_too_little_budget_says_so(tmp_path, rng):
    ledger = Ledger()
    with pytest.raises(MissingPublicFactError, match="spend more"):
        draft_privately(people(tmp_path, rng), DraftRequest("y", ("g",)), 0.01, 1e-6, ledger)
    assert len(ledger.entries) == 1  # the look was paid for


def test_the_rare_never_decides_the_common(tmp_path, rng, seeded):
    """Whatever one odd row holds, the frequent categories of a generous draft are the same."""
    names = Counter()
    for _ in range(3):
        names.update(
            [
                draft_privately(people(tmp_path, rng), DraftRequest("y", ("g",)), 20.0, 1e-6, Ledger())
                .columns["job"]
                .categories
            ]
        )
    assert list(names) == [("clerk", "nurse")]


@pytest.mark.statistical
def test_noise_alone_hardly_ever_widens_bounds(tmp_path, rng):
    """At 0.01 false bins a column on average, more than 2 wide drafts in 12 have probability below 1e-3."""
    path = people(tmp_path, rng)
    numbers = [draft_privately(path, DraftRequest("y", ("g",)), 1.0, 1e-6, Ledger()).columns["age"] for _ in range(12)]
    assert sum(number.bounds[0] < 0 or number.bounds[1] > 1000 for number in numbers) <= 2
