"""Write the golden files anew, all of them or those of the named kinds.

    python tests/contract/make_golden.py
    python tests/contract/make_golden.py public_names estimator_parameters

What is released is noisy, so every shape is the common one of several runs. Check the difference before it is
committed: shapes and plans may grow, but nothing may go away or change.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from _support.contract_answers import NAMES, PLANS, SHAPES, Door
from _support.contract_shapes import level, shape_of

GOLDEN = Path(__file__).parent / "golden"
RUNS = 6


def write(name: str, content: Any) -> None:
    (GOLDEN / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def doors(root: Path) -> list[Door]:
    folders = [root / f"run-{run}" for run in range(RUNS)]
    for folder in folders:
        folder.mkdir()
    return [Door(folder) for folder in folders]


def write_shapes(kind: str, runs: list[Door]) -> None:
    """Write the shapes of a kind of answers, one file for all cases that have the same."""
    for old in [*GOLDEN.glob(f"shape-{kind}.json"), *GOLDEN.glob(f"shape-{kind}-*.json")]:
        old.unlink()
    groups: dict[str, list[str]] = {}
    shapes = {case: shape_of([answer(door) for door in runs]) for case, answer in SHAPES[kind].items()}
    level(list(shapes.values()))
    for case, shape in shapes.items():
        groups.setdefault(json.dumps(shape), []).append(case)
    for text, cases in groups.items():
        own = f"-{'+'.join(cases)}".replace(" ", "_") if len(groups) > 1 else ""
        write(f"shape-{kind}{own}", {"kind": kind, "cases": cases, "shape": json.loads(text)})


def write_plans(method: str, door: Door) -> None:
    """Write what is explained to the last digit."""
    cases = {
        case: {"options": list(options), "answer": door.explained_exactly(method, case)}
        for case, options in PLANS[method].items()
    }
    write(f"plan-{method}", {"method": method, "cases": cases})


def write_kind(kind: str, runs: list[Door]) -> None:
    """Write all golden files of a kind."""
    if kind in SHAPES:
        write_shapes(kind, runs)
    elif kind in NAMES:
        write(kind, NAMES[kind]())
    else:
        for method in PLANS:
            write_plans(method, runs[0])


def main() -> None:
    """Write what was requested."""
    known = [*SHAPES, "plan", *NAMES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help=f"some of {', '.join(known)} [default: all]")
    kinds = parser.parse_args().kinds or known
    if unknown := set(kinds) - set(known):
        parser.error(f"Expected some of {', '.join(known)}, got {', '.join(sorted(unknown))}.")
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as root:
        runs = doors(Path(root))
        for kind in kinds:
            print(kind, flush=True)
            write_kind(kind, runs)


if __name__ == "__main__":
    main()
