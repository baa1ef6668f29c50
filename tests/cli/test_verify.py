"""`fairveil verify`: every file of a result, changed by a byte or taken from another run, is named."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from fairveil.cli.verify import EMBEDDED
from fairveil.persistence import model_digest
from fairveil.privacy.journal import HEADER, link
from fairveil.privacy.known_data import content_of
from fairveil.privacy.ledger import Ledger

pytestmark = pytest.mark.slow

LEDGER = "people.csv.ledger.jsonl"
VERIFY = ("verify", "parity", "--ledger", LEDGER)
STATED = ("--owner", "Ann & <b>Co</b>", "--purpose", "pre-selection", "--card")
FILES = ("model/model.json", "model/params.safetensors", "report.html", "key", "model-card.md", "summary.json")
NO_DIGESTS = {"files": ["model", "summary.json"], "version": "0", "plan": [], "statement": {}, "epsilon_spent": 1}


@pytest.fixture(scope="module")
def verified(models, inside, tmp_path_factory, state_for):
    """The results of several runs with one ledger, one of them with a key and a card; change copies."""
    place = tmp_path_factory.mktemp("verified") / "all"
    shutil.copytree(models, place)
    ways = {"parity": ("--aware", "--method", "parity"), "raco": ("--unaware", "--method", "raco")}
    for name, options in ways.items():
        asked = ("train", "people.csv", "--schema", "schema.toml", "--epsilon", "4", "--tolerance", "0.2")
        said = inside(*asked, "--ledger", LEDGER, *options, *STATED, "--out", name, cwd=place)
        assert (said.code, said.err) == (0, "")
    return place


@pytest.fixture
def copied(verified, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(verified, tmp_path / "copy"))
    return Path.cwd()


def change(path: Path) -> None:
    """Change the last byte but one."""
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


def rewrite_ledger(keep) -> None:
    """Write a sound ledger of some lines of the old one, with its head: what only its owner should be able to do."""
    lines, chains, text = [json.loads(line) for line in Path(LEDGER).read_text().splitlines()[1:]], [], HEADER
    for line in filter(keep, lines):
        line.pop("chain")
        chains.append(link(chains, line))
        text += json.dumps({**line, "chain": chains[-1]}, sort_keys=True).encode() + b"\n"
    Path(LEDGER).write_bytes(text)
    Path(f"{LEDGER}.head").write_text(json.dumps({"n_lines": len(chains), "chain": chains[-1]}))


def test_what_was_written_together_is_verified(copied, say):
    for name in ("aware", "plain", "parity", "raco"):
        said = say("verify", name, "--ledger", LEDGER, "--data", "people.csv")
        assert (said.code, said.err) == (0, "") and "belong together" in said.out
        assert "sign summary.json" in said.out  # what digests do not show
    facts = json.loads(say(*VERIFY, "--json").out)
    assert facts["verified"] and set(facts["checks"]) == {
        "model", "report.html", "key", "model-card.md", "summary.json", "ledger",
    }  # fmt: skip
    assert facts["not_checked"] == ["the data file (--data FILE)"]
    traced = json.loads(say("verify", "raco", "--ledger", LEDGER, "--json").out)
    assert "constraint_trace.csv" in traced["checks"]


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_is_noticed_and_named(copied, is_refused, name):
    change(copied / "parity" / name)
    sentence = is_refused(copied, VERIFY)
    assert name.split("/")[0] in sentence
    others = {one.split("/")[0] for one in FILES} - {name.split("/")[0]}
    if name != "summary.json":
        assert not any(f"{other}: " in sentence for other in others)
        assert name.split("/")[0] in is_refused(copied, ("verify", "parity", "--no-ledger"))


@pytest.mark.parametrize("name", ["model", "report.html", "key", "model-card.md", "constraint_trace.csv"])
def test_a_missing_file_is_named(copied, is_refused, name):
    run = "raco" if name == "constraint_trace.csv" else "parity"
    shutil.move(copied / run / name, copied / "elsewhere")
    assert f"{name}: missing" in is_refused(copied, ("verify", run, "--ledger", LEDGER))


@pytest.mark.parametrize("name", ["model", "report.html", "model-card.md", "summary.json"])
def test_a_file_of_another_run_is_noticed(copied, is_refused, name):
    place = copied / "parity" / name
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    other = copied / "raco" / name
    shutil.copytree(other, place) if other.is_dir() else shutil.copy(other, place)
    sentence = is_refused(copied, VERIFY)
    assert ("model" if name == "summary.json" else name) in sentence


def test_a_file_that_was_not_written_with_the_summary_is_noticed(copied, is_refused):
    shutil.copy("parity/model-card.md", "plain/model-card.md")
    Path("raco/model/note.txt").write_text("mine")
    assert "model-card.md: not written with this summary" in is_refused(copied, ("verify", "plain", "--ledger", LEDGER))
    assert "nothing else" in is_refused(copied, ("verify", "raco", "--ledger", LEDGER))


def test_a_report_that_shows_another_summary_is_noticed(copied, is_refused):
    """A forger who can write the folder, but neither the ledger nor what the report embeds, is found out twice."""
    shutil.copy("raco/report.html", "parity/report.html")
    summary = json.loads(Path("parity/summary.json").read_text())
    summary["digests"]["report.html"] = hashlib.sha256(Path("parity/report.html").read_bytes()).hexdigest()
    Path("parity/summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    assert "report.html: shows another summary" in is_refused(copied, ("verify", "parity", "--no-ledger"))
    assert "its digest is not on the ledger" in is_refused(copied, VERIFY)


# --- the ledger -------------------------------------------------------------------------------------------------------


def test_a_ledger_that_was_cut_is_noticed(copied, say, is_refused):
    lines = Path(LEDGER).read_bytes().splitlines(keepends=True)
    Path(LEDGER).write_bytes(b"".join(lines[:-1]))
    assert "ends before the last entry" in is_refused(copied, VERIFY)  # by its head
    Path(LEDGER).write_bytes(b"".join(lines[:3]))
    Path(f"{LEDGER}.head").unlink()
    assert "cut off at its end" in is_refused(copied, VERIFY)  # by the head in the summary


def test_a_ledger_without_the_note_of_the_summary_is_noticed(copied, say, is_refused):
    digest = hashlib.sha256(Path("parity/summary.json").read_bytes()).hexdigest()
    rewrite_ledger(lambda line: True)
    assert say(*VERIFY).code == 0
    rewrite_ledger(lambda line: line.get("summary") != digest)
    assert "summary.json: changed" in is_refused(copied, VERIFY)
    rewrite_ledger(lambda line: line["kind"] != "data")
    assert "ledger: " in is_refused(copied, VERIFY)


def test_the_ledger_must_be_named_or_declined(copied, say, is_refused):
    assert "--ledger FILE" in is_refused(copied, ("verify", "parity"))
    said = say("verify", "parity", "--no-ledger")
    assert said.code == 0 and "not checked   the ledger" in said.out
    assert "leave it out" in is_refused(copied, (*VERIFY, "--no-ledger"))
    assert "Expected a ledger" in is_refused(copied, ("verify", "parity", "--ledger", "schema.toml"))
    shutil.copy(LEDGER, "parity/ledger.jsonl")  # where known data sets have it
    assert say("verify", "parity").code == 0


def test_a_ledger_without_its_head_is_said(copied, say):
    Path(f"{LEDGER}.head").unlink()
    said = say(*VERIFY)
    assert said.code == 0 and "not checked   whether the ledger was cut" in said.out


# --- the data file ----------------------------------------------------------------------------------------------------


def test_the_data_file_is_recognized(copied, say, is_refused):
    shutil.copy("people.csv", "copy.csv")
    assert say(*VERIFY, "--data", "copy.csv").code == 0
    change(copied / "copy.csv")
    assert "data: copy.csv is not the file" in is_refused(copied, (*VERIFY, "--data", "copy.csv"))
    assert "which is no file" in is_refused(copied, (*VERIFY, "--data", "nowhere.csv"))


def test_the_reference_to_the_data_tells_nothing_without_the_ledger(verified):
    """It is keyed by the ledger's salt: hashes of the file, plain or of the ledger's digest, are not it."""
    summary = json.loads((verified / "parity" / "summary.json").read_text())
    reference, data = summary["provenance"]["data_reference"], verified / "people.csv"
    (fingerprint,) = Ledger(verified / LEDGER).state().fingerprints
    assert reference == fingerprint.reference
    shown = "".join(path.read_text(errors="replace") for path in (verified / "parity").glob("*.*"))
    assert fingerprint.salt not in shown and fingerprint.digest not in shown
    content = content_of(data)
    for guess in (data.read_bytes(), content, content.hex().encode(), fingerprint.digest.encode()):
        assert not hashlib.sha256(guess).hexdigest().startswith(reference)


# --- hostile folders --------------------------------------------------------------------------------------------------


def test_strange_folders_are_refused_in_one_sentence(copied, is_refused):
    Path("file").write_text("x")
    Path("empty").mkdir()
    for name in ("file", "empty", "nowhere"):
        assert "Expected" in is_refused(copied, ("verify", name))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, json.dumps(NO_DIGESTS).encode(), b'{"files": 3}',
     json.dumps(NO_DIGESTS | {"digests": {"../../etc/passwd": "0"}, "model_digest": "0",
                              "provenance": {"data_reference": None}}).encode()],
)  # fmt: skip
def test_a_summary_that_is_none_is_refused(copied, is_refused, content):
    Path("parity/summary.json").write_bytes(content)
    assert "Expected a summary.json that states digests" in is_refused(copied, VERIFY)


@pytest.mark.parametrize("name", ["report.html", "model", "model/params.safetensors", "key"])
def test_links_are_no_results(copied, is_refused, name):
    place = copied / "parity" / name
    shutil.move(place, copied / "elsewhere")
    place.symlink_to(copied / "elsewhere")
    assert "a link" in is_refused(copied, VERIFY)


def test_pipes_and_huge_files_are_not_read(copied, is_refused):
    Path("parity/report.html").unlink()
    os.mkfifo("parity/report.html")
    os.truncate("parity/model/model.json", 2**40)  # a sparse file of a tebibyte
    said = is_refused_without_reading(copied, is_refused)
    assert "report.html: cannot be read" in said and "model: cannot be read" in said


def is_refused_without_reading(folder, is_refused):
    """As `is_refused`, for a folder whose files nobody can read as a whole."""
    kept = folder / "parity"
    return is_refused(folder / "raco", ("verify", kept, "--ledger", folder / LEDGER))


# --- where digests stand ----------------------------------------------------------------------------------------------


def test_digest_of_the_model_stands_in_every_kind_of_evidence(copied, say, strangers):
    digest = model_digest(Path("parity/model"))
    summary, page = json.loads(Path("parity/summary.json").read_text()), Path("parity/report.html").read_bytes()
    assert summary["model_digest"] == digest == json.loads(EMBEDDED.search(page)[1])["model_digest"]
    assert digest in page.decode() and digest in Path("parity/model-card.md").read_text()
    strangers.to_csv("strangers.csv", index=False)
    certify = ("certify", "parity/model", "strangers.csv", "--epsilon", "2")
    assert json.loads(say(*certify, "--json").out)["model_digest"] == digest
    assert f"model      SHA-256 {digest}" in say(*certify).out


def test_owner_and_purpose_are_shown_as_they_were_typed(verified):
    summary = json.loads((verified / "parity" / "summary.json").read_text())
    assert (summary["provenance"]["owner"], summary["provenance"]["purpose"]) == ("Ann & <b>Co</b>", "pre-selection")
    page = (verified / "parity" / "report.html").read_text()
    assert "Ann &amp; &lt;b&gt;Co&lt;/b&gt;" in page and "<b>Co</b>" not in page
    assert json.loads((verified / "plain" / "summary.json").read_text())["provenance"]["owner"] is None
