"""Raw cells fall into declared classes and groups by the stated rule."""

import numpy as np
import pandas as pd
import pytest

from fairveil.data.values import Coding, MissingCells

MISSING = MissingCells.of(["", "?"])


def codes(coding: Coding, cells: list[object]) -> list[int]:
    return coding.codes(pd.Series(cells, dtype=object), MISSING).tolist()


def test_names_stand_for_themselves() -> None:
    coding = Coding(("0", "1"))
    assert codes(coding, [0, "1", 1.0, " 0 ", True, "2", "?", None, float("nan")]) == [
        0,
        1,
        1,
        0,
        -1,
        -1,
        -1,
        -1,
        -1,
    ]


def test_unknown_cells_go_to_a_declared_name() -> None:
    assert codes(Coding(("no", "yes"), unknown="no"), ["yes", "maybe", None, ""]) == [1, 0, 0, 0]


@pytest.mark.parametrize(("at_cut", "at"), [("up", 1), ("down", 0)])
def test_a_number_at_the_cut_goes_where_the_schema_says(at_cut: str, at: int) -> None:
    coding = Coding(("low", "high"), cuts=(10,), at_cut=at_cut)
    cells = [9.999, 10, "10.0", 10.001, float("inf"), float("-inf"), "ten", None]
    assert codes(coding, cells) == [0, at, at, 1, 1, 0, -1, -1]


def test_several_cuts_make_several_classes_in_order() -> None:
    coding = Coding(("a", "b", "c"), cuts=(1, 2))
    assert codes(coding, [0, 1, 1.5, 2, 99]) == [0, 1, 1, 2, 2]


def test_values_group_raw_codes() -> None:
    coding = Coding(("out", "in"), values={"in": ("1", "2"), "out": ("3",)})
    assert codes(coding, [1, "2", 3, 4, None]) == [1, 1, 0, -1, -1]


def test_a_name_without_values_takes_the_rest_if_it_is_the_unknown_one() -> None:
    coding = Coding(("rest", "in"), values={"in": ("1",)}, unknown="rest")
    assert codes(coding, [1, 2, None, "x"]) == [1, 0, 0, 0]


def test_a_declared_name_is_never_missing() -> None:
    assert codes(Coding(("?", "yes")), ["?", "yes", None]) == [0, 1, -1]


def test_codes_are_small_integers() -> None:
    assert Coding(("a", "b")).codes(np.array(["a"]), MISSING).dtype == np.int16
