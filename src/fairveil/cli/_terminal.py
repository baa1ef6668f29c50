"""What a person sees: answers with color and hanging indents on a terminal, plain text in a pipe; help; progress.

Text is data to the terminal: nothing in it is read as markup, whatever a column or a file is called.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.progress import track
from rich.text import Text
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from fairveil.cli.options import PANELS
from fairveil.errors import BadStructureError, printable
from fairveil.report.privacy_text import STAYS_SPENT
from fairveil.report.text import VERDICT_BADGES

COLORS = {"good": "bold green", "bad": "bold red", "unsure": "bold yellow", "none": "bold"}
"""How a verdict is shown, by the kind that its badge in the report has."""

LABELS = {"caution": "bold yellow", "broken": "bold red", "epsilon": "bold", "ever spent": "bold", "certified": "bold"}
"""Lines that stand out, by the label that they begin with."""

LABEL_END = 12
"""The column of the last blank after a label that fills its place."""

LABEL = re.compile(r" +\S+(?: \S+)*? {2,}(?=\S)")
"""Blanks, a label, and at least two blanks."""

UNBROKEN = re.compile(r"(?:Next|Report|Page|Written): | +fairveil ")
"""Commands and paths to copy: a terminal folds them by itself, and a line break would become part of them."""

ALARMS = r"NON-PRIVATE|PRIVATE:|THE CLAIM IS BROKEN"
"""What a first line may have to say loudly."""

WIDEST_HELP = 110
"""Columns of a help page on a wide terminal: longer lines are hard to read."""


# --- answers ----------------------------------------------------------------------------------------------------------


def say(as_json: bool, facts: dict[str, Any], text: str, is_paid: bool = False) -> None:
    """Print one JSON object for machines, or text for people; a paid answer that cannot be printed goes to stderr."""
    answer = json.dumps(facts, allow_nan=False) if as_json else printable(text, kept="\n\t")
    try:
        typer.echo(answer if as_json else dressed(answer, sys.stdout), file=sys.stdout)
    except BrokenPipeError:
        raise
    except OSError as problem:
        if is_paid:
            typer.echo(answer, err=True)
        raise BadStructureError(
            f"Expected to print the answer, got {problem.strerror} on standard output; all files are written, and "
            f"{STAYS_SPENT}."
        ) from None


def dressed(text: str, stream: TextIO) -> str:
    """Return text as it is printed on a stream: as it is, or with color and wrapped to the width of a terminal."""
    if not stream.isatty():
        return text
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        for place, line in enumerate(text.split("\n")):
            for piece in _pieces(line, place == 0, console):
                console.print(piece, soft_wrap=True)
    return captured.get().removesuffix("\n")


def _pieces(line: str, is_first: bool, console: Console) -> Iterable[Text]:
    """Return a line in pieces that fit the width, all but the first indented to where the words began."""
    if UNBROKEN.match(line):
        return [Text.assemble((line[: line.find(":") + 1], "bold"), line[line.find(":") + 1 :])]
    found = LABEL.match(line)
    end = found.end() if found else len(line) - len(line.lstrip())
    if found is None and end == 2 and line[LABEL_END : LABEL_END + 1] == " ":
        end = LABEL_END + 1
    if line.startswith("fairveil: "):
        end = len("fairveil: ")
    label, words = line[:end].strip(), Text(line[end:])
    style = LABELS.get(label, "cyan")
    if label == "fairveil:":
        style = "bold red" if words.plain.startswith("Expected") else "bold yellow"
    if label in LABELS or is_first:
        words.stylize("bold")
    for verdict, (kind, _, _) in VERDICT_BADGES.items():
        if label == verdict:
            style = COLORS[kind]
        elif label == "certified" and words.plain.startswith(f"{verdict}:"):
            words.stylize(COLORS[kind], 0, len(verdict))
    if is_first:
        words.highlight_regex(ALARMS, "bold red")
    hang = end if label and end <= console.width // 2 and label != "fairveil:" else end - len(label) + 2 * (not label)
    wrapped = words.wrap(console, max(console.width - max(end, hang), 20), overflow="ignore")
    first = Text.assemble((line[:end], style), wrapped[0] if wrapped else "")
    return [first, *(Text.assemble(" " * hang, piece) for piece in wrapped[1:])]


def progress_over(what: str, is_quiet: bool) -> Callable[[range], Iterable[int]]:
    """Return what shows a bar on a terminal while it goes through steps, and nothing elsewhere."""
    console = Console(stderr=True)
    if is_quiet or not console.is_terminal:
        return iter
    return lambda steps: track(steps, description=what, console=console, transient=True)


# --- help -------------------------------------------------------------------------------------------------------------


class _Help(TyperCommand if False else object):  # type: ignore[misc]
    pass
