"""A schema survives its file, and a wrong one is one clear sentence."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairveil.data.schema import Category, Number, Schema, Sensitive, Target, Where
from fairveil.errors import BadStructureError, FairveilError, MissingPublicFactError


def canonical(name: str) -> str:
    return Category(categories=(name,)).categories[0]


NAMES = st.text(min_size=1, max_size=12).filter(
    lambda name: name.strip() and name.strip() not in {"the target", "the person"}
)
NUMBERS = st.floats(-1e300, 1e300).map(float)
LISTS = st.lists(NAMES, min_size=2, max_size=4, unique_by=canonical).filter(
    lambda names: "ignore" not in map(canonical, names)
)


@st.composite
def numbers(draw: st.DrawFn) -> Number:
    low, *cuts, high = sorted(draw(st.lists(NUMBERS, min_size=3, max_size=6, unique=True)))
    encode = draw(st.sampled_from(["bins", "scale", "both"]))
    if encode == "scale":
        return Number(bounds=(low, high), encode="scale")
    return Number(bounds=(low, high), cuts=tuple(cuts), encode=encode)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    columns = draw(
        st.dictionaries(NAMES, st.one_of(numbers(), LISTS.map(lambda x: Category(categories=x))), min_size=1)
    )
    classes = draw(LISTS)
    target = Target(column="the target", classes=classes, unknown=draw(st.sampled_from(["ignore", classes[0]])))
    groups = draw(LISTS)
    values = {name: (f"raw {place}",) for place, name in enumerate(groups)}
    return Schema(
        name=draw(st.text(max_size=20)),
        notes=tuple(draw(st.lists(st.text(), max_size=2))),
        n_public=draw(st.none() | st.integers(1, 10**9)),
        id_column=draw(st.sampled_from([None, "the person"])),
        missing_values=tuple(draw(st.lists(st.text(max_size=5), max_size=3))),
        private_draft=draw(st.booleans()),
        target=target,
        sensitive=(Sensitive(column="group", groups=groups, values=values),),
        where=(Where(column="year", at_least=draw(NUMBERS), none_of=draw(LISTS)),),
        columns=columns,
    )


@given(schemas())
def test_writing_and_reading_gives_the_same_schema(tmp_path_factory: pytest.TempPathFactory, schema: Schema) -> None:
    path = tmp_path_factory.getbasetemp() / "round_trip.toml"
    schema.write(path)
    again = Schema.read(path)
    assert again == schema
    assert again.feature_names == schema.feature_names
    assert again.to_toml() == schema.to_toml()
    assert again.fingerprint() == schema.fingerprint()


def facts(**changes: Any) -> dict[str, Any]:
    column = {"type": "number", "bounds": [0, 1]}
    return {"target": {"column": "y", "classes": [0, 1]}, "columns": {"age": column}} | changes


def column(**changes: Any) -> dict[str, Any]:
    return facts(columns={"age": {"type": "number", "bounds": [0, 1]} | changes})


BAD = {
    "bounds reversed": (column(bounds=[1, 0]), "bounds"),
    "bounds equal": (column(bounds=[1, 1]), "bounds"),
    "bounds not finite": (column(bounds=[0, float("inf")]), "bounds"),
    "bounds too far apart": (column(bounds=[-1.7e308, 1.7e308]), "bounds"),
    "three bounds": (column(bounds=[0, 1, 2]), "bounds"),
    "cuts unsorted": (column(cuts=[0.5, 0.2]), "cuts"),
    "cuts outside": (column(cuts=[0.5, 1]), "cuts"),
    "cuts and bins": (column(cuts=[0.5], bins=3), "cuts"),
    "no bins": (column(bins=0), "bins"),
    "bins narrower than a float": (column(bounds=[1, 1 + 1e-13], bins=50), "bins"),
    "cuts with scale": (column(cuts=[0.5], encode="scale"), "scale"),
    "unknown encoding": (column(encode="embed"), "encode"),
    "unknown key": (column(bound=[0, 1]), '"bounds"'),
    "unknown type": (column(type="text"), "type"),
    "categories repeated": (
        facts(columns={"age": {"type": "category", "categories": [1, "1.0"]}}),
        "categories",
    ),
    "unknown top key": (facts(n_publik=3), '"n_public"'),
    "size not a number": (facts(n_public="many"), "n_public"),
    "size zero": (facts(n_public=0), "n_public"),
    "no features": (facts(columns={}), "feature"),
    "columns a list": (facts(columns=[1]), "columns"),
    "target a feature": (facts(target={"column": "age", "classes": [0, 1]}), "age"),
    "id a feature": (facts(id_column="age"), "age"),
    "one class": (facts(target={"column": "y", "classes": [0]}), "classes"),
    "no class": (facts(target={"column": "y", "classes": []}), "classes"),
    "class repeated": (facts(target={"column": "y", "classes": [0, 0]}), "classes"),
    "class named ignore": (facts(target={"column": "y", "classes": [0, "ignore"]}), "ignore"),
    "positive unknown": (facts(target={"column": "y", "classes": [0, 1], "positive": 2}), "positive"),
    "unknown no class": (facts(target={"column": "y", "classes": [0, 1], "unknown": 2}), "unknown"),
    "too many cuts": (facts(target={"column": "y", "classes": [0, 1], "cuts": [1, 2]}), "cut"),
    "cuts and values": (
        facts(target={"column": "y", "classes": [0, 1], "cuts": [1], "values": {"0": [1]}}),
        "values",
    ),
    "values of no class": (facts(target={"column": "y", "classes": [0, 1], "values": {"2": [1]}}), "values"),
    "values missing": (facts(target={"column": "y", "classes": [0, 1], "values": {"0": [1]}}), "values"),
    "value in two classes": (
        facts(target={"column": "y", "classes": [0, 1], "values": {"0": [1], "1": [1.0]}}),
        "values",
    ),
    "group twice": (facts(sensitive=[{"column": "s", "groups": ["a", "a"]}]), "groups"),
    "sensitive twice": (facts(sensitive=[{"column": "s", "groups": ["a", "b"]}] * 2), "sensitive"),
    "rule without condition": (facts(where=[{"column": "s"}]), "at_least"),
}


@pytest.mark.parametrize(("wrong", "word"), BAD.values(), ids=BAD.keys())
def test_a_wrong_schema_is_one_sentence_that_names_the_key(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(BadStructureError) as caught:
        Schema(**wrong)
    message = str(caught.value)
    assert word in message
    assert "\n" not in message
    assert message.endswith(".")


@pytest.mark.parametrize(
    ("wrong", "place", "line"),
    [
        (facts(columns={"age": {"type": "number"}}), "columns.age", "bounds = ["),
        (facts(columns={"job": {"type": "category"}}), "columns.job", "categories = ["),
        (facts(target={"column": "y"}), "target", "classes = ["),
        (facts(sensitive=[{"column": "s"}]), "sensitive", "groups = ["),
        ({"columns": {"age": {"type": "number", "bounds": [0, 1]}}}, "target", "classes = ["),
    ],
)
def test_a_missing_public_fact_says_where_and_what_to_write(wrong: dict[str, Any], place: str, line: str) -> None:
    with pytest.raises(MissingPublicFactError) as caught:
        Schema(**wrong)
    assert place in str(caught.value)
    assert line in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"not toml", b"[build-system]\nrequires = []\n", b""])
def test_a_file_that_is_no_schema_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "wrong.toml"
    path.write_bytes(content)
    with pytest.raises(FairveilError) as caught:
        Schema.read(path)
    assert "wrong.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_and_unwritable_paths_are_bad_structure(tmp_path: Path, schema: Schema) -> None:
    for path in (tmp_path, tmp_path / "none.toml"):
        with pytest.raises(BadStructureError):
            Schema.read(path)
    with pytest.raises(BadStructureError):
        schema.write(tmp_path / "no folder" / "s.toml")


def test_facts_are_frozen(schema: Schema) -> None:
    with pytest.raises(ValueError, match="frozen"):
        schema.n_public = 7


def test_names_are_canonical_whatever_toml_type_they_had() -> None:
    target = Target(column="y", classes=[False, True])
    assert target.classes == ("False", "True")
    assert Category(categories=[1, 2.0, " x "]).categories == ("1", "2", "x")


def test_positive_is_the_last_class_unless_declared() -> None:
    assert Target(column="y", classes=("a", "b", "c")).positive == "c"
    assert Target(column="y", classes=("a", "b"), positive="a").positive == "a"


def test_equal_width_bins_are_ten_unless_declared() -> None:
    assert Number(bounds=(0, 1)).edges == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    assert Number(bounds=(0, 80), bins=4).edges == (20, 40, 60)


def test_without_drops_features_and_nothing_else(schema: Schema) -> None:
    fewer = schema.without("sex", "age")
    assert fewer.feature_names == ("pay", "hours")
    assert fewer.sensitive == schema.sensitive
    with pytest.raises(BadStructureError, match="age"):
        schema.without("agee")


def test_groups_are_declared_or_taken_from_categories() -> None:
    schema = Schema(
        target=Target(column="y", classes=("0", "1")),
        sensitive=(Sensitive(column="zip", groups=("north", "south"), cuts=(5000,)),),
        columns={"race": Category(categories=("b", "a")), "age": Number(bounds=(0, 100))},
    )
    assert schema.sensitive_named("zip").groups == ("north", "south")
    assert schema.sensitive_named("race").groups == ("b", "a")
    with pytest.raises(MissingPublicFactError, match=r"\[\[sensitive\]\]"):
        schema.sensitive_named("age")
    with pytest.raises(BadStructureError, match='did you mean "race"'):
        schema.sensitive_named("rac")


def test_a_schema_for_arrays_names_its_columns_by_position() -> None:
    schema = Schema.for_arrays(3, classes=[0, 1], bounds=(0, 5), n_public=10, groups=["a", "b"])
    assert schema.feature_names == ("x0", "x1", "x2")
    assert schema.target.classes == ("0", "1")
    assert schema.sensitive_named("group").groups == ("a", "b")


def test_the_fingerprint_follows_every_fact(schema: Schema) -> None:
    assert schema.fingerprint() != schema.without("age").fingerprint()
    assert len(schema.fingerprint()) == 64


@pytest.mark.parametrize("names", [("01", "1"), ("1e5", "100000"), ("7", "007")])
def test_names_of_one_number_are_refused(names: tuple[str, str]) -> None:
    """A reader that makes numbers of them would merge two classes or two groups."""
    with pytest.raises(BadStructureError, match=r"classes .* are the same number"):
        Target(column="y", classes=names)
    with pytest.raises(BadStructureError, match=r"groups .* are the same number"):
        Sensitive(column="s", groups=names)


def test_an_approval_is_about_the_facts_at_that_time(tmp_path: Path, schema: Schema) -> None:
    assert not schema.is_as_approved and schema.approved_at == ""
    approved = schema.model_copy(update={"private_draft": True}).approved("Ann")
    assert approved.is_as_approved and not approved.private_draft and approved.approved_by == "Ann"
    approved.write(tmp_path / "schema.toml")
    assert Schema.read(tmp_path / "schema.toml") == approved
    assert not approved.model_copy(update={"n_public": 12345}).is_as_approved
    again = approved.model_copy(update={"n_public": 12345}).approved()
    assert again.is_as_approved and again.approved_by == ""  # a new approval replaces the old one
