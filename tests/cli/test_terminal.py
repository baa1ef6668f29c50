"""What a person sees: color and hanging indents on a terminal, plain text in a pipe, and never markup."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

from fairveil.cli._terminal import dressed

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLORS = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
TEXT = "\n".join(
    [
        "Trained a NON-PRIVATE linear classifier on people.csv (dp2dp).",
        "  decisions  may read sex",
        "  certified  holds: With 95 % confidence, from about 24,558 held-out rows, all 2 bounds hold: far from it.",
        "  caution    Another ledger has entries about the same data, which the total does not include at all.",
        "  not hidden timing, the schema (declared public), and what follows from the population as a whole",
        "Next: fairveil predict results/model NEW.csv --out decisions.parquet --delimiter ';' --key results/key",
    ]
)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 60 columns that knows colors."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    return Terminal()


def shown(text: str) -> str:
    """The text without the codes of colors."""
    return CODES.sub("", text)


def test_a_pipe_gets_the_text_as_it_is():
    assert dressed(TEXT, io.StringIO()) == TEXT


def test_long_lines_wrap_where_their_words_began(terminal):
    lines = shown(dressed(TEXT, terminal)).splitlines()
    assert max(len(line) for line in lines if not line.startswith("Next:")) <= 60
    start = next(place for place, line in enumerate(lines) if line.startswith("  certified"))
    assert lines[start + 1].startswith(13 * " ") and lines[start + 1][13] != " "
    hidden = next(place for place, line in enumerate(lines) if line.startswith("  not hidden"))
    assert lines[hidden + 1].startswith(13 * " ") and lines[hidden + 1][13] != " "
    assert shown(dressed(TEXT, terminal)).split() == TEXT.split()


def test_a_command_to_copy_has_no_line_break(terminal):
    assert shown(dressed(TEXT, terminal)).splitlines()[-1] == TEXT.splitlines()[-1]


def test_what_matters_stands_out(terminal):
    text = dressed(TEXT, terminal)
    assert "\x1b[1;31mNON-PRIVATE\x1b[0m" in text
    assert "\x1b[1;32mholds\x1b[0m" in text
    assert "\x1b[1;33m  caution    \x1b[0m" in text


def test_without_color_it_still_wraps(terminal, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = dressed(TEXT, terminal)
    assert not COLORS.search(text)
    assert max(map(len, shown(text).splitlines()[:-1])) <= 60


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/]", "[link=file:///x]y", ":smile:", "[bold]", "a\\[b]"])
def test_the_name_of_a_column_is_never_markup(terminal, name):
    text = f"  decisions  may read {name}\n  caution    {name}\nfairveil: Expected {name}, got none."
    assert shown(dressed(text, terminal)) == text


def test_a_word_that_is_too_long_stays_whole(terminal):
    path = "/" + "very-long-name/" * 9
    assert path in shown(dressed(f"  summary    {path} was written with this ledger", terminal))


def test_an_empty_text_is_empty(terminal):
    assert dressed("", terminal) == ""


def in_terminal(words: list[str], columns: int, **variables: str) -> tuple[int, str]:
    """Run a program in a real terminal, and return its exit code and all that it showed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR", "FORCE_COLOR"}}
    environment = known | {"TERM": "xterm-256color", "OPENBLAS_NUM_THREADS": "1"} | variables
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 65536):
            parts.append(part)
    except OSError:  # how a terminal of Linux says that nobody writes any more
        pass
    os.close(ours)
    return process.wait(timeout=120), b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.slow
def test_a_real_terminal_has_color_and_its_own_width(program):
    code, text = in_terminal([*program, "explain", "adult", "--aware", "--tolerance", "0.02"], 70)
    assert code == 0 and COLORS.search(text)
    lines = shown(text).splitlines()
    assert max(len(line) for line in lines if "fairveil " not in line) <= 70
    code, text = in_terminal([*program, "explain", "adult", "--aware", "--epsilon", "0"], 50, NO_COLOR="1")
    assert code == 2 and not COLORS.search(text) and max(map(len, shown(text).splitlines())) <= 50


@pytest.mark.slow
def test_a_sweep_names_the_running_point(folder, program):
    words = ("--schema", "schema.toml", "--aware", "--epsilons", "1", "--tolerances", "0.2", "--holdout", "0.3")
    methods = ("--methods", "dp2dp,dpsgd", "--out", "sweep")
    code, text = in_terminal([*program, "frontier", "people.csv", *words, *methods], 100)
    assert code == 0
    assert "dp2dp, epsilon 1, tolerance 0.2" in text and "dpsgd, epsilon 1" in text and "0/2" in shown(text)
