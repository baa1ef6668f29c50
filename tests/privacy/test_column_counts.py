import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from fairveil._random import secret_coins
from fairveil.data import drafting
from fairveil.data.drafting import EDGES, DraftRequest, _Opened, _raw_columns, draft_privately
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
    """A column without numbers."""
    known = Counter(text for text in texts if text is not None)
    return RawColumn(np.array([0, known.total(), len(texts) - known.total()]), [known])


def opened(cells, epsilon=1.0, delta=1e-3, ledger=None):
    return open_columns({"c": cells}, epsilon, delta, ledger or Ledger(), secret_coins(), "a test")


def test_counts_put_each_cell_into_one_place(seeded):
    """By the public edges of a draft; a missing cell that spells a number is a number, as one of no missing text."""
    cells = pd.DataFrame({"c": ["1", "5", "-3", "9", "abc", None, "?", "-1e99", "5.5"]})
    request = DraftRequest("c")
    columns = _raw_columns(_Opened(cells, request, None, None), request)
    places = [np.searchsorted(EDGES, number, side="right") for number in (1, 5, -3, 9, -1e99, 5.5)]
    expected = np.bincount([*places, len(EDGES) + 1, *[len(EDGES) + 2] * 2], minlength=len(EDGES) + 3)
    assert columns["c"].cells.tolist() == expected.tolist()
    counts = opened(columns["c"], epsilon=200.0).release_counts("c", 100.0)
    assert [*counts.numbers, counts.texts, counts.missing] == expected.tolist()


def test_a_column_of_very_many_texts_is_counted_in_parts(tmp_path, rng, monkeypatch):
    """The parts have no text in common, and their counts are those of the whole."""
    ids = pd.DataFrame({"c": [f"p{number}" for number in rng.integers(0, 3000, 5000)], "d": "x"})
    ids.to_csv(tmp_path / "ids.csv", index=False)
    for name in ("MAX_DISTINCT", "MAX_PART"):
        monkeypatch.setattr(drafting, name, 500)
    request = DraftRequest("c")
    for table in (ids, tmp_path / "ids.csv"):
        columns = _raw_columns(_Opened(table, request, None, None), request)
        parts = list(columns["c"].texts)
        assert len(parts) >= 4 and max(map(len, parts)) < 1000
        assert sum(map(len, parts)) == ids["c"].nunique()
        assert sum(parts, Counter()) == Counter(ids["c"])
        assert list(columns["d"].texts) == [{"x": 5000}]
    monkeypatch.setattr(drafting, "MAX_PARTS", 2)
    assert sum(columns["c"].texts, Counter()) == Counter(ids["c"])


def test_texts_in_parts_have_the_same_law(seeded):
    """The variance of 3000 noises is within a quarter of the discrete Laplace law's: six standard errors of it.

    Noise of 2/3 or 3/2 of the scale has .44 or 2.25 times the variance, and noise drawn once for all parts has none.
    """
    epsilon, n_texts = 0.3, 3000
    parts = [{f"t{place}": 1000} for place in range(n_texts)]
    shown = opened(RawColumn(np.zeros(3, dtype=np.int64), parts)).release_texts("c", epsilon, 1e-4)
    ratio = math.exp(-epsilon)
    assert len(shown) == n_texts
    assert np.var(list(shown.values())) == pytest.approx(2 * ratio / (1 - ratio) ** 2, rel=0.25)


def test_answers_stop_at_the_budget():
    veil = opened(column("a", "b"), epsilon=1.0)
    veil.release_counts("c", 0.6)
    with pytest.raises(UnplannedReleaseError, match="budget"):
        veil.release_counts("c", 0.6)
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
