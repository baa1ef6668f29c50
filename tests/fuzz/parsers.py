"""Parsers as functions of bytes, for a search that is guided by coverage (`atheris_targets.py`)."""

import tempfile
from pathlib import Path

from fairveil.data.readers import read_table
from fairveil.data.schema import Schema
from fairveil.fairness.rule_parser import Rule
from fairveil.persistence import FACTS, read_facts
from fairveil.privacy.journal import Journal

FOLDER = Path(tempfile.mkdtemp(prefix="fairveil-fuzz-"))


def rule(content: bytes) -> None:
    """Parse a rule."""
    Rule(content.decode("utf-8", "replace"))


def schema(content: bytes) -> None:
    """Read a schema."""
    place = FOLDER / "schema.toml"
    place.write_bytes(content)
    Schema.read(place)


def csv(content: bytes) -> None:
    """Read a table."""
    place = FOLDER / "table.csv"
    place.write_bytes(content)
    for _ in read_table(place, keep_malformed=True):
        pass


def model(content: bytes) -> None:
    """Read the facts of a model."""
    (FOLDER / FACTS).write_bytes(content)
    read_facts(FOLDER)


def ledger(content: bytes) -> None:
    """Read the lines of a ledger."""
    place = FOLDER / "ledger.jsonl"
    place.write_bytes(content)
    Journal(place).read()


TARGETS = {target.__name__: target for target in (rule, schema, csv, model, ledger)}
