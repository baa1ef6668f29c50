"""Write the reference of the command line, auto/cli.md, from `fairveil COMMAND --help` whenever the site is built."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from typer.main import get_command
from typer.testing import CliRunner

from fairveil.cli.app import app as commands

INTRODUCTION = """# Command line

This page shows what `fairveil COMMAND --help` prints. Every command that prints results takes `--json`. Exit codes:
0 for success, 2 for bad input (one sentence says what was expected, what was found and what to do), 1 after an
interruption or an audit that disproved a claim. `fairveil --install-completion` sets up completion for your shell.
"""
PLAIN_TERMINAL = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}


def paths_of(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command below this one, in the order of the help text."""
    children = getattr(command, "commands", {})
    if not children and not getattr(command, "hidden", False):
        yield path
    for name, child in children.items():
        yield from paths_of(child, (*path, name))


def page() -> str:
    """Return the whole page."""
    sections = [INTRODUCTION]
    for path in paths_of(get_command(commands)):
        answer = CliRunner().invoke(commands, [*path, "--help"], env=PLAIN_TERMINAL, catch_exceptions=False)
        help_text = re.sub(r"\x1b\[[0-9;]*m", "", answer.output).strip("\n")
        help_text = re.sub(r"Usage: \S+ ", "Usage: fairveil ", help_text, count=1)
        sections.append(f"## fairveil {' '.join(path)}\n\n```text\n{help_text}\n```\n")
    return "\n".join(sections)


def write_page(site: Sphinx, _config: object) -> None:
    """Write the page if it has changed."""
    path, text = Path(site.srcdir) / "auto" / "cli.md", page()
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def setup(site: Sphinx) -> dict[str, bool]:
    """Write the page before Sphinx collects the documents."""
    site.connect("config-inited", write_page)
    return {"parallel_read_safe": True}
