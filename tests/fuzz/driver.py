"""One command in this process, and what must hold whatever it was fed with.

A command ends with exit code 0, 1 or 2 within some seconds; a refusal is one sentence; JSON holds no NaN; and nothing
that was planted among the private values (`CANARIES`) is printed or written.
"""

import io
import json
import os
import re
import resource
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from fairveil.cli import main

LONGEST_SECONDS = 20
"""A command that takes longer hangs."""

MOST_BYTES = 2**31
"""How much more memory a command may take than the process has; a file without end must not take it all."""

N_ROWS = 613
"""Rows of the private table: no refusal may state it."""

CANARIES = ("zqcell", "zqlabel", "zqgroup", "zqperson", "zqbroken", "7741950273", "8675309")
"""Planted among cells, labels, groups, ids, malformed lines and numbers."""

CAUTIONS = ("caution: By its public size", "caution: With ")
"""How the sentences begin that a training writes on stderr: a table is small for a certificate, or for a model."""

STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that steer a terminal."""


class HungError(BaseException):
    """Raised in a command that does not end; not an Exception, so that nothing catches it."""


@dataclass(frozen=True)
class Case:
    """A command with the files it finds; files of a name that is there already replace it."""

    words: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the case as text for the corpus."""
        files = {name: content.decode("latin-1") for name, content in self.files.items()}
        return json.dumps({"words": list(self.words), "files": files}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Case":
        """Return the case that `to_json` wrote."""
        facts = json.loads(text)
        files = {name: content.encode("latin-1") for name, content in facts["files"].items()}
        return cls(tuple(facts["words"]), files)


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit code (None if it did not end by itself), what it printed, what it wrote."""

    code: int | None
    out: str
    err: str
    written: Mapping[str, bytes]
    fault: str = ""


@contextmanager
def _watched(words: Sequence[str], folder: Path) -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Set folder, arguments, output, signals and warnings for one command, and set them back."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise HungError

    out, err = io.StringIO(), io.StringIO()
    before, argv, terminate = Path.cwd(), sys.argv, signal.getsignal(signal.SIGTERM)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MOST_BYTES, limits[1]))
    alarm = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST_SECONDS)
    try:
        with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("error")
            os.chdir(folder)
            sys.argv = ["fairveil", *words]
            yield out, err
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, alarm)
        signal.signal(signal.SIGTERM, terminate)
        os.chdir(before)
        sys.argv = argv


def run(case: Case, folder: Path) -> Outcome:
    """Write the files of a case into a folder and run its command there."""
    for name, content in case.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)  # as a key must be
    before = _contents(folder)
    code, fault = None, ""
    with _watched(case.words, folder) as (out, err):
        try:
            main()
            fault = "returned without an exit code"
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
        except HungError:
            fault = f"took more than {LONGEST_SECONDS} s"
        except BaseException as problem:  # whatever else ends a command is what is searched for
            fault = f"{type(problem).__name__}: {str(problem)[:200]}"
    after = _contents(folder)
    written = {name: content for name, content in after.items() if before.get(name) != content}
    return Outcome(code, out.getvalue(), err.getvalue(), written, fault)


def _contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def complaints(case: Case, outcome: Outcome) -> list[str]:
    """Return what does not hold of an outcome, in words."""
    found = [outcome.fault] if outcome.fault else []
    if outcome.code not in (None, 0, 1, 2):
        found.append(f"exit code {outcome.code}")
    if outcome.code:
        found += _refusal(case, outcome)
    elif outcome.err and case.words[0] != "frontier" and not outcome.err.startswith(CAUTIONS):
        # a sweep says on stderr how many points it will train, a training that its public size is small
        found.append(f"exit code 0 and on stderr: {outcome.err[:200]!r}")
    found += _bad_numbers(case, outcome)
    steering = STEERING.search(outcome.out + outcome.err)
    if steering:
        found.append(f"prints the character {steering[0]!r}")
    typed = " ".join(case.words)
    texts = {"stdout": outcome.out, "stderr": outcome.err}
    if case.words[:2] != ("schema", "draft"):
        texts |= {name: content.decode("latin-1") for name, content in outcome.written.items()}
    elif "--epsilon" in case.words and outcome.code == 0:
        texts = {}  # it pays to show what is frequent, and a canary may be
    else:  # as private as the file of the draft: classes and groups, which are frequent values
        texts["stdout"] = re.split(r'PRIVATE|"private"', outcome.out)[0]
    for name, text in texts.items():
        shown = [canary for canary in CANARIES if canary in text and canary not in typed]
        found += [f"{name} holds the private value {canary}" for canary in shown]
    return found


def _bad_numbers(case: Case, outcome: Outcome) -> list[str]:
    """Return where JSON or CSV holds a number that is none."""
    found = []
    texts = {name: content.decode() for name, content in outcome.written.items() if name.endswith((".json", ".csv"))}
    if "--json" in case.words and outcome.out.startswith("{"):
        texts["stdout.json"] = outcome.out
    for name, text in texts.items():
        try:
            if name.endswith(".json"):
                json.loads(text, parse_constant=_refuse_constant)
            elif re.search(r"(?im)(^|,)-?(nan|inf)(,|$)", text):
                found.append(f"{name} holds NaN")
        except ValueError as problem:
            found.append(f"{name} is bad JSON: {problem}")
    return found


def _refusal(case: Case, outcome: Outcome) -> list[str]:
    """Return what is wrong with the sentence of a refusal."""
    found = []
    is_help = outcome.err.lstrip().startswith("Usage:")
    sentence = outcome.err
    if case.words[:1] == ("frontier",):  # which says first how many points it will train
        sentence = re.sub(r"\A.*from the same people\.[^\n]*\n", "", sentence)
    if sentence.startswith(CAUTIONS):  # said before anything is spent, and so before what is refused later
        sentence = sentence.partition("\n")[2]
    if "--json" in case.words and sentence.startswith("{"):
        sentence = "fairveil: " + str(json.loads(sentence)["error"]) + "\n"
    is_one = sentence.startswith("fairveil: ") and sentence.count("\n") == 1 and sentence.endswith(".\n")
    if not is_one and not is_help:
        found.append(f"not one sentence on stderr: {outcome.err[:300]!r}")
    if "Traceback" in outcome.err:
        found.append("a traceback")
    if re.search(rf"(?<![\d.]){N_ROWS}(?![\d.])", sentence) and str(N_ROWS) not in " ".join(case.words):
        found.append(f"the refusal states the number of rows: {sentence[:200]!r}")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(name)
