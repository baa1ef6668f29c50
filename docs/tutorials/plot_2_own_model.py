"""
A fair rule for your own scikit-learn model
===========================================

You have a fitted scikit-learn model and want its decisions to be fair, without training it again. fairveil fits a
private decision rule on top of its probabilities, and certifies the rule on people that neither the model nor the rule
has seen.
"""

# %%
# Three groups of people
# ----------------------
# The model, the rule and the certificate each get separate people. Each row is assigned by its own content, so that
# no row changes the place of another: the guarantee then holds for the whole table. The size of a part is not public.
from dataclasses import replace

import pandas as pd

from fairveil import load_dataset

people = load_dataset("adult")
part = pd.util.hash_pandas_object(people.frame, index=False) % 3
schema = people.schema.model_copy(update={"n_public": None})
for_model, for_rule, for_certificate = (
    replace(people, frame=people.frame[part == number], schema=schema)
    for number in range(3)
)

# %%
# The model
# ---------
# An ordinary pipeline. It must answer every row, even one with a category that it never saw: an error on one record
# would reveal that the record exists.
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
columns = make_column_transformer(
    (codes, make_column_selector(dtype_exclude="number")), remainder="passthrough"
)
model = make_pipeline(columns, HistGradientBoostingClassifier(random_state=0)).fit(
    for_model.X, for_model.y
)

# %%
# The rule
# --------
# Pass the fitted model as ``estimator``. Epsilon pays for the rule and its certificate.
from fairveil import DemographicParity, FairClassifier, Ledger

clf = FairClassifier(
    DemographicParity(tolerance=0.05),
    epsilon=1.0,
    sensitive="sex",
    aware=True,
    schema=for_rule.schema,
    estimator=model,
    ledger=Ledger(),
)
clf.fit(for_rule.X, for_rule.y)
print(clf.certificate_.sentence)

# %%
# How many of the rule's people are held out follows from public facts, such as the tolerance. They may still be too few
# to confirm the bound. The third group of people below is much larger.

# %%
# What the guarantee covers
# -------------------------
# It covers the people of the rule. It does not cover the people the model was fitted on: nobody made that model
# private. The summary says so.
statement = clf.summary()["statement"]
print("Covered:", *statement["covered"], sep="\n* ")
print("\nNot covered:", *statement["not_covered"], sep="\n* ")

# %%
# A certificate on the third group
# --------------------------------
# The certificate is paid for from these people's own budget and debited to their own ledger.
others = Ledger()
certificate = clf.certify(
    for_certificate.X, for_certificate.y, epsilon=0.5, ledger=others
)
print(certificate.sentence)
print(f"Cost to these people: epsilon {others.epsilon(delta=1e-5):.3f} at delta 1e-5.")

# %%
# Before and after
# ----------------
# Adult is public, so exact figures may be shown here. Never print such figures for private rows.
rows = {}
for name, decider in (("model alone", model), ("with the fair rule", clf)):
    decisions = pd.Series(
        decider.predict(for_certificate.X), index=for_certificate.frame.index
    )
    rates = (
        (decisions == schema.target.positive)
        .groupby(for_certificate.frame["sex"])
        .mean()
    )
    rows[name] = {
        "accuracy": (decisions == for_certificate.y).mean(),
        "gap": rates.max() - rates.min(),
    }
pd.DataFrame(rows).T.round(3)
