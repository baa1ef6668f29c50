"""`fairveil verify`: whether the files of a result belong together, and are as they were written."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from fairveil._durable import reading
from fairveil._reading import read_bounded
from fairveil.cli._files import LEDGER_NAME, SUMMARY
from fairveil.cli._terminal import say
from fairveil.cli.ledger import MAX_SUMMARY_BYTES, check_ledger, existing_ledger, ledger_cautions
from fairveil.cli.train import CARD, KEY, REPORT, RESULTS
from fairveil.errors import BadStructureError, DamagedLedgerError, FairveilError, InvalidParameterError
from fairveil.persistence import FACTS, WEIGHTS, model_digest
from fairveil.privacy.known_data import contents_of, fitting
from fairveil.privacy.ledger import RESULT, Ledger
from fairveil.report.evidence_text import verification_text
from fairveil.report.headlines import embedded_summary

EMBEDDED = re.compile(rb'<script type="application/json" id="summary">(.*?)</script>', re.DOTALL)
"""Where a report holds the summary that it shows."""

MOST_FILE_BYTES = 2**30
"""A larger file is no result of a training."""

CHANGED = "not the one that was written with this summary"
WORDS = {
    "model": "the digest is the one in the summary",
    REPORT: "the digest is the one in the summary, and the report shows this summary",
    CARD: "the digest is the one in the summary",
    KEY: "the digest is the one in the summary",
}


def verify_results(folder: Path, ledger: Path | None, no_ledger: bool, data: Path | None, as_json: bool) -> None:
    """Compare every file of a result with the digests in its summary, and the summary with the ledger."""
    if no_ledger and (ledger is not None or data is not None):
        raise InvalidParameterError("Expected no --ledger and no --data with --no-ledger, got one; leave it out.")
    if not folder.is_dir():
        raise BadStructureError(f"Expected a folder that 'fairveil train' wrote, got {folder}, which is none.")
    with reading(folder):
        content, summary = _summary(folder)
        problems = _problems_of_files(folder, summary)
        checks = {name: WORDS.get(name, WORDS["model"]) for name in summary["files"] if name != SUMMARY}
        not_checked = []
        if no_ledger:
            not_checked.append("the ledger, and with it whether summary.json itself was changed (--no-ledger)")
        else:
            path = folder / LEDGER_NAME if ledger is None else ledger
            if ledger is None and not os.path.lexists(path):
                raise BadStructureError(
                    f"Expected the ledger of this run, got none in {folder}; name it with --ledger FILE, or check the "
                    "other files alone with --no-ledger."
                )
            found = existing_ledger(path)
            problems |= _problems_with_ledger(folder, found, hashlib.sha256(content).hexdigest(), summary, data)
            checks |= {SUMMARY: "its digest is on the ledger", "ledger": "unbroken, and it continues from the summary"}
            if data is None:
                not_checked.append("the data file (--data FILE)")
            else:
                checks["data"] = "the file that the ledger and the summary refer to"
            not_checked += ledger_cautions(found)
            if not found.has_head_file:
                not_checked.append("whether the ledger was cut after this run: it has no head beside it")
    if problems:
        raise BadStructureError(
            f"Expected results that belong together in {folder}, got "
            f"{'; '.join(f'{name}: {problem}' for name, problem in problems.items())}; restore them from a backup, or "
            "do not rely on them."
        )
    facts = {"folder": str(folder), "verified": True, "checks": checks, "not_checked": not_checked}
    say(as_json, facts, verification_text(facts))


def _summary(folder: Path) -> tuple[bytes, dict[str, Any]]:
    """Return the summary of a result, as it was written and as facts; refuse what no training wrote."""
    place = folder / SUMMARY
    content = b""
    if not place.is_symlink():
        content = read_bounded(place, "the summary.json of a run", MAX_SUMMARY_BYTES)
    summary: Any = None
    try:
        summary = json.loads(content)
        files, digests = summary["files"], summary["digests"]
        is_sound = isinstance(digests, dict) and isinstance(files, list) and isinstance(summary["model_digest"], str)
        is_sound &= all(name in RESULTS for name in (*files, *digests)) and {"model", SUMMARY} <= {*files}
        is_sound &= isinstance(summary["provenance"]["data_reference"], str | None)
    except (ValueError, LookupError, TypeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise BadStructureError(
            f"Expected a summary.json that states digests, got something else in {folder}; name a folder that "
            "'fairveil train' of this version wrote."
        )
    return content, summary


def _problems_of_files(folder: Path, summary: dict[str, Any]) -> dict[str, str]:
    """Return by its name what is wrong with each file beside a summary."""
    problems = {}
    for name in RESULTS:
        place, is_listed = folder / name, name in summary["files"]
        if name == SUMMARY or not (is_listed or os.path.lexists(place)):
            continue
        if not is_listed:
            problems[name] = "not written with this summary"
        elif place.is_symlink() or any(one.is_symlink() for one in (place / FACTS, place / WEIGHTS)):
            problems[name] = "a link, which no training writes"
        elif not os.path.lexists(place):
            problems[name] = "missing"
        else:
            try:
                problem = _problem_of(place, summary)
            except FairveilError as refusal:
                problem = f"cannot be read ({str(refusal).rstrip('.')})"
            if problem:
                problems[name] = problem
    return problems


def _problem_of(place: Path, summary: dict[str, Any]) -> str:
    """Return what is wrong with a file or the model folder, nothing if it is the one that was written."""
    if place.name == "model":
        names = {path.name for path in place.iterdir()} if place.is_dir() else set()
        if names != {FACTS, WEIGHTS}:
            return "not a folder with the files of a model and nothing else"
        return "" if model_digest(place) == summary["model_digest"] else CHANGED
    content = read_bounded(place, "a result of a training", MOST_FILE_BYTES)
    if hashlib.sha256(content).hexdigest() != summary["digests"].get(place.name):
        return CHANGED
    if place.name == REPORT:
        shown, found = {name: value for name, value in summary.items() if name != "digests"}, EMBEDDED.search(content)
        try:
            is_same = found is not None and json.loads(found[1]) in (shown, embedded_summary(shown))
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):  # another form
            is_same = False
        return "" if is_same else "shows another summary"
    return ""


def _problems_with_ledger(
    folder: Path, ledger: Ledger, digest: str, summary: dict[str, Any], data: Path | None
) -> dict[str, str]:
    """Return what does not fit the ledger: its own lines, the summary, the data file."""
    reference, state = summary["provenance"]["data_reference"], ledger.state()
    try:
        check_ledger(ledger, folder / SUMMARY)
    except DamagedLedgerError:
        return {"ledger": "without the lines of that time: cut off at its end, or that of another run"}
    problems = {}
    if not any(line["kind"] == RESULT and line.get("summary") == digest for line in state.contents.lines):
        problems[SUMMARY] = "changed, for its digest is not on the ledger"
    if reference is not None and reference not in [one.reference for one in state.fingerprints]:
        problems["data"] = "the ledger does not note the data that the summary refers to"
    if data is not None:
        contents = contents_of(data)
        if not contents:
            raise BadStructureError(
                f"Expected the data file that was trained on, got {data}, which is no file, or a known data set "
                "that has no fingerprint; leave out --data."
            )
        if reference not in [one.reference for one in fitting(state.fingerprints, contents[:1])]:
            problems["data"] = f"{data} is not the file that was trained on"
    return problems
