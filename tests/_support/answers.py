"""What a command said and wrote, reduced to what values must not change."""

import json
import re
from pathlib import Path
from typing import Any

from fairveil.privacy.ledger import Ledger

CHANCE = {"broken", "caution", "certified", "unknown", "constant"}
"""First words of the lines that noisy counts alone decide."""

NAMED = {"groups", "other"}
"""First words of the lines that name groups, whose order noisy counts decide."""


def summary_in(folder: Path) -> dict[str, Any]:
    """Return the summary that a training wrote into a folder."""
    return json.loads((folder / "summary.json").read_text())


def names_in(folder: Path) -> list[str]:
    """Return the names of the files and folders in a folder."""
    return sorted(path.name for path in folder.iterdir())


def events_in(ledger: str | Path) -> list[object]:
    """Return all events of a ledger, in their order."""
    return [charge.event for entry in Ledger(ledger).entries for charge in entry.charges]


def shape_of(text: str, *, may_be_unknown: bool = True) -> str:
    """Return a text without its numbers and folders, and without what noisy counts alone decide."""
    text = re.sub(r"[^ ']*/people\.csv", "people.csv", text)
    text = "\n".join(line for line in text.splitlines() if (line.split() or [""])[0] not in NAMED)
    if may_be_unknown:
        lines = [line for line in text.splitlines() if line.split()[:1] and line.split()[0] not in CHANCE]
        text = re.sub(r"unknown|\d\.\d+  \(95 %: \d\.\d+ to \d\.\d+\)", "#", "\n".join(lines))
        text = re.sub(r"not measured: .*|measured privately .*", "measured", text)
    return re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", text)
