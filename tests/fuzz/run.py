"""Run many seeded cases: `python tests/fuzz/run.py --cases 10000 [--seed 1] [--kinds csv,model] [--json]`.

Case number n of a kind is the same wherever it runs; `--keep FOLDER` writes the failing ones for the corpus.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from threadpoolctl import threadpool_limits

from fuzz.driver import Case, complaints, run
from fuzz.kinds import KINDS
from fuzz.people import write_base


@dataclass(frozen=True)
class Failure:
    """A case that does not hold what every case must hold."""

    kind: str
    number: int
    case: Case
    complaints: Sequence[str]


def case_of(kind: str, number: int, seed: int, base: Path) -> Case:
    """Return a case by its number."""
    return KINDS[kind](random.Random(f"{kind} {seed} {number}"), base)


def prepare(base: Path) -> None:
    """Fill the folder that every case starts from."""
    write_base(base)
    os.mkfifo(base / "pipe")


def outcome_of(case: Case, base: Path, place: Path) -> list[str]:
    """Run a case in a fresh copy of the base folder and return its complaints."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for source in base.rglob("*"):
        target = place / source.relative_to(base)
        if source.is_dir():
            target.mkdir()
        elif source.is_fifo():
            os.mkfifo(target)
        else:
            shutil.copyfile(source, target)
            target.chmod(source.stat().st_mode)
    return complaints(case, run(case, place))


def failures(kind: str, numbers: range, seed: int, base: Path, place: Path) -> Iterator[Failure]:
    """Yield the cases of a kind that fail."""
    for number in numbers:
        case = case_of(kind, number, seed, base)
        if found := outcome_of(case, base, place):
            yield Failure(kind, number, case, found)


def main() -> None:
    """Run the cases and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kinds, found, seconds = options.kinds.split(","), [], {}
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        base, place = Path(folder, "base"), Path(folder, "case")
        base.mkdir()
        prepare(base)
        for kind in kinds:
            started = time.process_time()
            for failure in failures(kind, range(-(-options.cases // len(kinds))), options.seed, base, place):
                found.append(failure)
                if not options.json:
                    print(f"{kind} {failure.number}: {failure.complaints} {failure.case.words}", flush=True)
                if options.keep:
                    (options.keep / f"{kind}-{options.seed}-{failure.number}.json").write_text(failure.case.to_json())
            seconds[kind] = round(time.process_time() - started, 1)
    n_cases = -(-options.cases // len(kinds)) * len(kinds)  # at least as many as requested
    facts = {"cases": n_cases, "failures": len(found), "cpu_seconds": seconds, "seed": options.seed}
    print(json.dumps(facts) if options.json else f"{n_cases} cases, {len(found)} failures, CPU seconds {seconds}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
