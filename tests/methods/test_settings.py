"""Can a field of a recipe be set by name, and is a name or a value that does not fit refused with one sentence?"""

from dataclasses import is_dataclass

import pytest

from fairveil import Descent, Groupwise, LagrangianDual, RateConstrained
from fairveil.errors import InvalidParameterError
from fairveil.methods.registry import METHODS
from fairveil.methods.settings import parsed_settings, setting_names, with_settings


def test_text_is_read_as_the_field_demands():
    found = with_settings(
        LagrangianDual(),
        {"primal": "gradients", "dual_bound": "0.5", "descent.hidden": "8, 4", "n_counts": "None"},
    )
    assert (found.primal, found.dual_bound, found.descent.hidden, found.n_counts) == ("gradients", 0.5, (8, 4), None)
    assert with_settings(RateConstrained(), {"soft_rates": "true"}).soft_rates is True
    assert with_settings(Groupwise(), {"norm_bound": "2"}).norm_bound == 2.0


def test_plain_values_are_taken_as_they_are():
    found = with_settings(Descent(), {"n_steps": 20, "hidden": [8], "learning_rate": 1, "features.resolution": 1})
    assert (found.n_steps, found.hidden, found.learning_rate, found.features.resolution) == (20, (8,), 1.0, 1)


def test_nothing_else_changes():
    assert with_settings(Descent(), {}) == Descent()
    assert with_settings(RateConstrained(), {"descent.n_steps": 5}).histogram == RateConstrained().histogram


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"steps": 5}, "Expected a setting of RateConstrained among descent.model"),
        ({"constraint": "x"}, "among descent.model"),
        ({"descent.steps": 5}, "Expected a setting of Descent among model"),
        ({"descent": 5}, "write one of its fields after a dot"),
        ({"temperature.x": 5}, "leave out what comes after the dot"),
        ({"descent.n_steps": "5.5"}, "Expected none or a whole number for descent.n_steps, got '5.5'"),
        ({"temperature": "nan"}, "Expected a number for temperature, got 'nan'"),
        ({"soft_rates": "1"}, "Expected true or false for soft_rates"),
        ({"soft_rates": 1}, "Expected true or false for soft_rates"),
        ({"descent.hidden": "8,x"}, "Expected numbers with commas for descent.hidden"),
        ({"temperature": -1}, "temperature"),
    ],
)
def test_what_does_not_fit_is_refused(settings, sentence):
    with pytest.raises(InvalidParameterError, match=r"^Expected") as refused:
        with_settings(RateConstrained(), settings)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("text", ["n_steps", "=5", "n_steps=", ""])
def test_a_setting_is_written_as_name_and_value(text):
    with pytest.raises(InvalidParameterError, match="--setting NAME=VALUE"):
        parsed_settings([text])


def test_a_setting_is_written_once():
    assert parsed_settings(["a = 1", "b=x=y"]) == {"a": "1", "b": "x=y"}
    with pytest.raises(InvalidParameterError, match="one value for a"):
        parsed_settings(["a=1", "a=2"])


@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_every_setting_of_every_method_can_be_written_as_text(method):
    recipe = method.recipe()
    for name in setting_names(recipe):
        value = recipe
        for part in name.split("."):
            value = getattr(value, part)
        assert not is_dataclass(value)
        if value == ():
            continue  # nothing can be written for no number at all
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        assert with_settings(recipe, {name: text}) == recipe, name
