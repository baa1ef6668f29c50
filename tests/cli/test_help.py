"""Help and version: every command explains itself."""

import json
import re
from dataclasses import replace

import pytest

import fairveil
from fairveil.cli.options import GROUPS
from fairveil.fairness.constraints import CONSTRAINT_TYPES
from fairveil.methods.registry import METHODS

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
    ("verify",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command) or "fairveil")
def test_every_command_explains_itself(say, command):
    said = say(*command, "--help")
    assert (said.code, said.err) == (0, "")
    assert said.out.lstrip().startswith(" ".join(("Usage: fairveil", *command)))


@pytest.mark.parametrize("command", [(), ("ledger",), ("schema",)], ids=lambda command: " ".join(command) or "fairveil")
def test_a_name_alone_shows_the_same_help_line_by_line(say, command):
    said = say(*command)
    assert said.code == 2
    assert (said.out + said.err).strip() == say(*command, "--help").out.strip()


def test_every_option_of_the_contract_is_there(say):
    text = say("train", "--help").out
    options = "target sensitive epsilon delta constraint tolerance aware unaware method model schema n-public ledger"
    for option in [*options.split(), "unit", "confidence", "out", "json"]:
        assert f"--{option}" in text


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command) or "fairveil")
def test_help_fits_eighty_columns_and_any_encoding(say, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = say(*command, "--help").out
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()


def test_summaries_are_not_cut(say):
    for command in ((), ("ledger",), ("schema",)):
        assert "..." not in say(*command, "--help").out.split("Commands:")[1]
    text = " ".join(say("--help").out.split())
    assert "Train a private and fair classifier, certify it on held-out people, and write the evidence." in text


@pytest.mark.parametrize(
    "command", [one for one in COMMANDS if one not in {(), ("ledger",), ("schema",)}], ids=" ".join
)
def test_every_option_stands_in_a_group(say, command):
    sections = dict(re.findall(r"(?ms)^(\w+):\n(.*?)(?=^\w|\Z)", say(*command, "--help").out))
    assert set(sections) <= {*GROUPS, "Options"}
    assert re.findall(r"(?m)^  (--[\w-]+)", sections["Options"]) == ["--help"]


def test_groups_come_in_the_order_of_a_first_decision(say):
    found = re.findall(r"(?m)^(\w+):$", say("train", "--help").out)
    assert found == ["Data", "Privacy", "Fairness", "Model", "Evidence", "Output", "Options"]


def test_version(say):
    said = say("--version")
    assert (said.code, said.out, said.err) == (0, f"fairveil {fairveil.__version__}\n", "")


def test_the_installed_program_answers(shell):
    assert shell("--version").out == f"fairveil {fairveil.__version__}\n"


def test_nonsense_is_refused(folder, is_refused):
    assert "magic" in is_refused(folder, ("magic",))
    assert "magic" in is_refused(folder, ("ledger", "magic"))
    assert "data" in is_refused(folder, ("train",)).lower()


@pytest.mark.parametrize("command", ["train", "explain"])
def test_every_registered_choice_is_in_the_help(say, command):
    text = " ".join(say(command, "--help").out.split())
    for name in (*CONSTRAINT_TYPES, *METHODS):
        assert name in text.replace(" ", "")
    for method in METHODS.values():
        assert f"{method.name}: {method.help}" in text
        assert method.knob is None or f"--{method.knob.replace('_', '-')}" in text


def test_a_registered_method_brings_its_knob_as_an_option(folder, say, is_refused, monkeypatch):
    words = {"help": "a method of this test", "knob": "momentum", "knob_help": "how much to remember"}
    monkeypatch.setitem(METHODS, "mine", replace(METHODS["dpsgd"], name="mine", **words))
    text = " ".join(say("train", "--help").out.split())
    assert "mine: a method of this test" in text and "--momentum" in text and "how much to remember" in text
    plain = ("explain", "people.csv", "--schema", "schema.toml", "--unaware")
    facts = json.loads(say(*plain, "--method", "mine", "--momentum", "0.5", "--json").out)
    assert facts["method"] == "mine"
    assert "0 <= momentum < 1" in is_refused(folder, (*plain, "--method", "mine", "--momentum", "2"))
    sentence = is_refused(folder, (*plain, "--method", "dpsgd", "--momentum", "0.5"))
    assert "--momentum with mine only, got it with dpsgd" in sentence


def test_every_command_that_answers_can_answer_in_json(say):
    for command in (command for command in COMMANDS if command not in {(), ("ledger",), ("schema",)}):
        assert "--json" in say(*command, "--help").out


def test_budget_and_approval_answer_in_json(folder, say):
    said = say("ledger", "budget", "books.jsonl", "--epsilon", "2", "--json")
    assert json.loads(said.out) == {"ledger": "books.jsonl", "budget": {"epsilon": 2.0, "delta": 1e-5}}
    said = say("schema", "approve", "schema.toml", "--yes", "--json")
    facts = json.loads(said.out)
    assert facts == {"schema": "schema.toml", "private_draft": False, "by": "", "at": facts["at"]}
