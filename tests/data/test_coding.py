"""Raw cells fall into declared classes and groups by the stated rule."""

import numpy as np
import pandas as pd
import pytest

from fairveil.data.encoding import Encoder
from fairveil.data.schema import Number, Schema, Sensitive, Target


def codes(names: tuple[str, ...], cells: list[object], **rule: object) -> list[int]:
    """Return the codes of the same cells as classes and as groups, which follow one rule."""
    groups = Sensitive(column="s", groups=names, **rule)  # type: ignore[arg-type]
    encoder = Encoder(
        Schema(
            missing_values=("", "?"),
            target=Target(column="y", classes=names, **rule),  # type: ignore[arg-type]
            columns={"x": Number(bounds=(0, 1))},
        )
    )
    column = pd.Series(cells, dtype=object)
    assert encoder.targets(column).tolist() == encoder.groups(column, groups).tolist()
    return encoder.targets(column).tolist()


def test_names_stand_for_themselves() -> None:
    assert codes(("0", "1"), [0, "1", 1.0, " 0 ", True, "2", "?", None, float("nan")]) == [
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
    assert codes(("no", "yes"), ["yes", "maybe", None, ""], unknown="no") == [1, 0, 0, 0]


@pytest.mark.parametrize(("at_cut", "at"), [("up", 1), ("down", 0)])
def test_a_number_at_the_cut_goes_where_the_schema_says(at_cut: str, at: int) -> None:
    cells = [9.999, 10, "10.0", 10.001, float("inf"), float("-inf"), "ten", None]
    assert codes(("low", "high"), cells, cuts=(10,), at_cut=at_cut) == [0, at, at, 1, 1, 0, -1, -1]


def test_several_cuts_make_several_classes_in_order() -> None:
    assert codes(("a", "b", "c"), [0, 1, 1.5, 2, 99], cuts=(1, 2)) == [0, 1, 1, 2, 2]


def test_values_group_raw_codes() -> None:
    values = {"in": ("1", "2"), "out": ("3",)}
    assert codes(("out", "in"), [1, "2", 3, 4, None], values=values) == [1, 1, 0, -1, -1]


def test_a_name_without_values_takes_the_rest_if_it_is_the_unknown_one() -> None:
    assert codes(("rest", "in"), [1, 2, None, "x"], values={"in": ("1",)}, unknown="rest") == [1, 0, 0, 0]


def test_a_declared_name_is_never_missing() -> None:
    assert codes(("?", "yes"), ["?", "yes", None]) == [0, 1, -1]


def test_codes_are_small_integers() -> None:
    encoder = Encoder(Schema.for_arrays(1, classes=("a", "b"), groups=("a", "b")))
    assert encoder.targets(np.array(["a"])).dtype == encoder.groups(np.array(["a"]), "group").dtype == np.int16
