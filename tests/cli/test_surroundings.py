"""Full disks, closed or ASCII streams, strange names, little memory: one sentence, exit codes 0, 1 and 2 only.

What was paid for is kept where it can be, and no sentence carries a private number or steers a terminal.
"""

import errno
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairveil import FairClassifier
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError, ToleranceNotMetWarning
from fairveil.privacy.ledger import Ledger

LEDGER = "people.csv.ledger.jsonl"
TABLE = ("people.csv", "--schema", "schema.toml")
PLAIN = ("--method", "dpsgd", "--unaware")
TRAIN = ("train", *TABLE, *PLAIN, "--out", "results")
LONG = "n" * 300
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
ESCAPES = ("\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\u2028", "\x7f")

pytestmark = pytest.mark.slow


def assert_one_sentence(err: str) -> None:
    assert err.startswith("fairveil: ") and err.endswith(".\n")
    assert err.count("\n") == 1 and "Traceback" not in err


def failing(problem: BaseException) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise problem

    return fail


# --- what goes wrong inside -------------------------------------------------------------------------------------------

PROBLEMS = {
    "memory": MemoryError("Unable to allocate 115. MiB for an array with shape (603000, 25) and data type float64"),
    "recursion": RecursionError("maximum recursion depth of 1000 exceeded"),
    "encoding": UnicodeDecodeError("utf-8", b"Ada Lovelace 1815", 0, 1, "invalid start byte"),
    "input and output": OSError(errno.EIO, os.strerror(errno.EIO), "people.csv"),
    "no locks": OSError(errno.ENOLCK, os.strerror(errno.ENOLCK)),
    "an error without a number": OSError("row 31415 is odd"),
}


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=list(PROBLEMS))
def test_a_failure_is_one_sentence_without_private_numbers(folder, is_refused, monkeypatch, problem):
    monkeypatch.setattr(FairClassifier, "fit_file", failing(problem))
    sentence = is_refused(folder, TRAIN)
    assert not any(sign.isdigit() for sign in sentence.replace("UTF-8", ""))
    assert "Ada" not in sentence and "budget already debited remains spent" in sentence


def test_warnings_of_other_packages_are_not_shown(folder, say, monkeypatch):
    fit = FairClassifier.fit_file

    def warned(*arguments: object, **options: object) -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("Columns (Ada Lovelace) have mixed types", UserWarning, stacklevel=1)
            warnings.warn("The released rule \x1b breaks a bound", ToleranceNotMetWarning, stacklevel=1)
        return fit(*arguments, **options)

    monkeypatch.setattr(FairClassifier, "fit_file", warned)
    said = say(*TRAIN)
    assert (said.code, said.err) == (0, "fairveil: The released rule \\x1b breaks a bound\n")


# --- full disks -------------------------------------------------------------------------------------------------------


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """Let every write beyond a size fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_without_space_for_the_report_the_model_is_kept(folder, say):
    with files_of_at_most(40_000):  # more than the summary, less than the report
        said = say(*TRAIN)
    assert said.code == 2
    assert_one_sentence(said.err)
    assert "report.html" in said.err and "the privacy budget is spent" in said.err
    assert sorted(path.name for path in Path("results").iterdir()) == ["model", "summary.json"]
    FairClassifier.load("results/model")
    assert len(Ledger(LEDGER).entries) == 1
    assert say(*TRAIN).code == 0
    assert Path("results/report.html").exists()


@pytest.mark.parametrize("way", [PLAIN, ("--method", "dp2dp", "--aware", "--tolerance", "0.2")], ids=["plain", "key"])
def test_without_space_for_the_results_the_model_is_kept_elsewhere(folder, say, monkeypatch, way, contents):
    (folder / "elsewhere").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "elsewhere"))
    monkeypatch.setattr("fairveil.cli.train.replace_together", failing(FULL))
    said = say("train", *TABLE, *way, "--out", "results")
    assert said.code == 2
    assert_one_sentence(said.err)
    assert "No space left" in said.err and "the privacy budget is spent" in said.err
    (kept,) = (folder / "elsewhere").iterdir()
    assert str(kept) in said.err
    FairClassifier.load(kept / "model")
    assert not Path("results").exists()
    assert len(Ledger(LEDGER).entries) == 1


def test_without_any_space_the_loss_is_stated(folder, say, monkeypatch):
    monkeypatch.setattr("fairveil.cli.train.FairClassifier.save", failing(FULL))
    said = say(*TRAIN)
    assert said.code == 2 and "the model is lost" in said.err
    assert_one_sentence(said.err)


def test_a_paid_draft_is_kept_elsewhere(folder, say, monkeypatch):
    (folder / "elsewhere").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "elsewhere"))
    write = Schema.write

    def full_here(schema: Schema, path: Path) -> None:
        with monkeypatch.context() as patch:
            if "elsewhere" not in str(path):
                patch.setattr("fairveil._durable.sync", failing(FULL))
            write(schema, path)

    monkeypatch.setattr(Schema, "write", full_here)
    asked = ("schema", "draft", "people.csv", "--target", "income", "--sensitive", "sex", "--out", "draft.toml")
    said = say(*asked, "--epsilon", "5")
    assert said.code == 2
    assert_one_sentence(said.err)
    (kept,) = (folder / "elsewhere").glob("*/draft.toml")
    assert str(kept.parent) in said.err and Schema.read(kept).target.column == "income"
    assert not Path("draft.toml").exists()


def test_a_schema_that_cannot_be_written_stays_as_it_was(folder, is_refused, monkeypatch):
    text = Path("schema.toml").read_text().replace("[target]", "private_draft = true\n[target]", 1)
    Path("schema.toml").write_text(text)
    monkeypatch.setattr("fairveil._durable.sync", failing(FULL))
    assert "No space left" in is_refused(folder, ("schema", "approve", "schema.toml", "--yes"))


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def certified(folder: Path, models: Path, strangers) -> tuple[str, ...]:
    """What certifies a model on other people."""
    shutil.copytree(models / "plain" / "model", folder / "model")
    strangers.to_csv("strangers.csv", index=False)
    return ("certify", "model", "strangers.csv", "--epsilon", "1")


def test_a_full_standard_output(folder, say, monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        said = say(*TRAIN)
    assert said.code == 2 and "No space left on device on standard output" in said.err
    assert_one_sentence(said.err)
    assert Path("results/report.html").exists()


def test_a_paid_answer_is_not_lost_with_standard_output(certified, say, monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        said = say(*certified)
    answer, sentence = said.err[: said.err.index("fairveil: ")], said.err[said.err.index("fairveil: ") :]
    assert said.code == 2 and answer.startswith("Certificate of model")
    assert_one_sentence(sentence)


def test_names_that_ascii_cannot_spell_are_escaped(folder, say, monkeypatch, people, facts):
    renamed = {"Female": "größer", "Male": "ж"}
    people.replace({"sex": renamed}).to_csv("people.csv", index=False)
    schema = Path("schema.toml")
    for old, new in renamed.items():
        schema.write_text(schema.read_text().replace(f'"{old}"', f'"{new}"'))
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    said = say("train", *TABLE, "--method", "dp2dp", "--aware", "--tolerance", "0.2", "--out", "größe")
    assert (said.code, said.err) == (0, "")
    assert rb"gr\xf6\xdfe" in written.getvalue()


@pytest.mark.parametrize("words", ["> /dev/full", ">&-", "2>&- >&- <&-", "| true"])
def test_a_real_process_keeps_to_the_exit_codes(program, words):
    command = f"set -o pipefail; {' '.join(program)} train --help {words}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == {"> /dev/full": 2, "| true": 1}.get(words, 0)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("train", LONG, *PLAIN),
        ("train", "people.csv", "--schema", LONG, *PLAIN),
        (*TRAIN[:-1], LONG),
        (*TRAIN, "--ledger", LONG),
        ("ledger", "show", LONG),
        ("schema", "approve", LONG, "--yes"),
        ("schema", "draft", "people.csv", "--target", "income", "--sensitive", "sex", "--out", LONG),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_a_name_that_is_too_long(folder, is_refused, words):
    assert "File name too long" in is_refused(folder, words)


@pytest.mark.parametrize(
    "words",
    [
        (*TRAIN[:-1], "loop"),
        (*TRAIN[:-1], "loop/results"),
        (*TRAIN, "--ledger", "loop"),
        ("frontier", *TABLE, "--methods", "dpsgd", "--unaware", "--out", "loop"),
        ("predict", "loop", "people.csv", "--out", "d.csv"),
        ("predict", "loop/model", "people.csv", "--out", "d.csv"),
        ("certify", "loop", "people.csv", "--epsilon", "1"),
        ("schema", "approve", "loop", "--yes"),
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_a_link_that_leads_to_itself(folder, say, words):
    Path("loop").symlink_to("loop")
    said = say(*words)
    assert said.code == 2
    assert_one_sentence(said.err.removeprefix("3 points; all are released from the same people.\n"))
    assert not Path(LEDGER).exists()


def test_a_current_folder_that_is_gone(folder, say, monkeypatch):
    (folder / "gone").mkdir()
    monkeypatch.chdir(folder / "gone")
    (folder / "gone").rmdir()
    said = say("train", "../people.csv", "--schema", "../schema.toml", *PLAIN, "--out", "results")
    assert said.code == 2
    assert_one_sentence(said.err)


@pytest.mark.parametrize("sign", ESCAPES, ids=ascii)
def test_no_name_steers_the_terminal(folder, say, sign):
    name = f"people{sign}[31m.csv"
    os.rename("people.csv", name)
    for words in (("train", name, *TRAIN[2:]), ("predict", "results/model", name, "--out", f"d{sign}.csv")):
        said = say(*words)
        assert (said.code, said.err) == (0, "")
        assert ascii(sign)[1:-1] in said.out and sign not in said.out
    for words in (("train", f"no{name}", *PLAIN), ("ledger", "show", f"no{name}"), ("train", name, f"--{sign}")):
        said = say(*words)
        assert said.code == 2 and sign not in said.err
        assert_one_sentence(said.err)


def test_a_name_that_is_not_utf_8_is_refused_and_escaped(folder, say):
    os.rename("people.csv", "people\udcff.csv")
    said = say("train", "people\udcff.csv", *TRAIN[2:])
    assert said.code == 2 and "UTF-8" in said.err and "\udcff" not in said.err
    assert_one_sentence(said.err)


def test_no_column_steers_the_terminal(folder, say, people):
    people.rename(columns={"age": "a\x1b]0;title\x07ge"}).to_parquet("people.parquet")
    said = say("train", "people.parquet", "--schema", "schema.toml", *PLAIN, "--out", "results")
    assert said.code == 2 and not any(sign in said.err for sign in ESCAPES)
    assert_one_sentence(said.err)


# --- refused before it is paid ----------------------------------------------------------------------------------------

WAYS = {
    "train": ("train", *TABLE, "--tolerance", "0.1", "--method", "dp2dp", "--aware", "--out", "results"),
    "frontier": ("frontier", *TABLE, "--tolerances", "0.1", "--methods", "dp2dp", "--aware", "--out", "results"),
}


@pytest.mark.parametrize("words", WAYS.values(), ids=list(WAYS))
@pytest.mark.parametrize("options", [("--holdout", "0.0001"), ("--n-public", "4")], ids=" ".join)
def test_few_held_out_people_are_no_reason_to_refuse_after_paying(folder, say, words, options):
    assert (say(*words, *options).code == 2) == (not Path(LEDGER).exists())


@pytest.mark.parametrize("words", WAYS.values(), ids=list(WAYS))
def test_what_cannot_be_forecast_is_refused_before_it_is_paid(folder, is_refused, monkeypatch, words):
    for module in ("train", "frontier"):
        monkeypatch.setattr(f"fairveil.cli.{module}.guarantee_of", failing(InvalidParameterError("Expected more.")))
    assert "Expected more" in is_refused(folder, words)


@pytest.mark.parametrize("confidence", ["0.9999999999999999", "0.9999999999999"])
def test_a_confidence_without_finite_limits_is_refused_before_it_is_paid(folder, is_refused, confidence):
    assert "confidence" in is_refused(folder, (*TRAIN, "--confidence", confidence))


def test_with_json_a_failure_is_json(folder, say, monkeypatch):
    monkeypatch.setattr(FairClassifier, "fit_file", failing(PROBLEMS["memory"]))
    said = say(*TRAIN, "--json")
    assert said.code == 2 and "memory" in json.loads(said.err)["error"]
