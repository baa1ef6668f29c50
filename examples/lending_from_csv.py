"""From a lender's raw CSV to a private and fair rule, its certificate, its report, and decisions for new applicants.

The table is made up: 20,000 applications of 19,000 people, with blanks and question marks. Officers were harder on
women, and the trade gives the sex away, so that to leave out the column alone would not be fair.

    python examples/lending_from_csv.py --out fairveil-examples/lending
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from fairveil import DemographicParity, FairClassifier, Ledger, Schema, report_page

# Public facts only: choices and limits stand on the application form, the number of people in the annual report.
FACTS = """
name = "made-up loan applications"
n_public = 19000                      # applicants, because the unit is the person
id_column = "Applicant ID"            # some people applied twice; all their rows are hidden together
missing_values = ["", "?", "n/a"]
target = { column = "Approved", classes = ["no", "yes"] }
sensitive = [{ column = "Sex", groups = ["F", "M"] }]
[columns]
"Annual income" = { type = "number", bounds = [0, 200000], cuts = [15000, 20000, 25000, 30000, 40000, 50000] }
"Loan amount" = { type = "number", bounds = [500, 50000], cuts = [2500, 5000, 7500, 10000, 15000, 20000] }
"Years at address" = { type = "number", bounds = [0, 60], cuts = [1, 2, 5, 10, 15, 20] }
"Trade" = { type = "category", categories = ["building", "care", "office", "retail"] }
"""
NEW = {"Annual income": [61000, "?"], "Loan amount": [8000, 24000], "Years at address": 5, "Trade": "care"}


def applications() -> pd.DataFrame:
    """Return the made-up table; its coins are public, so that everyone gets the same one."""
    coins, n_rows, n_people = np.random.default_rng(1974), 20_000, 19_000
    person = np.append(np.arange(n_people), coins.choice(n_people, n_rows - n_people, replace=False))
    is_woman = (coins.random(n_people) < 0.45)[person]
    income, amount = coins.lognormal(10.3, 0.5, n_rows), coins.lognormal(9.2, 0.6, n_rows)
    years, usual = coins.gamma(2, 4, n_rows), np.where(is_woman, "care", " building")  # a stray blank
    merit = 1.5 * np.log(income / 30_000) - np.log(amount / 10_000) + 0.1 * (years - 8)
    is_approved = merit - 0.8 * is_woman + coins.logistic(0, 0.5, n_rows) > 0  # 0.8: unfair
    no_number = np.where(coins.random(n_rows) < 0.05, coins.choice(["?", "n/a", "see letter"], n_rows), "")
    return pd.DataFrame({
        "Applicant ID": [f"A-{number:05}" for number in person],
        "Annual income": np.where(no_number == "", income.round(-2).astype(int).astype(str), no_number),
        "Loan amount": amount.round(-2).astype(int),
        "Years at address": years.round(1),
        "Trade": np.where(coins.random(n_rows) < 0.5, usual, coins.choice(["office", "retail", "?"], n_rows)),
        "Sex": np.where(coins.random(n_rows) < 0.01, "?", np.where(is_woman, "F", "M")),
        "Approved": np.where(is_approved, "yes", "no"),
    })  # fmt: skip


def main(out: Path) -> None:
    """Go all the way, and leave the results in a folder."""
    out.mkdir(parents=True, exist_ok=True)
    applications().to_csv(table := out / "applications.csv", index=False)
    (out / "schema.toml").write_text(FACTS)
    ledger = Ledger(out / "applications.csv.ledger.jsonl")  # beside the table: a second run adds to it
    # aware=False: in many places a lender must not read an applicant's sex when it decides.
    clf = FairClassifier(DemographicParity(tolerance=0.08), epsilon=1.0, delta=1e-6, sensitive="Sex", aware=False,
                         schema=Schema.read(out / "schema.toml"), holdout=0.3, ledger=ledger)  # fmt: skip
    print(clf.explain(), "\n")
    summary = clf.fit_file(table).summary()
    print(f"Certificate: {clf.certificate().sentence}\n{summary['statement']['total']}\n")
    clf.save(model := out / f"model-{len(ledger.entries)}")
    (out / "report.html").write_text(report_page(summary), encoding="utf-8")
    new = pd.DataFrame(NEW)
    print(new.assign(decision=FairClassifier.load(model).predict(new)).to_string(index=False))
    print(f"\nOpen {out / 'report.html'}; the model is in {model}, the books are in {ledger.path}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Raw CSV to certified rule, on a made-up lending table.")
    parser.add_argument("--out", type=Path, default=Path("fairveil-examples/lending"))
    main(parser.parse_args().out)
