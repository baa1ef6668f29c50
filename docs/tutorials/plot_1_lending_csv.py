"""
From a raw CSV file to a report
===============================

A lender has a CSV file of loan applications and wants a rule for approving loans that is private, that treats women and
men alike, and that does not read an applicant's sex. This tutorial goes all the way: schema, plan, training,
certificate, report, decisions for new applicants.
"""

# %%
# The table
# ---------
# The table is made up: 20,000 applications of 19,000 people, with blanks, question marks and odd cells, as real tables
# have them. Loan officers were harder on women, and the trade reveals the sex. Leaving out the column *sex* would
# therefore not be enough.
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pandas as pd

random, n_rows, n_people = np.random.default_rng(1974), 20_000, 19_000
person = np.append(
    np.arange(n_people), random.choice(n_people, n_rows - n_people, replace=False)
)
is_woman = (random.random(n_people) < 0.45)[person]
income, amount = random.lognormal(10.3, 0.5, n_rows), random.lognormal(9.2, 0.6, n_rows)
years, usual_trade = random.gamma(2, 4, n_rows), np.where(is_woman, "care", " building")
merit = 1.5 * np.log(income / 30_000) - np.log(amount / 10_000) + 0.1 * (years - 8)
is_approved = (
    merit - 0.8 * is_woman + random.logistic(0, 0.5, n_rows) > 0
)  # 0.8: unfair
odd_cell = np.where(
    random.random(n_rows) < 0.05, random.choice(["?", "n/a", "see letter"], n_rows), ""
)
applications = pd.DataFrame(
    {
        "Applicant ID": [f"A-{number:05}" for number in person],
        "Annual income": np.where(
            odd_cell == "", income.round(-2).astype(int).astype(str), odd_cell
        ),
        "Loan amount": amount.round(-2).astype(int),
        "Years at address": years.round(1),
        "Trade": np.where(
            random.random(n_rows) < 0.5,
            usual_trade,
            random.choice(["office", "retail", "?"], n_rows),
        ),
        "Sex": np.where(
            random.random(n_rows) < 0.01, "?", np.where(is_woman, "F", "M")
        ),
        "Approved": np.where(is_approved, "yes", "no"),
    }
)
folder = Path(mkdtemp())
table = folder / "applications.csv"
applications.to_csv(table, index=False)
applications.head()

# %%
# The schema: public facts only
# -----------------------------
# A schema lists what is known *before* anybody reads the rows. The choices and limits below appear on the application
# form, and the number of applicants in the annual report. Some people applied twice: with ``id_column``, all rows of a
# person are protected together.
from fairveil import Schema

(folder / "schema.toml").write_text(
    """
name = "made-up loan applications"
n_public = 19000
id_column = "Applicant ID"
missing_values = ["", "?", "n/a"]
target = { column = "Approved", classes = ["no", "yes"] }
sensitive = [{ column = "Sex", groups = ["F", "M"] }]

[columns."Annual income"]
type = "number"
bounds = [0, 200000]
cuts = [15000, 20000, 25000, 30000, 40000, 50000]

[columns."Loan amount"]
type = "number"
bounds = [500, 50000]
cuts = [2500, 5000, 7500, 10000, 15000, 20000]

[columns."Years at address"]
type = "number"
bounds = [0, 60]
cuts = [1, 2, 5, 10, 15, 20]

[columns.Trade]
type = "category"
categories = ["building", "care", "office", "retail"]
"""
)
schema = Schema.read(folder / "schema.toml")

# %%
# The plan, before anything is spent
# ----------------------------------
# ``aware=False``: in many places a lender must not read an applicant's sex when it decides. ``explain`` states the
# plan, the guarantee and what can probably be certified. It reads no row.
from fairveil import DemographicParity, FairClassifier, Ledger

ledger = Ledger(folder / "applications.csv.ledger.jsonl")
clf = FairClassifier(
    DemographicParity(tolerance=0.1),
    epsilon=1.0,
    delta=1e-6,
    sensitive="Sex",
    aware=False,
    schema=schema,
    holdout=0.3,
    ledger=ledger,
)
print(clf.explain())

# %%
# Training and certificate
# ------------------------
# ``fit_file`` reads the file itself, each cell as text. The odd cells follow the schema's rules: "see letter" is not a
# number, so it becomes the level *missing*.
clf.fit_file(table)
print(clf.certificate_.sentence)

# %%
# If this says that there is not enough data, the rule may still be fair: too few people were held out to show it at
# this confidence. The sentence names how many would probably suffice.
#
# The rates of each group, with 95 % intervals from noisy counts of held-out people:
summary = clf.summary()
pd.DataFrame(
    {
        group["group"]: {
            rate: f"{value['value']:.3f} ({value['low']:.3f} to {value['high']:.3f})"
            for rate, value in group["rates"].items()
        }
        for group in summary["groups"]
    }
)

# %%
# The report
# ----------
# One HTML page that opens without a network. The ledger now has one entry; a second training would add to it.
from fairveil import report_page

(folder / "report.html").write_text(report_page(summary), encoding="utf-8")
print(summary["statement"]["total"])

# %%
# Decisions for new applicants
# ----------------------------
# New applicants need neither the target nor the sex, and may have missing cells.
clf.save(folder / "model")
new = pd.DataFrame(
    {
        "Annual income": ["61000", "?"],
        "Loan amount": ["8000", "24000"],
        "Years at address": "5",
        "Trade": "care",
    }
)
new.assign(decision=FairClassifier.load(folder / "model").predict(new))
