import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Cap, DemographicParity, constrain
from fairveil.fairness.rates import CLASSLESS, RATES, Attribute, Bound, Population, Rate
from fairveil.fairness.rule_parser import Rule

ADULT = Population(
    (Attribute("sex", ("Female", "Male")), Attribute("race", ("White", "Black", "Asian-Pac-Islander"))),
    ("<=50K", ">50K"),
)
FEMALE, MALE = (("sex", "Female"),), (("sex", "Male"),)

READ = {
    "false_negative_rate <= 0.3": Bound(((1.0, Rate("false_negative_rate")),), 0.3),
    "selection_rate[sex=Female] >= 0.8 * selection_rate[sex=Male]": Bound(
        ((0.8, Rate("selection_rate", MALE)), (-1.0, Rate("selection_rate", FEMALE))), 0.0
    ),
    'precision(">50K")[race=Black] - precision(">50K")[race=White] <= 0.1': Bound(
        (
            (1.0, Rate("precision", (("race", "Black"),), ">50K")),
            (-1.0, Rate("precision", (("race", "White"),), ">50K")),
        ),
        0.1,
    ),
    "selection_rate[sex=Female] - selection_rate[not sex=Female] <= 0.05": Bound(
        ((1.0, Rate("selection_rate", FEMALE)), (-1.0, Rate("selection_rate", FEMALE, rest=True))), 0.05
    ),
    "0.5 * true_positive_rate + 0.5 * true_negative_rate >= 0.7": Bound(
        ((-0.5, Rate("true_positive_rate")), (-0.5, Rate("true_negative_rate"))), -0.7
    ),
    "accuracy[sex = 'Female' ,race=Asian-Pac-Islander]>=.9": Bound(
        ((-1.0, Rate("accuracy", (*FEMALE, ("race", "Asian-Pac-Islander")))),), -0.9
    ),
    "0.1 + selection_rate + 2 <= 3 + 0.5": Bound(((1.0, Rate("selection_rate")),), 3.5 - 2.1),
    "error_rate + error_rate <= 1e-1 - error_rate": Bound(((3.0, Rate("error_rate")),), 0.1),
    "-accuracy <= - 0.7": Bound(((-1.0, Rate("accuracy")),), -0.7),
    "0 >= accuracy - selection_rate + error_rate - accuracy": Bound(
        ((-1.0, Rate("selection_rate")), (1.0, Rate("error_rate"))), 0.0
    ),
    "selection_rate[not sex=Female, race=White] <= 1": Bound(
        ((1.0, Rate("selection_rate", (*FEMALE, ("race", "White")), rest=True)),), 1.0
    ),
}


@pytest.mark.parametrize("text", READ)
def test_a_rule_is_read_as_written(text):
    rule, expected = Rule(text), READ[text]
    assert rule.bound.terms == expected.terms
    assert rule.bound.limit == pytest.approx(expected.limit)
    assert rule.bounds(ADULT) == (rule.bound,)
    assert rule.name == "rule"


@pytest.mark.parametrize("text", READ)
def test_what_a_rule_prints_is_the_same_rule(text):
    bound = Rule(text).bound
    assert Rule(str(bound)).bound == bound


def test_bounds_print_short_sums():
    assert str(Rule("selection_rate[sex=f] >= .80 * selection_rate[sex='of no group']").bound) == (
        '0.8 * selection_rate[sex="of no group"] - selection_rate[sex=f] <= 0'
    )
    assert str(Rule("0.1 * accuracy >= 0.123456789012").bound) == "-0.1 * accuracy <= -0.123456789012"


names = st.text(max_size=8) | st.sampled_from(["not", "25-40", "a b", "it's", '"', "\\", "1", "inf", "<=50K", "]"])
wheres = st.dictionaries(names, names, max_size=2).map(lambda where: tuple(where.items()))
numbers = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def rates(draw):
    name, where = draw(st.sampled_from(RATES)), draw(wheres)
    of_class = None if name in CLASSLESS else draw(st.none() | names)
    return Rate(name, where, of_class, bool(where) and draw(st.booleans()))


@given(st.dictionaries(rates(), numbers.filter(bool), min_size=1, max_size=4), numbers)
@settings(max_examples=300)
def test_any_bound_reads_back_as_itself(weights, limit):
    bound = Bound(tuple((weight, rate) for rate, weight in weights.items()), limit)
    assert Rule(str(bound)).bound == bound


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", CONSTRAINT_TYPES.values(), ids=CONSTRAINT_TYPES)
def test_every_builder_can_be_written_as_rules(kind, n_classes):
    people = Population(ADULT.attributes, tuple(f"{k} to {k + 1}" for k in range(n_classes)))
    constraint = kind(0.1, each_group=True) if issubclass(kind, Cap) else kind(0.1, against="rest")
    built = constrain(constraint, people)
    written = constrain([Rule(str(bound)) for bound in built.bounds], people)
    assert written.bounds == built.bounds
    assert all(np.array_equal(getattr(written, of), getattr(built, of)) for of in ("cells", "above", "below"))


REFUSED = {
    "": "Expected a rate or a number, got the end at character 1 of the rule",
    "accuracy": r"Expected \+, -, <= or >=, got the end at character 9",
    "accuracy 0.5": "got '0.5' at character 10",
    "accuracy = 0.5": "got '=' at character 10 of the rule; write two rules",
    "accuracy == 0.5": "got '==' at character 10 of the rule; write two rules",
    "accuracy < 0.5": "<= or >=, got '<' at character 10",
    "accuracy <=": "a rate or a number, got the end at character 12",
    "0.1 <= accuracy <= 0.5": "the end, got '<=' at character 17 of the rule; write two rules",
    "0.5 <= 0.7": "at least one rate that does not cancel",
    "accuracy - accuracy <= 0.7": "at least one rate that does not cancel",
    "0 * accuracy <= 0.7": "at least one rate that does not cancel",
    "niceness <= 0.5": "a rate or a finite number, got 'niceness' at character 1 .*rates are selection_rate, ",
    "accuracy <= inf": "a rate or a finite number, got 'inf' at character 13",
    "accuracy <= nan": "a rate or a finite number, got 'nan' at character 13",
    "accuracy <= 1e999": "a finite number, got '1e999' at character 13",
    "accuracy <= 1e308 + 1e308": "finite numbers",
    "0.8 * 0.5 * accuracy <= 1": "a rate or a number, got '0.5' at character 7",
    "0.8 accuracy <= 1": "got 'accuracy' at character 5",
    "accuracy * 0.8 <= 1": r"got '\*' at character 10",
    "(accuracy) <= 1": r"a rate or a number, got '\(' at character 1",
    "accuracy(yes) <= 1": r"no class after accuracy, got '\(' at character 9",
    "precision() <= 1": r"a class, got '\)' at character 11 of the rule; quote",
    "precision(yes <= 1": r"'\)', got '<=' at character 15",
    "precision(>50K) <= 1": "a class, got '>' at character 11 of the rule; quote",
    "selection_rate[] <= 1": "an attribute, got ']' at character 16",
    "selection_rate[sex] <= 1": "= and a group, got ']' at character 19",
    "selection_rate[sex=] <= 1": "a group, got ']' at character 20",
    "selection_rate[sex=of no group] <= 1": "',' or ']', got 'no' at character 23 of the rule; quote",
    "selection_rate[sex=f <= 1": "',' or ']', got '<=' at character 22",
    "selection_rate[sex='f] <= 1": 'a group, got "\'" at character 20 of the rule; close the quote',
    "selection_rate[sex=f, sex=m] <= 1": "each attribute once, got 'sex' at character 23",
    "__import__('os') <= 1": "a rate or a finite number, got '__import__' at character 1",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_rule_that_cannot_be_read_is_refused_where_it_goes_wrong(text):
    with pytest.raises(InvalidParameterError, match=REFUSED[text]) as error:
        Rule(text)
    assert str(error.value).startswith("Expected ")
    assert str(error.value).endswith(".")


@given(st.text(alphabet="arcuy<>=+-*.,19[]()'\" \\\nnot", max_size=20))
@settings(max_examples=300)
def test_no_text_ends_in_another_error(text):
    try:
        Rule(f"accuracy{text}")
    except InvalidParameterError as error:
        assert str(error).startswith("Expected ")


def test_a_rule_is_text():
    with pytest.raises(InvalidParameterError, match="as text, got float"):
        Rule(0.3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selection_rate[age=old] <= 1", "attribute of sex, race; got 'age'"),
        ("selection_rate[sex=female] <= 1", r"group of 'sex' \(Female, Male\); got 'female'"),
        ("precision(yes) <= 1", "classes <=50K, >50K; got 'yes'"),
    ],
)
def test_names_are_checked_when_the_people_are_known(text, message):
    rule = Rule(text)
    with pytest.raises(InvalidParameterError, match=message):
        rule.bounds(ADULT)


def test_of_many_classes_one_must_be_named():
    people = Population((), ("low", "middle", "high"))
    with pytest.raises(
        InvalidParameterError, match=r"class of false_negative_rate, because there are 3.*low, middle, high"
    ):
        Rule("false_negative_rate <= 0.3").bounds(people)
    for text in ("false_negative_rate(low) <= 0.3", "error_rate <= 0.2"):
        assert len(Rule(text).bounds(people)) == 1


def test_rules_and_builders_go_together():
    ready = constrain([Rule("false_negative_rate <= 0.3"), DemographicParity(0.1, attribute="sex")], ADULT)
    assert [str(bound) for bound in ready.bounds] == [
        "false_negative_rate <= 0.3",
        "selection_rate[sex=Female] - selection_rate[sex=Male] <= 0.1",
        "selection_rate[sex=Male] - selection_rate[sex=Female] <= 0.1",
    ]
