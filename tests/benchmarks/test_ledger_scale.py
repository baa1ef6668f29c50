"""The ledgers whose speed is measured: real plans of all methods, readable, with a total."""

import itertools
import math

import pytest

import ledger_scale
from fairveil.accounting import events
from fairveil.methods.registry import METHODS
from fairveil.privacy.ledger import Ledger, units_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::fairveil.SmallTableWarning")]


@pytest.fixture(scope="module")
def kinds():
    return ledger_scale.kinds_of_entries()


def names_in(event):
    inner = [*getattr(event, "releases", ()), *itertools.chain(*getattr(event, "ways", ()))]
    inner += [event.event] if hasattr(event, "event") else []
    return {type(event).__name__}.union(*map(names_in, inner))


def test_every_kind_of_event_with_a_price_is_measured(kinds):
    found = set().union(*(names_in(charge.event) for charge in itertools.chain(*kinds)))
    assert found == set(events._KINDS) - {"NonPrivateRelease", "UnpricedChoice"}
    assert len(kinds) >= len(METHODS)


@pytest.mark.parametrize("is_different", [False, True])
def test_the_ledger_that_is_measured_is_sound(tmp_path, kinds, is_different):
    several = list(ledger_scale.entries(kinds, 2 * len(kinds), is_different))
    ledger_scale.write_ledger(tmp_path / "ledger.jsonl", several)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert [list(entry.charges) for entry in ledger.entries] == several
    assert 1 < ledger.epsilon(ledger_scale.DELTA) < math.inf
    assert units_of(itertools.chain(*several)) == ("record",)
    first, second = several[: len(kinds)], several[len(kinds) :]
    repeated = [
        [charge.event for charge in one] == [charge.event for charge in other]
        for one, other in zip(first, second, strict=True)
    ]
    assert not any(repeated[:12]) if is_different else all(repeated)
