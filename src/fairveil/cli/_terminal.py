"""What a person sees: answers with color and hanging indents on a terminal, plain text in a pipe; help; progress.

Text is data to the terminal: nothing in it is read as markup, whatever a column or a file is called. The library that
colors and wraps is loaded where there is a terminal.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Any, TextIO, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from fairveil.cli.options import GROUPS
from fairveil.errors import BadStructureError, printable
from fairveil.report.privacy_text import STAYS_SPENT
from fairveil.report.text import VERDICT_BADGES

Step = TypeVar("Step")

COLORS = {"good": "bold green", "bad": "bold red", "unsure": "bold yellow", "none": "bold"}
"""How a verdict is shown, by the kind that its badge in the report has."""

LABELS = {
    "caution": "bold yellow", "broken": "bold red", "epsilon": "bold", "ever spent": "bold", "this sweep": "bold",
    "total": "bold",    "certified": "bold", "chance": "bold",
}  # fmt: skip
"""Lines that stand out, by the label that they begin with."""

LABEL = re.compile(r" +\S+(?: \S+)*? {2,}(?=\S)|  (?! ).{10} (?=\S)")
"""Two blanks or more, a label, and either two blanks or one after a label that fills its place."""

UNBROKEN = re.compile(r"(?:Next|Report|Page|Written):| +fairveil ")
"""Commands and paths to copy: a terminal folds them by itself, and a line break would become part of them."""

ALARMS = "NON-PRIVATE|PRIVATE:|THE CLAIM IS BROKEN"
"""What a first line may have to say loudly."""

AS_IT_IS: Any = dict.fromkeys(("break_long_words", "break_on_hyphens", "expand_tabs", "replace_whitespace"), False)
"""Lines are broken between words, and nothing else is changed."""

WIDEST_HELP = 110
"""Columns of a help page on a wide terminal: longer lines are hard to read."""


# --- answers ----------------------------------------------------------------------------------------------------------


def say(as_json: bool, facts: dict[str, Any], text: str, is_paid: bool = False) -> None:
    """Print one JSON object for machines, or text for people; a paid answer that cannot be printed goes to stderr."""
    answer = json.dumps(facts, allow_nan=False) if as_json else printable(text, kept="\n\t")
    is_plain = as_json or not sys.stdout.isatty()
    try:
        typer.echo(answer if is_plain else dressed(answer, sys.stdout), file=sys.stdout)
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
    from rich.console import Console

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        for place, line in enumerate(text.split("\n")):
            for piece in _pieces(line, place == 0, console):
                console.print(piece, soft_wrap=True)
    return captured.get().removesuffix("\n")


def _pieces(line: str, is_first: bool, console: Any) -> Iterable[Any]:
    """Return a line in pieces that fit the width, all but the first indented to where its words began."""
    from rich.text import Text

    unbroken = UNBROKEN.match(line)
    if unbroken:
        return [Text.assemble((unbroken[0], "bold"), line[unbroken.end() :])]
    found = LABEL.match(line)
    end = found.end() if found else len(line) - len(line.lstrip())
    label, words = line[:end].strip(), Text(line[end:])
    style = LABELS.get(label, "cyan")
    if label in LABELS or is_first:
        words.stylize("bold")
    for verdict, (kind, _, _) in VERDICT_BADGES.items():
        if label == verdict:
            style = COLORS[kind]
        elif label == "certified" and words.plain.startswith(f"{verdict}:"):
            words.stylize(COLORS[kind], 0, len(verdict))
    if is_first:
        words.highlight_regex(ALARMS, "bold red")
        words.highlight_regex("^fairveil:", "bold red")
    hang = end if label and end <= console.width // 2 else len(line) - len(line.lstrip()) + 2
    pieces: list[Any] = []
    width, at = max(console.width - max(end, hang), 20), 0
    for piece in wrap(words.plain, width, **AS_IT_IS):
        start = words.plain.index(piece, at)
        at = start + len(piece)
        pieces.append(Text.assemble(" " * hang if pieces else (line[:end], style), words[start:at]))
    return pieces or [Text(line)]


def progress_over(what: str) -> Callable[[range], Iterable[int]]:
    """Return what shows a bar on the terminal while it goes through steps."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return lambda steps: track(steps, description=what, console=console, transient=True)


def progress_unless(is_quiet: bool, what: str) -> Callable[[range], Iterable[int]]:
    """Return what shows a bar on the terminal, or nothing in a pipe and for machines."""
    return iter if is_quiet or not sys.stderr.isatty() else progress_over(what)


def named_progress(steps: Sequence[Step], names: Sequence[str], sizes: Sequence[int]) -> Iterator[Step]:
    """Return steps one by one, under a bar on the terminal that shows the name of the running one."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    words = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), words)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=sum(sizes))
        for step, name, size in zip(steps, names, sizes, strict=True):
            bar.update(task, description=name)
            yield step
            bar.advance(task, size)


# --- help -------------------------------------------------------------------------------------------------------------


class _Help:
    """A help page with options in groups, and commands with their whole first sentence."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options of each group; what belongs to none comes last."""
        owners = {name: group for group, names in GROUPS.items() for name in names}
        records: dict[str, list[tuple[str, str]]] = {group: [] for group in (*GROUPS, "Options")}
        for one in self.get_params(ctx):  # type: ignore[attr-defined]
            knob_of = one.rich_help_panel if isinstance(one, TyperOption) else None
            record = one.get_help_record(ctx)
            if record is not None:
                records[knob_of or owners.get(one.name, "Options")].append(record)
        for group, lines in records.items():
            if lines:
                with formatter.section(group):
                    formatter.write_dl(lines)

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the first sentence, however long it is."""
        return str(super().get_short_help_str(10**6))  # type: ignore[misc]

    def get_help(self, ctx: Any) -> str:
        """Return the page, with headings that stand out on a terminal."""
        ctx.max_content_width = WIDEST_HELP
        page = str(super().get_help(ctx))  # type: ignore[misc]
        if not sys.stdout.isatty():
            return page
        from rich.console import Console
        from rich.text import Text

        console, shown = Console(highlight=False), Text(page)
        shown.highlight_regex(r"(?m)^(?:\S[^\n]*:$|Usage:)", "bold")
        shown.highlight_regex(r"(?m)^  (?:-\S+|[a-z]+(?=  ))", "cyan")
        with console.capture() as captured:
            console.print(shown, soft_wrap=True)
        return captured.get().rstrip("\n")


class Command(_Help, TyperCommand):
    """A command with such a page."""


class Group(_Help, TyperGroup):
    """Several commands with such a page."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, then the commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
