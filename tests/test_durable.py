"""Files that appear whole or not at all: a process dies before each of its changes to the disk, twice in a row."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from _support.processes import forkserver
from fairveil import _durable
from fairveil._durable import COMMIT, LOCK, locked, reading, recover, replace_together, replacing, stage_in
from fairveil.errors import BadStructureError

CHANGES = ("rename", "replace", "fsync", "mkdir", "unlink", "rmdir", "chmod")
DIED = 9
OLD = {"key": "old", "model/weights": "old", "summary": "old", "trace": "old", "mine": "mine"}
NEW = {"key": "new", "model/weights": "new", "summary": "new", "report": "new", "mine": "mine"}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def found(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def replace_all(folder: Path) -> None:
    with stage_in(folder) as stage:
        write(stage, {name: text for name, text in NEW.items() if name != "mine"})
        replace_together(folder, stage, ["trace"])


def approve(folder: Path) -> None:
    with replacing(folder / "summary") as new:
        new.write_text("new")


def die_before(number: int, work: Callable[[Path], None], folder: Path) -> None:
    """Do some work, and die without a word before a change to the disk, counted from 0."""
    n_done = 0

    def counted(change: Callable) -> Callable:
        def call(*arguments: object, **options: object) -> object:
            nonlocal n_done
            if n_done == number:
                os._exit(DIED)
            n_done += 1
            return change(*arguments, **options)

        return call

    for name in CHANGES:
        setattr(os, name, counted(getattr(os, name)))
    work(folder)


def dies(number: int, work: Callable[[Path], None], folder: Path) -> bool:
    """Return whether a process that does some work died before its change of this number, or had fewer to make."""
    process = forkserver().Process(target=die_before, args=(number, work, folder))
    process.start()
    process.join(60)
    assert process.exitcode in {0, DIED}
    return process.exitcode == DIED


def assert_never_mixed(folder: Path) -> None:
    """Assert what holds for those who read without a lock, too."""
    seen = {name: text for name, text in found(folder).items() if not name.startswith(".") and name != "mine"}
    assert len(set(seen.values())) <= 1


@pytest.mark.slow
def test_results_are_of_one_run_wherever_a_process_dies(tmp_path):
    number, outcomes = 0, []
    while True:
        folder = tmp_path / str(number)
        write(folder, OLD)
        if not dies(number, replace_all, folder):
            break
        assert_never_mixed(folder)
        recover(folder)
        assert found(folder) in (OLD, NEW)
        outcomes.append(found(folder) == NEW)
        number += 1
    assert found(folder) == NEW
    assert outcomes == sorted(outcomes) and {*outcomes} == {False, True}
    assert number > 20


@pytest.mark.slow
def test_a_recovery_that_dies_is_finished_by_the_next(tmp_path):
    for first in range(14, 30, 5):
        for second in range(8):
            folder = tmp_path / f"{first} {second}"
            write(folder, OLD)
            dies(first, replace_all, folder)
            dies(second, recover, folder)
            assert_never_mixed(folder)
            recover(folder)
            assert found(folder) in (OLD, NEW)


def test_one_file_is_whole_wherever_a_process_dies(tmp_path):
    number = 0
    while True:
        write(tmp_path, OLD)
        if not dies(number, approve, tmp_path):
            break
        assert (tmp_path / "summary").read_text() in {"old", "new"}
        recover(tmp_path)
        assert set(found(tmp_path)) == set(OLD)
        number += 1
    assert found(tmp_path) == OLD | {"summary": "new"}
    assert number >= 4


def test_the_stage_of_a_living_process_stays(tmp_path):
    with stage_in(tmp_path) as stage:
        write(stage, {"model": "mine"})
        recover(tmp_path)
        with stage_in(tmp_path) as other:
            assert other != stage
        assert found(stage) == {"model": "mine", LOCK: ""}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [".fairveil-1-abc", f".fairveil-{os.getpid()}-abc"], ids=["first", "own"])
def test_a_stage_that_nobody_locks_goes_whatever_its_name(tmp_path, name):
    write(tmp_path / name, {LOCK: "", "model/weights": "unfinished"})
    (tmp_path / ".fairveil-empty").mkdir()
    recover(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_hidden_folder_of_somebody_else_stays(tmp_path):
    write(tmp_path, {".fairveil-notes/diary": "mine", ".fairveil-file": "mine"})
    recover(tmp_path)
    assert len(found(tmp_path)) == 2


def test_a_failure_inside_leaves_the_old_results(tmp_path):
    write(tmp_path, OLD)
    with pytest.raises(KeyError), stage_in(tmp_path) as stage:
        write(stage, {"model/weights": "new"})
        raise KeyError
    with pytest.raises(KeyError), replacing(tmp_path / "summary") as new:
        new.write_text("new")
        raise KeyError
    assert found(tmp_path) == OLD


def test_an_interruption_after_the_commit_is_finished(tmp_path, monkeypatch):
    write(tmp_path, OLD)
    rename, n_calls = Path.rename, []

    def interrupted(path: Path, target: Path) -> Path:
        n_calls.append(path)
        if len(n_calls) == 4:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_all(tmp_path)
    assert found(tmp_path) == NEW


RECORDS = [b"", b"[]", b"{}", b"[" * 100_000, b'{"new": ["../x"], "obsolete": []}', b'{"new": [".."], "obsolete": []}']


@pytest.mark.parametrize("record", [*RECORDS, json.dumps({"new": [["x"]], "obsolete": []}).encode()], ids=range(7))
def test_a_forged_record_is_refused(tmp_path, record):
    write(tmp_path / "folder" / ".fairveil-x", {LOCK: "", "x": "new"})
    (tmp_path / "folder" / ".fairveil-x" / COMMIT).write_bytes(record)
    write(tmp_path, {"x": "old"})
    with pytest.raises(BadStructureError, match=r"remove .*\.fairveil-x"):
        recover(tmp_path / "folder")
    assert (tmp_path / "x").read_text() == "old"


def test_who_waits_too_long_gets_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(_durable, "PATIENCE_SECONDS", 0.0)
    with reading(tmp_path), reading(tmp_path), pytest.raises(BadStructureError, match="another process"):
        recover(tmp_path)
    with locked(tmp_path), pytest.raises(BadStructureError, match="another process"), reading(tmp_path):
        pass


def test_a_replaced_file_keeps_its_permissions_and_its_links(tmp_path):
    write(tmp_path, {"deep/file": "old"})
    (tmp_path / "deep" / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("deep/file")
    with replacing(tmp_path / "link") as new:
        new.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "deep" / "file").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "deep" / "file").stat().st_mode) == 0o640
