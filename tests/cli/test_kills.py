"""Kills and failing disks at chosen system calls of real processes; `make kills` strikes at every one of them."""

import shutil
from pathlib import Path

import pytest

from _support.kills import CALLS, SCENARIOS, Strike, make_folder, points_of, try_strike
from _support.processes import forkserver

N_KILLS = 5
"""For each command: every k-th of its changes to the disk."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace, which kills the processes, is not installed"),
]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to copy."""
    folder = tmp_path_factory.mktemp("template") / "folder"  # its index of ledgers lies beside it, not shared
    folder.mkdir()
    make_folder(folder)
    return folder


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kill_at_a_change_to_the_disk_loses_nothing(template, tmp_path, name):
    shutil.copytree(template, tmp_path / "first")
    (tmp_path / "notes").mkdir()
    points = points_of(forkserver(), SCENARIOS[name], tmp_path / "first", tmp_path / "notes")
    assert len(points) >= 3 and {call for call, _ in points} <= set(CALLS)
    n_killed = 0
    for call, number in points[:: max(1, len(points) // N_KILLS)]:
        blow = Strike(call, number)
        n_killed += try_strike(forkserver(), template, SCENARIOS[name], blow, tmp_path / f"{call} {number}").code == -9
    assert n_killed >= 3


@pytest.mark.parametrize("effect, call", [("error=ENOSPC", "write"), ("error=EIO", "fsync"), ("error=EIO", "rename")])
@pytest.mark.parametrize("name", ["train over a result", "draft", "approve"])
def test_a_disk_that_fails_once_loses_nothing(template, tmp_path, name, effect, call):
    for number in (1, 3):
        try_strike(forkserver(), template, SCENARIOS[name], Strike(call, number, effect), tmp_path / str(number))
