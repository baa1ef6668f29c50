"""Events are validated facts, and survive a round trip through JSON."""

import json
import math
from dataclasses import FrozenInstanceError, dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairveil.accounting.events import (
    ApproximateDP,
    BestOfRuns,
    Charge,
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    DisjointCells,
    Event,
    GaussianRelease,
    Joint,
    LaplaceRelease,
    NonPrivateRelease,
    PoissonSampled,
    Repeated,
    UnpricedChoice,
    charge_from_dict,
    event_from_dict,
    to_dict,
)
from fairveil.errors import DamagedLedgerError, InvalidParameterError, UnsupportedEventError

sizes = st.floats(min_value=1e-6, max_value=1e6)
counts = st.integers(min_value=1, max_value=10**9)
rates = st.floats(min_value=1e-9, max_value=1.0)
names = st.text(min_size=1, max_size=8)
reasons = names.filter(str.strip)

plain_events = st.one_of(
    st.builds(GaussianRelease, sizes),
    st.builds(LaplaceRelease, sizes),
    st.builds(DiscreteLaplaceRelease, sizes, counts),
    st.builds(DiscreteGaussianRelease, sizes, counts),
    st.builds(ApproximateDP, sizes),
    st.builds(ApproximateDP, sizes, st.floats(min_value=1e-12, max_value=0.5)),
    st.builds(NonPrivateRelease, reasons),
    st.builds(UnpricedChoice, reasons),
)
any_event = st.recursive(
    plain_events,
    lambda inner: st.one_of(
        st.builds(Joint, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(PoissonSampled, rates, inner),
        st.builds(Repeated, inner, counts),
        st.builds(DisjointCells, inner),
        st.builds(BestOfRuns, st.tuples(st.lists(inner, min_size=1, max_size=2).map(tuple)), st.floats(0.1, 100)),
    ),
    max_leaves=5,
)
any_charge = st.builds(Charge, any_event) | st.builds(Charge, any_event, names, names)


@given(any_charge)
def test_a_charge_survives_json_unchanged(charge: Charge) -> None:
    text = json.dumps(to_dict(charge), allow_nan=False)
    back = charge_from_dict(json.loads(text))
    assert back == charge
    assert hash(back) == hash(charge)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: GaussianRelease(0), "Expected noise_multiplier > 0 and finite, got 0."),
        (lambda: GaussianRelease(math.inf), "Expected noise_multiplier > 0 and finite, got inf."),
        (lambda: LaplaceRelease(-1), "Expected noise_multiplier > 0 and finite, got -1."),
        (lambda: DiscreteLaplaceRelease(1.0, 0), "Expected sensitivity to be a whole number >= 1, got 0."),
        (lambda: DiscreteGaussianRelease(math.nan), "Expected std > 0 and finite, got nan."),
        (lambda: ApproximateDP(-0.1), "Expected epsilon > 0 and finite, got -0.1."),
        (lambda: ApproximateDP(1.0, 1.0), "Expected 0 < delta < 1, got 1.0."),
        (lambda: NonPrivateRelease(" "), "Expected reason to be a text that is not empty, got ' '."),
        (lambda: UnpricedChoice(3), "Expected reason to be a text that is not empty, got 3."),  # type: ignore[arg-type]
        (lambda: Joint(()), "Expected at least one release in a joint event, got none."),
        (lambda: Joint((1.0,)), "Expected each release to be an event, got float."),  # type: ignore[arg-type]
        (lambda: PoissonSampled(1.5, ApproximateDP(1)), "Expected 0 < rate <= 1, got 1.5."),
        (lambda: Repeated(ApproximateDP(1), 0), "Expected count to be a whole number >= 1, got 0."),
        (
            lambda: Charge(ApproximateDP(1), "cv"),
            "Expected split and part both named or both empty, got 'cv' and ''.",
        ),
    ],
)
def test_a_number_outside_its_range_is_refused_in_one_sentence(make, sentence) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        make()
    assert str(caught.value) == sentence


def test_numpy_numbers_become_plain_ones() -> None:
    event = Repeated(PoissonSampled(np.float64(0.5), DiscreteLaplaceRelease(np.float32(2), np.int64(3))), np.int32(4))
    assert event == Repeated(PoissonSampled(0.5, DiscreteLaplaceRelease(2.0, 3)), 4)
    assert json.loads(json.dumps(to_dict(event)))["count"] == 4


def test_events_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        GaussianRelease(1.0).noise_multiplier = 9.0  # type: ignore[misc]


def test_a_list_of_releases_becomes_a_hashable_joint() -> None:
    releases = [GaussianRelease(1.0), LaplaceRelease(1.0)]
    assert hash(Joint(releases)) == hash(Joint(tuple(releases)))  # type: ignore[arg-type]


def test_nobody_inherits_a_price() -> None:
    with pytest.raises(TypeError, match="derive from Event alone"):
        type("Cheaper", (GaussianRelease,), {})


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ({"event_kind": "QuantumRelease"}, UnsupportedEventError, "got 'QuantumRelease'"),
        ({"noise_multiplier": 1.0}, DamagedLedgerError, "event_kind"),
        ("GaussianRelease", DamagedLedgerError, "event_kind"),
        ({"event_kind": "GaussianRelease"}, DamagedLedgerError, "fields noise_multiplier; got none"),
        (
            {"event_kind": "ApproximateDP", "epsilon": 1.0, "extra": 2},
            DamagedLedgerError,
            "got epsilon, extra",
        ),
        (
            {"event_kind": "ApproximateDP", "epsilon": -1.0, "delta": 0.0},
            DamagedLedgerError,
            "Expected epsilon > 0",
        ),
        ({"event_kind": "Joint", "releases": 5}, DamagedLedgerError, "Expected a valid Joint"),
        (
            {"event_kind": "Repeated", "count": 2, "event": {"event_kind": "X"}},
            UnsupportedEventError,
            "got 'X'",
        ),
        ({"event_kind": "Repeated", "count": 2, "event": 7}, DamagedLedgerError, "event_kind"),
    ],
)
def test_what_the_ledger_cannot_have_written_is_refused(data, error, words) -> None:
    with pytest.raises(error, match=words):
        event_from_dict(data)


@pytest.mark.parametrize("data", [None, {"event": to_dict(ApproximateDP(1))}, {"event": 1, "split": "", "part": ""}])
def test_a_damaged_charge_is_refused(data) -> None:
    with pytest.raises(DamagedLedgerError):
        charge_from_dict(data)


def test_an_event_made_elsewhere_is_not_written() -> None:
    @dataclass(frozen=True)
    class Elsewhere(Event):
        pass

    with pytest.raises(UnsupportedEventError, match="Elsewhere"):
        to_dict(Elsewhere())
