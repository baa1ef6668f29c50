"""One record must not decide how others are read: pandas chooses a column's type from all rows of a file."""

import io
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fairveil.data.encoding import Encoder
from fairveil.data.readers import read_table
from fairveil.data.schema import Category, Number, Schema, Sensitive, Target, Where
from fairveil.errors import BadStructureError

SCHEMA = Schema(
    id_column="who",
    target=Target(column="paid", classes=("false", "true")),
    sensitive=(Sensitive(column="old", groups=("False", "True")),),
    columns={"age": Number(bounds=(0, 100)), "area": Category(categories=("1", "2", "3.5"))},
    where=(Where(column="kind", one_of=("1", "2")),),
)
LINES = ["who,age,area,kind,old,paid", "7,31,1,1,true,false", "8,52,3.5,2,false,true", "12345678901,40,2,1,true,true"]
ODD = {
    "nothing is odd": "9,30,1,1,true,true",
    "an id is missing": ",30,1,1,true,true",
    "an id is text": "A17,30,1,1,true,true",
    "an age is text": "9,old,1,1,true,true",
    "an age is missing": "9,,1,1,true,true",
    "a category is text": "9,30,north,1,true,true",
    "a category is missing": "9,30,,1,true,true",
    "a row rule reads text": "9,30,1,other,true,true",
    "a row rule reads nothing": "9,30,1,,true,true",
    "a group is unknown": "9,30,1,1,perhaps,true",
    "a group is missing": "9,30,1,1,,true",
    "a label is unknown": "9,30,1,1,true,maybe",
    "a label is missing": "9,30,1,1,true,",
}


def others_of(*lines, **how):
    """Return all that is read of the first three people, whoever comes after them."""
    table, encoder = pd.read_csv(io.StringIO("\n".join([*LINES, *lines])), **how), Encoder(SCHEMA)
    read = encoder.labels(table, [table["paid"], table["old"]], SCHEMA.sensitive)
    return [np.asarray(part)[:3].tolist() for part in (encoder.rows(table), *read)]


@pytest.mark.parametrize("backend", [{}, {"dtype_backend": "pyarrow"}, {"dtype_backend": "numpy_nullable"}])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_one_record_changes_nothing_for_the_others(odd, backend):
    alone = others_of()
    assert others_of(odd, **backend) == alone == others_of(odd, dtype=str)
    assert alone[-1] == [True] * 3 and alone[1] == [0, 1, 1]


@pytest.mark.parametrize("text", ["01234", "1e5", "12e4", "9007199254740993", "-0.50e3"])
@pytest.mark.parametrize("place", ["category", "class", "group", "row rule"])
def test_texts_that_no_number_spells_are_refused_in_columns_of_numbers(text, place):
    """The types of columns and the lists of a schema are public facts, so that saying so reveals nothing."""
    listed = ("7", text)
    schema = Schema(
        target=Target(column="y", classes=listed if place == "class" else ("7", "8")),
        sensitive=(Sensitive(column="s", groups=listed if place == "group" else ("7", "8")),),
        columns={"x": Category(categories=listed if place == "category" else ("7",))},
        where=(Where(column="w", one_of=listed if place == "row rule" else ("7",)),),
    )
    encoder, numbers = Encoder(schema), pd.DataFrame({name: [7, 7] for name in "xysw"})

    def read(table):
        return encoder.rows(table), *encoder.labels(table, [table["y"], table["s"]], schema.sensitive)

    for table in (numbers, numbers.astype(float), numbers.convert_dtypes(dtype_backend="pyarrow"), numbers > 7):
        with pytest.raises(BadStructureError, match="which no number spells"):
            read(table)
    assert read(numbers.astype(str))[-1].all()


def test_truth_values_have_one_spelling():
    encoder = Encoder(SCHEMA)
    spelled = [True, "true", "TRUE", "True", " true ", np.bool_(True)]
    assert encoder.targets(np.array(spelled, dtype=object)).tolist() == [1] * 6
    assert encoder.targets(np.array([1, "1", "yes", "tRue"], dtype=object)).tolist() == [-1] * 4


def test_decimals_name_people_where_whole_numbers_would():
    """Beside a missing id pandas makes decimals of whole numbers; those that fall together then name nobody."""
    encoder = Encoder(SCHEMA)
    whole = encoder.persons(pd.Series([7, 8, 2**53 - 1, 12345678901]))
    assert encoder.persons(pd.Series([7, 8, 2**53 - 1, 12345678901, None])).tolist() == [*whole, -1]
    assert encoder.persons(pd.Series([float(2**53), 0.5, np.inf, -np.inf])).tolist() == [-1] * 4
    assert encoder.persons(pd.Series([str(2**53), str(2**53 + 1)])).tolist()[0] >= 0


LARGE = [2**53 + 1, 2**53 + 2, 12345678901234567, 7]
KEPT = {
    "text": lambda ids: pd.Series([None if one is None else str(one) for one in ids], dtype=object),
    "nullable integers": lambda ids: pd.Series(ids, dtype="Int64"),
    "Arrow integers": lambda ids: pd.Series(ids, dtype=pd.ArrowDtype(pa.int64())),
    "Arrow text": lambda ids: pd.Series([None if one is None else str(one) for one in ids], dtype="string[pyarrow]"),
    "objects": lambda ids: pd.Series(ids, dtype=object),
    "Arrow decimals": lambda ids: pd.Series(
        pd.arrays.ArrowExtensionArray(
            pa.array([None if one is None else Decimal(one) for one in ids], pa.decimal128(38))
        )
    ),
}


@pytest.mark.parametrize("column", KEPT.values(), ids=KEPT)
def test_large_ids_keep_their_digits_beside_a_missing_one(column):
    encoder = Encoder(SCHEMA)
    alone = encoder.persons(column(LARGE)).tolist()
    assert len(set(alone)) == 4 and min(alone) >= 0
    assert encoder.persons(column([*LARGE, None])).tolist() == [*alone, -1]
    assert alone == encoder.persons(pd.Series(LARGE)).tolist()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_large_ids_of_a_file_do_not_depend_on_a_missing_one(tmp_path, suffix):
    def persons(ids):
        table, path = pd.DataFrame({"who": pd.array(ids, dtype="Int64")}), tmp_path / f"people.{suffix}"
        table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
        return Encoder(SCHEMA).persons(next(iter(read_table(path)))["who"]).tolist()

    assert persons([*LARGE, None])[:4] == persons(LARGE) == Encoder(SCHEMA).persons(pd.Series(LARGE)).tolist()


def test_decimals_never_make_one_person_of_two():
    """Their digits were lost before: pandas made decimals of whole numbers beside a missing id."""
    persons = Encoder(SCHEMA).persons(pd.Series([*LARGE, None]))
    assert persons.tolist()[:3] == [-1] * 3 and persons[3] >= 0
