"""A scikit-learn model that you have already, made fair by a private rule on top, and certified on third people.

The model, the rule and the certificate each get people of their own, from the bundled Adult. Epsilon covers the
people of the rule and of the certificate. It does not cover the people the model was fitted on: nobody made it private.

    python examples/bring_your_own_model.py --out fairveil-examples/own-model
"""

import argparse
from dataclasses import replace
from pathlib import Path

import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OrdinalEncoder

from fairveil import Dataset, DemographicParity, FairClassifier, Ledger, load_dataset, report_page


def three_parts() -> list[Dataset]:
    """Return Adult in three parts; each row goes by its own content, so that no row moves another."""
    people = load_dataset("adult")
    part = pd.util.hash_pandas_object(people.frame, index=False) % 3
    schema = people.schema.model_copy(update={"n_public": None})  # the size of a part is not public
    return [replace(people, frame=people.frame[part == number], schema=schema) for number in range(3)]


def fitted_model(people: Dataset) -> Pipeline:
    """Return an ordinary pipeline, fitted; it answers every row, also one with a category it never saw."""
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    texts = make_column_selector(dtype_exclude="number")
    columns = make_column_transformer((codes, texts), remainder="passthrough")
    return make_pipeline(columns, HistGradientBoostingClassifier()).fit(people.X, people.y)


def exact_gap(people: Dataset, decisions: pd.Series) -> float:
    """Return the exact gap, which may be shown because Adult is public; of private rows it must not be."""
    rates = (decisions == people.schema.target.positive).groupby(people.frame["sex"]).mean()
    return float(rates.max() - rates.min())


def main(out: Path) -> None:
    """Fit the model, then the rule, then certify; each on people of their own."""
    out.mkdir(parents=True, exist_ok=True)
    for_model, for_rule, for_certificate = three_parts()
    model = fitted_model(for_model)
    clf = FairClassifier(
        DemographicParity(tolerance=0.05), epsilon=1.0, delta=1e-5, sensitive="sex", aware=True,
        schema=for_rule.schema, estimator=model, ledger=Ledger(out / "rule.ledger.jsonl"),
    ).fit(for_rule.X, for_rule.y)  # fmt: skip

    summary = clf.summary()
    print("Covered:", *summary["statement"]["covered"], sep="\n  ")
    print("Not covered:", *summary["statement"]["not_covered"], sep="\n  ")

    books = Ledger(out / "certificate.ledger.jsonl")  # other people, so books of their own
    certificate = clf.certify(for_certificate.X, for_certificate.y, epsilon=0.5, ledger=books)
    print(f"\nCertificate on third people: {certificate.sentence}")
    print(f"It cost those people epsilon {books.epsilon(delta=1e-5):.3f} at delta 1e-05.")
    for name, decider in (("the model alone", model), ("with the rule", clf)):
        decisions = pd.Series(decider.predict(for_certificate.X), index=for_certificate.frame.index)
        accuracy, gap = (decisions == for_certificate.y).mean(), exact_gap(for_certificate, decisions)
        print(f"  {name:16} accuracy {accuracy:.3f}, gap {gap:.3f}")
    (out / "report.html").write_text(report_page(summary), encoding="utf-8")
    print(f"\nOpen {out / 'report.html'}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A private and fair rule on top of a scikit-learn pipeline.")
    parser.add_argument("--out", type=Path, default=Path("fairveil-examples/own-model"))
    main(parser.parse_args().out)
