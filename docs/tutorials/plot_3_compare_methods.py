"""
Compare methods, and count what that costs
==========================================

Which method is best for your table? Each method you try is one more release from the same people. This tutorial
compares methods and tolerances on Adult, and shows what the comparison costs as a whole.
"""

# %%
# One ledger for all trials
# -------------------------
# All trainings use the same people, so they debit the same ledger.
from fairveil import DemographicParity, FairClassifier, Ledger, load_dataset

people, ledger = load_dataset("adult"), Ledger()
trials = [
    ("dp2dp", 0.02),  # a fair rule on top of a private model
    ("dp2dp", 0.05),
    ("raco", 0.02),  # training under the bound
    ("raco", 0.05),
    ("parity", 0.05),  # random flips on top of a private model
    ("dpsgd", 0.05),  # private only: measures the gap, does not bound it
]

# %%
# Train
# -----
fitted = []
for method, tolerance in trials:
    clf = FairClassifier(
        DemographicParity(tolerance),
        sensitive="sex",
        aware=True,
        method=method,
        schema=people.schema,
        ledger=ledger,
    )
    fitted.append(clf.fit(people.X, people.y))
points = [clf.summary() for clf in fitted]

# %%
# Compare
# -------
# Accuracy and gap are noisy measurements on held-out people; *certified* is the smallest tolerance that holds at 95 %
# confidence.
import pandas as pd

table = pd.DataFrame(
    {
        "method": [point["method"] for point in points],
        "tolerance": [point["tolerance"] for point in points],
        "accuracy": [point["accuracy"]["value"] for point in points],
        "gap": [point["gap"]["value"] for point in points],
        "certified": [point["smallest_tolerance_that_holds"] for point in points],
    }
)
table.round(3)

# %%
# A display draws the same figures with their 95 % intervals, each point labeled by its tolerance:
from fairveil import FrontierDisplay

display = FrontierDisplay.from_summaries(points)

# %%
# The certificate of the first training, bound by bound: a bound holds if its line ends left of its limit.
from fairveil import CertificateDisplay

display = CertificateDisplay.from_estimator(fitted[0])

# %%
# What it cost
# ------------
# Each training cost epsilon 1. If you choose among them after seeing this table, you have spent the composed total:
from fairveil import frontier_of

facts = frontier_of(points)
print(
    f"{len(ledger.entries)} trainings: epsilon {facts['epsilon_spent_total']:.2f} at delta 1e-5"
)

# %%
# Three ways to spend less:
#
# * leave the choice to ``method="auto"``, which uses public facts only;
# * compare on public data of the same kind, and train once on the private table;
# * let ``tune=Tuning(...)`` choose privately, for little more than one training.
#
# A certified tolerance holds with 95 % confidence *by itself*. After choosing the best of six, certify the chosen rule
# on other people with ``clf.certify``.
#
# On the command line, ``fairveil frontier`` makes the same comparison and writes a page with all points.
