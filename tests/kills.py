"""Kill real processes before every change to the disk, let every write and sync fail once, and count what breaks.

Usage: python tests/kills.py [--every K]    (`make kills`; needs strace)

Strikes each command of `_support.kills.SCENARIOS` and checks after each strike that the ledger shows every model that
reached the disk, that results are whole and of one run, and that the same command works again. Prints one JSON object.
"""

import argparse
import json
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from _support.kills import SCENARIOS, Strike, make_folder, points_of, try_strike
from _support.processes import forkserver

ERRORS = {"write": "error=ENOSPC", "fsync": "error=EIO", "rename": "error=EIO"}
"""How a disk fails, by what fails."""


def strike_all(template: Path, place: Path, name: str, every: int) -> dict[str, Any]:
    """Strike a command at every k-th change to the disk, and return the counts."""
    words, notes = SCENARIOS[name], place / "notes"
    notes.mkdir(parents=True)
    shutil.copytree(template, place / "first")
    points = points_of(forkserver(), words, place / "first", notes)
    blows = [Strike(call, number) for call, number in points]
    blows += [Strike(call, number, ERRORS[call]) for call, number in points if call in ERRORS]
    counts: dict[str, Any] = {"points": len(points), "killed": 0, "failing_disk": 0, "not_struck": 0, "failures": []}
    for blow in blows[::every]:
        is_kill = "SIGKILL" in blow.effect
        try:
            code = try_strike(forkserver(), template, words, blow, place / "struck").code
        except AssertionError as failure:
            line = traceback.extract_tb(failure.__traceback__)[-1].line
            counts["failures"].append(f"{blow.call} {blow.number}, {blow.effect}: {line} {failure}"[:400])
            shutil.rmtree(place / "struck", ignore_errors=True)
            code = -9 if is_kill else 2
        counts["not_struck" if is_kill and code == 0 else "killed" if is_kill else "failing_disk"] += 1
    return counts


def main() -> None:
    """Strike every command, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="strike at every k-th change only")
    every = parser.parse_args().every
    with tempfile.TemporaryDirectory() as temporary:
        template = Path(temporary, "template")
        template.mkdir()
        make_folder(template)
        commands = {name: strike_all(template, Path(temporary, name), name, every) for name in SCENARIOS}
    totals = {key: sum(one[key] for one in commands.values()) for key in ("points", "killed", "failing_disk")}
    n_failures = sum(len(one["failures"]) for one in commands.values())
    print(json.dumps(totals | {"n_failures": n_failures, "commands": commands}, indent=1))
    sys.exit(bool(n_failures))


if __name__ == "__main__":
    main()
