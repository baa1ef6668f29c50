"""The model card: front matter that registries can read, and text that no name can turn into markup."""

import json
import re

import pytest

from fairveil import model_card

# what CommonMark treats as markup unless a backslash stands before it
ACTIVE = re.compile(r"(?<!\\)(?:\\\\)*[<>`\[\]*_#|]")


def front_matter(card):
    """The values of the front matter: each line is a key and a value that is JSON, which YAML reads as it is."""
    lines = card.split("---\n")[1].splitlines()
    return dict(line.split(": ", 1) for line in lines)


def test_a_card_states_the_evidence(made):
    card = model_card(made.usual())
    for words in ("Ann Owner", "ab" * 32, "5e" * 16, "Approved by Ann Owner", "84.2", "Female", "Impact ratio",
                  "About 12 people.", "The law sets no threshold", "number from 0 to 9, in 3 bins"):  # fmt: skip
        assert words in card, words
    assert "**Purpose**: not stated" in card and "**License**: not stated" in card


def test_the_front_matter_is_yaml_and_claims_only_what_was_measured(made):
    yaml = pytest.importorskip("yaml")
    facts = yaml.safe_load(model_card(made.usual()).split("---\n")[1])
    assert facts["license"] == "unknown" and facts["pipeline_tag"] == "tabular-classification"
    (index,) = facts["model-index"]
    metrics = {one["type"]: one for one in index["results"][0]["metrics"]}
    assert metrics["accuracy"]["value"] == made.usual()["accuracy"]["value"]
    assert not any(one["verified"] for one in metrics.values())
    assert "differential-privacy" in facts["tags"]
    nothing = yaml.safe_load(model_card(made.not_private()).split("---\n")[1])
    assert nothing["model-index"][0]["results"] == [] and "not-private" in nothing["tags"]


def test_front_matter_has_one_line_for_each_key_whatever_the_names(made):
    facts = front_matter(model_card(made.hostile()))
    assert set(facts) == {"license", "library_name", "pipeline_tag", "tags", "metrics", "model-index"}
    assert json.loads(facts["license"]) == "unknown"
    assert all(value.isprintable() for value in facts.values())


def test_no_name_becomes_markup(made):
    body = model_card(made.hostile()).split("---\n", 2)[2]
    for line in body.splitlines():
        own = re.sub(r"^#{1,2} |\*\*|^\| | \| | \|$|^- |---", "", line)  # what the card itself writes
        assert not ACTIVE.search(own), line
    tame = model_card(made.tamed(made.hostile())).split("---\n", 2)[2]
    assert len(tame.splitlines()) == len(body.splitlines())


def test_a_card_without_measurements_says_so(made):
    card = model_card(made.not_private())
    assert "No groups were measured." in card and "**Certificate**: none" in card and "nan" not in card.lower()
