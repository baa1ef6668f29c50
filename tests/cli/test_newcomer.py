"""The path of a newcomer with real, messy files and the real program: every step is calm and names the next one."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from fairveil.data.schema import Schema
from fairveil.privacy.ledger import Ledger

N_TRAIN, N_APART, N_NEW = 5000, 2000, 100
PLACEHOLDERS = {
    "DATA.csv": "people.csv",
    "NEW.csv": "new.csv",
    "HELD_OUT.csv": "held_out.csv",
    "HOLDOUT.csv": "held_out.csv",
}


@dataclass(frozen=True)
class Messy:
    """A real table, and how its file looks."""

    name: str
    target: str
    sensitive: str
    number: str
    delimiter: str = ","
    newline: str = "\n"
    mark: str = ""
    is_quoted: bool = False
    price: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        return () if self.delimiter == "," else ("--delimiter", self.delimiter)

    def header(self, name: str) -> str:
        return f"{name.replace('_', ' ').upper()} "

    def line(self, cells: list[str]) -> str:
        return self.delimiter.join(f'"{cell}"' if self.is_quoted else f" {cell} " for cell in cells)

    def write(self, path: Path, table: pd.DataFrame) -> None:
        lines = [self.line([self.header(name) for name in table.columns])]
        lines += [self.line(list(row)) for row in table.itertuples(index=False)]
        path.write_bytes((self.mark + self.newline.join(lines) + self.newline).encode())

    def spoilt(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return all cells as text: gaps as `?` or nothing, and some numbers as people write them."""
        text = table.astype(object).where(table.notna(), "?").astype(str).reset_index(drop=True)
        text.loc[text.index % 50 == 0, self.number] += " years"
        text.loc[text.index % 90 == 7, self.number] = "n/a"
        text.loc[text.index % 70 == 11, self.number] = ""
        return text


TABLES = [
    Messy("adult", "income", "sex", "age", newline="\r\n", mark="\ufeff"),
    Messy("bank", "y", "marital", "age", delimiter=";", is_quoted=True),
    Messy("credit_default", "default_payment_next_month", "sex", "age", mark="\ufeff", is_quoted=True,
          newline="\r\n", price=("--epsilon", "3")),
]  # fmt: skip
STEPS = ("draft", "approve", "check", "explain", "train", "predict", "certify", "ledger")


@dataclass(frozen=True)
class Walk:
    """What a newcomer typed, saw and has."""

    table: Messy
    folder: Path
    said: dict[str, object]


def declare_size(draft: Path) -> None:
    """Do as the draft says: replace its line about n_public."""
    text, n_lines = re.subn(r"^(# )?n_public = .*$", f"n_public = {N_TRAIN}", draft.read_text(), flags=re.MULTILINE)
    assert n_lines == 1
    draft.write_text(text)


def steps(table: Messy) -> Iterator[tuple[str, tuple[str, ...]]]:
    asked = ("people.csv", "--schema", "schema.toml", *table.words)
    bounds = ("--epsilon", "1", "--tolerance", "0.05", "--unaware")
    columns = (
        "--target",
        table.header(table.target).strip(),
        "--sensitive",
        table.header(table.sensitive).strip(),
    )
    yield (
        "draft",
        ("schema", "draft", "people.csv", *columns, "--out", "schema.toml", *table.words, *table.price),
    )
    if not table.price:
        yield "approve", ("schema", "approve", "schema.toml", "--yes")
    yield "check", ("check", *asked)
    yield "explain", ("explain", *asked, *bounds)
    yield "train", ("train", *asked, *bounds, "--out", "results")
    yield "predict", ("predict", "results/model", "new.csv", "--out", "decisions.csv", *table.words)
    yield "certify", ("certify", "results/model", "held_out.csv", "--epsilon", "0.5", *table.words)
    yield "ledger", ("ledger", "show", "people.csv.ledger.jsonl")


@pytest.fixture(scope="module", params=TABLES, ids=lambda table: table.name)
def walked(request, real_data, tmp_path_factory, shell, inside) -> Walk:
    """All steps, one after the other; the first training by a process of its own."""
    table: Messy = request.param
    folder = tmp_path_factory.mktemp(table.name)
    raw = pd.read_parquet(real_data / f"{table.name}.parquet")
    rows = table.spoilt(raw.sample(N_TRAIN + N_APART + N_NEW, random_state=0))
    table.write(folder / "people.csv", rows[:N_TRAIN])
    table.write(folder / "held_out.csv", rows[N_TRAIN:-N_NEW])
    table.write(folder / "new.csv", rows[-N_NEW:].drop(columns=table.target))
    said = {}
    for name, words in steps(table):
        run = shell if table is TABLES[0] and name == "train" else inside
        said[name] = run(*words, cwd=folder)
        if name == "draft":
            declare_size(folder / "schema.toml")
    return Walk(table, folder, said)


def next_words(text: str) -> list[str]:
    """Return the command after `Next:`, as a shell would read it, with its placeholders filled in."""
    found = re.findall(r"^Next: (.*)$", text, re.MULTILINE)
    assert found, f"no line that starts with Next: in\n{text}"
    program, *words = shlex.split(found[0], comments=True)
    assert program == "fairveil"
    filled = [PLACEHOLDERS.get(word, word) for word in words]
    assert not [word for word in filled if re.fullmatch(r"[A-Z_]{3,}(\.\w+)?", word)], f"unknown in {found[0]}"
    return filled


def is_calm(said):
    """Nothing but the caution that a public size is small for the request goes to the standard error."""
    return said.code == 0 and re.fullmatch("(caution: (By its public size|With [0-9,]+ people)[^\n]*\n)?", said.err)


@pytest.mark.parametrize("step", STEPS)
def test_each_step_is_calm(walked, step):
    if step not in walked.said:
        assert (step, bool(walked.table.price)) == ("approve", True)  # a paid draft needs no approval
        return
    said = walked.said[step]
    assert is_calm(said)


@pytest.mark.parametrize("step", STEPS[:-1])
def test_each_step_names_the_next_which_runs(walked, inside, step):
    """The books are the end of the path; the commands of one table stand for those of the others."""
    if step not in walked.said:
        assert not Schema.read(walked.folder / "schema.toml").private_draft  # a paid draft needs no approval
        return
    words = next_words(walked.said[step].out)
    if walked.table.name == "adult" or step == "train":
        assert is_calm(inside(*words, cwd=walked.folder))


def test_the_next_step_of_a_private_draft_is_its_approval(walked):
    words = next_words(walked.said["draft"].out)
    assert (words[:2] == ["schema", "approve"]) == (not walked.table.price)


def test_the_draft_knows_the_table(walked):
    schema = Schema.read(walked.folder / "schema.toml")
    assert schema.target.column == walked.table.header(walked.table.target).strip()
    assert len(schema.target.classes) == 2
    assert schema.columns[walked.table.number.upper()].type == "number"
    assert schema.n_public == N_TRAIN
    assert not any(
        "?" in category for column in schema.columns.values() for category in getattr(column, "categories", ())
    )


def test_check_counts_what_was_spoilt(walked):
    rows = [index for index in range(N_TRAIN) if index % 70 == 11 or index % 90 == 7]
    text = walked.said["check"].out
    assert text.startswith("PRIVATE")
    assert re.search(rf"^  AGE +{len(rows)} +missing ", text, re.MULTILINE)
    assert re.search(r"^  AGE +\d+ +not a number ", text, re.MULTILINE)
    assert re.search(rf" {N_TRAIN} +rows that count", text)


def test_the_report_shows_what_the_summary_says(walked):
    summary = json.loads((walked.folder / "results" / "summary.json").read_text())
    page = (walked.folder / "results" / "report.html").read_text()
    for number in (summary["gap"]["value"], summary["accuracy"]["value"], summary["epsilon_spent"]):
        assert f'value="{number!r}"' in page
    assert summary["epsilon_spent"] <= summary["epsilon"] == 1.0
    assert "people.csv" in page


def test_everyone_new_gets_a_decision(walked):
    decisions = pd.read_csv(walked.folder / "decisions.csv", dtype=str)
    classes = Schema.read(walked.folder / "schema.toml").target.classes
    assert len(decisions) == N_NEW
    assert list(decisions.columns) == ["prediction", *(f"p_{name}" for name in classes), "note", "model_digest"]
    assert set(decisions["prediction"]) <= set(classes)


def test_the_ledger_says_what_was_spent_on_whom(walked):
    books = Ledger(walked.folder / "people.csv.ledger.jsonl").entries
    assert books[0].purpose.startswith("schema draft" if walked.table.price else "fit of ")
    first = Ledger(walked.folder / "held_out.csv.ledger.jsonl").entries[0]
    assert first.details["epsilon"] == 0.5


# --- the first mistakes ---------------------------------------------------------------------------------------------


def test_a_delimiter_that_was_forgotten_is_named_or_guessed(folder, people, say, is_refused):
    """Quoted cells and semicolons: what a spreadsheet exports in half of Europe."""
    people.head(50).to_csv("people.csv", index=False, sep=";", quoting=1)
    assert "--delimiter ';'" in is_refused(folder, ("check", "people.csv", "--schema", "schema.toml"))
    for option in (";", "semicolon"):
        assert say("check", "people.csv", "--schema", "schema.toml", "--delimiter", option).code == 0
    draft = ("schema", "draft", "people.csv", "--target", "income", "--sensitive", "sex", "--out", "draft.toml")
    assert say(*draft).code == 0
    assert Schema.read("draft.toml").file.delimiter == ";"
    assert say("check", "people.csv", "--schema", "draft.toml").code == 0


def test_a_missing_schema_is_requested_with_a_command(folder, is_refused):
    sentence = is_refused(folder, ("train", "people.csv", "--aware", "--tolerance", "0.1", "--out", "results"))
    assert "fairveil schema draft people.csv --target COLUMN --sensitive COLUMN --out schema.toml" in sentence


# --- help and completion --------------------------------------------------------------------------------------------

TRAINING = (
    "delimiter encoding target sensitive delta constraint aware unaware model schema n-public ledger unit confidence"
)
OPTIONS = {
    "train": f"{TRAINING} epsilon tolerance method out json",
    "explain": f"{TRAINING} epsilon tolerance method json",
    "predict": "out key delimiter encoding json",
    "certify": "epsilon delta confidence ledger key delimiter encoding json",
    "frontier": f"{TRAINING} epsilons tolerances methods out json",
}


@pytest.mark.parametrize("command", OPTIONS)
def test_help_shows_every_option_and_an_example(say, command):
    text = say(command, "--help").out
    for option in OPTIONS[command].split():
        assert re.search(rf"--{option}\b", text), option
    assert f"Example: fairveil {command} " in " ".join(text.split())


@pytest.mark.parametrize("command", OPTIONS)
def test_the_example_of_the_help_runs(folder, models, strangers, say, command):
    strangers.to_csv("held_out.csv", index=False)
    strangers.head(50).to_csv("new.csv", index=False)
    Path("results").symlink_to(models / "aware") if command in ("predict", "certify") else None
    text = say(command, "--help").out
    example = re.search(r"Example: fairveil (.*?)\n\s*\n", text, re.DOTALL)[1]
    said = say(*shlex.split(example), "--json")
    assert (said.code, said.err) == (0, "")


@pytest.fixture
def completed(program: list[str]) -> Callable[[str], list[str]]:
    """Return what a shell offers after some words."""

    def call(text: str) -> list[str]:
        environment = {
            **os.environ,
            "_FAIRVEIL_COMPLETE": "complete_bash",
            "COMP_WORDS": text,
            "COMP_CWORD": str(len(text.split()) - 1),
        }
        result = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert result.stderr == ""
        return result.stdout.split()

    return call


def test_the_shell_completes(completed):
    assert completed("fairveil tr") == ["train"]
    assert "--tolerance" in completed("fairveil train adult --tol")
    assert completed("fairveil train adult --method dp2") == ["dp2dp"]


@pytest.mark.parametrize("name, sign", [("bash", "complete -o"), ("zsh", "#compdef"), ("fish", "complete --command")])
def test_the_completion_of_each_shell_can_be_shown(program, name, sign):
    # Without the second variable the shell is the one that runs the tests, whatever it is.
    environment = {**os.environ, "SHELL": f"/bin/{name}", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    result = subprocess.run(
        [*program, "--show-completion", name],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert sign in result.stdout and "_FAIRVEIL_COMPLETE" in result.stdout
