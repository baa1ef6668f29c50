"""Several methods and tolerances at one epsilon on Adult: what each gives, and what trying them all costs.

Every training is released from the same people, so one ledger books them all: whoever chooses among them after
seeing the table has spent the composed total, not the epsilon of the one that is kept. Each certified tolerance
holds with 95 % confidence by itself, not after choosing the best: certify the chosen one on other people.

    python examples/compare_methods.py --out fairveil-examples/compare
"""

import argparse
from pathlib import Path

from fairveil import DemographicParity, FairClassifier, Ledger, frontier_of, frontier_page, load_dataset

EPSILON, DELTA = 1.0, 1e-5
TRIALS = (
    ("dp2dp", 0.02),  # a fair rule on top of a private model
    ("dp2dp", 0.05),
    ("raco", 0.02),  # training under the bound
    ("raco", 0.05),
    ("parity", 0.05),  # random flips on top of a private model
    ("dpsgd", 0.05),  # private only: measures the gap, does not bound it
)


def main(out: Path) -> None:
    """Train them all, print a line for each, write the page."""
    out.mkdir(parents=True, exist_ok=True)
    people, ledger, points = load_dataset("adult"), Ledger(out / "ledger.jsonl"), []
    print("method   tolerance  accuracy  gap    certified tolerance")
    for method, tolerance in TRIALS:
        clf = FairClassifier(
            DemographicParity(tolerance), EPSILON, DELTA, "sex", aware=True, method=method, schema=people.schema,
            ledger=ledger,
        ).fit(people.X, people.y)  # fmt: skip
        point = clf.summary()
        asked = "measured" if point["tolerance"] is None else f"{tolerance:.2f}"
        limit = "" if point["tolerance"] is None else f" --tolerance {tolerance:g}"
        command = f"fairveil train adult --aware --method {method} --epsilon {EPSILON:g} --delta {DELTA:g}{limit}"
        points.append(point | {"command": f"{command} --out {method}"})
        print(
            f"{method:8} {asked:10} {point['accuracy']['value']:.3f}     {point['gap']['value']:.3f}  "
            f"{point['smallest_tolerance_that_holds']:.3f}",
            flush=True,
        )
    facts = frontier_of(points)
    print(
        f"\nEach cost epsilon {EPSILON:g}; everything on this ledger: {facts['epsilon_spent_total']:.3f}",
        end="",
    )
    print(f" at delta {DELTA:g} ({len(ledger.entries)} trainings).")
    (out / "frontier.html").write_text(frontier_page(facts), encoding="utf-8")
    print(f"Open {out / 'frontier.html'}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Methods and tolerances side by side on Adult.")
    parser.add_argument("--out", type=Path, default=Path("fairveil-examples/compare"))
    main(parser.parse_args().out)
