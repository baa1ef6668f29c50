"""How long a ledger of 1, 50 or 1,000 mixed entries takes, and how far its total is above the slow computation.

The entries are the plans of all methods that hide records (PF-LD hides an attribute, which has a total of its own),
with hold-outs and without, at different epsilons, a private choice among candidates, and single releases: Laplace,
discrete, sampled, approximate, on disjoint cells; in turn. "different" are ledgers in which no two entries are alike,
because the noise of each is another one.

"..._show_cpu_s", "..._debit_cpu_s" and "..._train_cpu_s" are seconds of processor time of whole programs, their start
included: `fairveil ledger show`, a program that checks and debits a fit under a budget, and `fairveil train` under a
budget. "..._verify_cpu_s" is `fairveil ledger verify`, which prices all entries once more on one fine grid.
"..._above" is the total that is stated over the one on that grid, less 1; "..._megabytes" the memory of `show`.

    python benchmarks/ledger_scale.py
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fairveil import DemographicParity, Descent, FairClassifier, RateConstrained, Tuning, load_dataset
from fairveil.accounting.composition import NeighboringRelation
from fairveil.accounting.events import (
    ApproximateDP,
    Charge,
    DiscreteLaplaceRelease,
    DisjointCells,
    GaussianRelease,
    LaplaceRelease,
    PoissonSampled,
    Repeated,
    to_dict,
)
from fairveil.audit.bounds import scaled_charges
from fairveil.privacy.journal import Journal
from fairveil.privacy.ledger import total_epsilon

DELTA = 1e-5
SIZES = (1, 50, 1000)
ROUNDS = 3
BUDGET = "1000"
FIT = ("train", "adult", "--method", "output", "--unaware", "--epsilon", "0.1")
DEBIT = """
import sys
from fairveil.accounting.events import Charge, DiscreteGaussianRelease, GaussianRelease, PoissonSampled, Repeated
from fairveil.privacy.ledger import Ledger
ledger = Ledger(sys.argv[1])
fit = [Charge(Repeated(PoissonSampled(0.1, GaussianRelease(30.0)), 300), "one more", "train"),
       Charge(DiscreteGaussianRelease(40.0), "one more", "holdout")]
ledger.check(fit)
ledger.debit(fit, "one more")
"""
MEMORY = """
import sys
from pathlib import Path
from fairveil.cli import main
sys.argv = ["fairveil", "ledger", "show", *sys.argv[1:]]
try:
    main()
finally:
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(peak.split()[1], file=sys.stderr)
"""
"""Prints the largest resident memory in kilobytes: `wait4` would report that of the parent, if it is larger."""

SINGLE = (
    (Charge(LaplaceRelease(12.0)), Charge(DiscreteLaplaceRelease(60.0))),
    (Charge(Repeated(PoissonSampled(0.1, LaplaceRelease(2.0)), 3)),),
    (Charge(ApproximateDP(0.1, 1e-9)), Charge(GaussianRelease(15.0))),
    (Charge(Repeated(DisjointCells(PoissonSampled(0.05, GaussianRelease(4.0))), 50)),),
)


def kinds_of_entries() -> list[tuple[Charge, ...]]:
    """Return the charges of one fit by each way to train, and of single releases."""
    schema = load_dataset("adult").schema
    uncounted = schema.model_copy(update={"n_public": None})
    parity, tuning = DemographicParity(0.05), Tuning((Descent(), Descent(model="mlp")), mean_runs=8)
    fits = (
        {"constraint": parity, "method": "dp2dp", "aware": True},
        {"constraint": parity, "method": "dp2dp", "aware": False, "epsilon": 0.3, "holdout": 0.3},
        {"constraint": parity, "method": "raco", "aware": False},
        {"constraint": parity, "method": "raco", "aware": False, "training": RateConstrained(histogram="laplace")},
        {"constraint": parity, "method": "parity", "aware": True, "epsilon": 2.0},
        {"constraint": parity, "method": "functional", "aware": False, "schema": uncounted},
        {"method": "fairdp", "aware": False, "epsilon": 0.5},
        {"method": "dpsgd", "aware": False},
        {"method": "dpsgd", "aware": False, "epsilon": 0.2, "holdout": 0},
        {"method": "dpsgd", "aware": False, "tune": tuning},
        {"method": "dpsgdf", "aware": False, "epsilon": 0.7},
        {"method": "output", "aware": False, "delta": 1e-6},
    )
    plans = [FairClassifier(**{"sensitive": "sex", "schema": schema} | fit).planned() for fit in fits]
    return [plan.charges("split") for plan in plans] + list(SINGLE)


def entries(kinds: Sequence[tuple[Charge, ...]], n_entries: int, is_different: bool) -> Iterator[list[Charge]]:
    """Yield the charges of entries in turn, each with a split of its own; the noise of each is another one, or not."""
    for n, kind in zip(range(n_entries), itertools.cycle(kinds), strict=False):
        factor = 1 + n / 1000 if is_different else 1.0
        yield [replace(one, split=f"split {n}" if one.split else "") for one in scaled_charges(kind, factor)]


def write_ledger(path: Path, several: Sequence[Sequence[Charge]]) -> None:
    """Write a ledger with all entries at once; a thousand debits would read the growing file a thousand times."""
    lines = [
        {
            "kind": "debit", "at": "2026-01-01T00:00:00+00:00", "purpose": "a fit", "details": {},
            "charges": [to_dict(charge) for charge in charges],
        }
        for charges in several
    ]  # fmt: skip
    Journal(path).append(lambda past: lines)


def cpu_seconds(*words: object) -> float:
    """Return the seconds of processor time of a program of its own."""
    started = subprocess.Popen([sys.executable, *map(str, words)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode:
        raise SystemExit(f"Expected {' '.join(map(str, words[:4]))} to end well, got exit code {started.returncode}.")
    return usage.ru_utime + usage.ru_stime


def timings(path: Path, folder: Path, name: str) -> dict[str, float]:
    """Return how long the commands take on one ledger; the least disturbed of several rounds."""
    program = ("-m", "fairveil.cli")
    found = {f"{name}_show_cpu_s": min(cpu_seconds(*program, "ledger", "show", path) for _ in range(ROUNDS))}
    peak = subprocess.run([sys.executable, "-c", MEMORY, str(path)], check=True, capture_output=True, text=True).stderr
    found[f"{name}_show_megabytes"] = int(peak) / 1024
    found[f"{name}_verify_cpu_s"] = cpu_seconds(*program, "ledger", "verify", path)
    cpu_seconds(*program, "ledger", "budget", path, "--epsilon", BUDGET, "--delta", DELTA)
    found[f"{name}_debit_cpu_s"] = min(cpu_seconds("-c", DEBIT, path) for _ in range(ROUNDS))
    fit = (*program, *FIT, "--ledger", path, "--out", folder / "results")
    found[f"{name}_train_cpu_s"] = min(cpu_seconds(*fit) for _ in range(ROUNDS))
    return found


def ledger_figures() -> dict[str, float]:
    """Return all figures by name; half a minute for 1,000 different entries on one grid, a minute for the rest."""
    kinds, figures = kinds_of_entries(), {}
    for n_entries, is_different in ((1, False), (50, False), (1000, False), (50, True), (1000, True)):
        name = f"ledger_{n_entries}{'_different' if is_different else ''}"
        several = list(entries(kinds, n_entries, is_different))
        charges = list(itertools.chain(*several))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "people.ledger.jsonl")
            write_ledger(path, several)
            figures |= timings(path, Path(folder), name)
        # sampled Laplace noise has no price of its own for a replaced record, and group privacy none at all here
        relation = NeighboringRelation.ADD_OR_REMOVE_ONE
        in_full = total_epsilon(charges, DELTA, relation, one_grid=True)
        figures[f"{name}_epsilon"] = total_epsilon(charges, DELTA, relation)
        figures[f"{name}_above"] = figures[f"{name}_epsilon"] / in_full - 1
    return figures


if __name__ == "__main__":
    print(json.dumps(ledger_figures()))
