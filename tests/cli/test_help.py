"""Help and version: every command explains itself."""

import json

import pytest

import fairveil
from fairveil.cli.options import Constraint, Method
from fairveil.fairness.constraints import CONSTRAINT_TYPES
from fairveil.request import METHODS

COMMANDS = [
    (),
    ("train",),
    ("explain",),
    ("predict",),
    ("certify",),
    ("frontier",),
    ("check",),
    ("ledger",),
    ("ledger", "show"),
    ("ledger", "budget"),
    ("schema",),
    ("schema", "draft"),
    ("schema", "approve"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command) or "fairveil")
def test_every_command_explains_itself(say, command):
    said = say(*command, "--help")
    assert (said.code, said.err) == (0, "")
    assert said.out.lstrip().startswith(" ".join(("Usage: fairveil", *command)))


@pytest.mark.parametrize(
    "command", [(), ("ledger",), ("schema",)], ids=lambda command: " ".join(command) or "fairveil"
)
def test_a_name_alone_shows_the_same_help_line_by_line(say, command):
    said = say(*command)
    assert said.code == 2
    assert (said.out + said.err).strip() == say(*command, "--help").out.strip()


def test_every_option_of_the_contract_is_there(say):
    text = say("train", "--help").out
    options = "target sensitive epsilon delta constraint tolerance aware unaware method model schema n-public ledger"
    for option in [*options.split(), "unit", "confidence", "out", "json"]:
        assert f"--{option}" in text


def test_version(say):
    said = say("--version")
    assert (said.code, said.out, said.err) == (0, f"fairveil {fairveil.__version__}\n", "")


def test_the_installed_program_answers(shell):
    assert shell("--version").out == f"fairveil {fairveil.__version__}\n"


def test_nonsense_is_refused(folder, is_refused):
    assert "magic" in is_refused(folder, ("magic",))
    assert "magic" in is_refused(folder, ("ledger", "magic"))
    assert "data" in is_refused(folder, ("train",)).lower()


def test_every_constraint_can_be_named():
    assert {str(name) for name in Constraint} == set(CONSTRAINT_TYPES)


def test_every_method_can_be_named():
    assert tuple(str(name) for name in Method) == METHODS


def test_every_command_that_answers_can_answer_in_json(say):
    for command in (command for command in COMMANDS if command not in {(), ("ledger",), ("schema",)}):
        assert "--json" in say(*command, "--help").out


def test_budget_and_approval_answer_in_json(folder, say):
    said = say("ledger", "budget", "books.jsonl", "--epsilon", "2", "--json")
    assert json.loads(said.out) == {"ledger": "books.jsonl", "budget": {"epsilon": 2.0, "delta": 1e-5}}
    said = say("schema", "approve", "schema.toml", "--yes", "--json")
    assert json.loads(said.out) == {"schema": "schema.toml", "private_draft": False}
