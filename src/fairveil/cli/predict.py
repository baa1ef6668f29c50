"""`fairveil predict` and `fairveil certify`: what a saved model is for."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fairveil.accounting.composition import NeighboringRelation, epsilon_of
from fairveil.cli._inputs import ledger_file, source_of
from fairveil.cli._outputs import say, written_whole
from fairveil.data.readers import read_table, table_columns
from fairveil.errors import BadStructureError
from fairveil.fair_classifier import FairClassifier
from fairveil.methods.registry import estimator_named
from fairveil.persistence import read_facts
from fairveil.privacy.ledger import Ledger
from fairveil.report.formatting import finite
from fairveil.report.text import certificate_text, prediction_text
from fairveil.training.run import make_counting_plan

FORMATS = (".parquet", ".csv")


def predict(model: Path, data: str, out: Path, key: Path | None, delimiter: str, as_json: bool) -> None:
    """Write one decision for each row of a table, in its order."""
    clf, source = _opened(model, key), source_of(data)
    if out.suffix not in FORMATS:
        raise BadStructureError(
            f"Expected --out to end in {' or '.join(FORMATS)}, got {out.name!r}; name it so."
        )
    file = source.file()
    if out.exists() and (out.samefile(file) or out.with_name(f"{out.name}.ledger.jsonl").exists()):
        raise BadStructureError(
            f"Expected a place for decisions, got {out}, which is a table of people; name another --out."
        )
    names = _needed(clf, table_columns(file, delimiter))
    chunks = read_table(file, names, delimiter=delimiter, keep_malformed=True)
    with written_whole(out) as stage:
        n_rows = _write((_decided(clf, chunk) for chunk in chunks), stage, out.suffix)
    facts = {"model": str(model), "data": source.name, "out": str(out), "n_rows": n_rows}
    known = facts | {"aware": clf.aware, "sensitive": list(clf.request().sensitive)}
    say(as_json, facts, prediction_text(known, _probabilities(clf), delimiter))


def _needed(clf: FairClassifier, present: list[str]) -> list[str]:
    """Return the columns to read: features, groups if decisions read them, and the id where the table has one."""
    inputs, rule = clf.estimator_.inputs_, clf.estimator_.rule_
    names = list(inputs.schema.columns)
    if getattr(rule, "reads_group", False) or inputs.predicts == "decoupled":
        names += [entry.column for entry in inputs.sensitive]
    if inputs.schema.id_column in present:
        names.append(str(inputs.schema.id_column))
    return list(dict.fromkeys(names))


def _decided(clf: FairClassifier, frame: pd.DataFrame) -> pd.DataFrame:
    table = pd.DataFrame({"prediction": clf.predict(frame)})
    table[_probabilities(clf)] = clf.predict_proba(frame)
    return table


def _probabilities(clf: FairClassifier) -> list[str]:
    return [f"p_{name}" for name in clf.classes_]


def _write(tables: Iterator[pd.DataFrame], path: Path, suffix: str) -> int:
    """Write tables one after the other (there is at least one) and return how many rows they have."""
    first = next(tables)
    n_rows, several = 0, chain([first], tables)
    if suffix == ".csv":
        for table in several:
            table.to_csv(path, mode="a", index=False, header=n_rows == 0 and table is first)
            n_rows += len(table)
        return n_rows
    with pq.ParquetWriter(path, pa.Schema.from_pandas(first, preserve_index=False)) as writer:
        for table in several:
            writer.write_table(pa.Table.from_pandas(table, writer.schema, preserve_index=False))
            n_rows += len(table)
    return n_rows


def certify(
    model: Path,
    holdout: str,
    epsilon: float,
    delta: float,
    confidence: float,
    ledger: Path | None,
    key: Path | None,
    delimiter: str,
    as_json: bool,
) -> None:
    """Certify a saved rule on people of their own."""
    clf, source = _opened(model, key), source_of(holdout)
    path = ledger_file(source, ledger, model.resolve().parent)
    books = Ledger(path)
    for place in {path, ledger_file(source, None, model.resolve().parent)}:
        _check_apart(Ledger(place), source.name)
    clf.delta = delta
    certificate = clf.certify_file(
        source.file(), epsilon, delimiter=delimiter, ledger=books, confidence=confidence
    )
    plan = make_counting_plan(epsilon, delta, clf.estimator_.inputs_.task.unit)
    facts = certificate.to_dict() | _spent(epsilon, delta, plan.charges(), books)
    whose = "record" if clf.estimator_.inputs_.schema.id_column is None else "person"
    facts |= {"model": str(model), "data": source.name, "plan": plan.to_list()}
    facts |= {
        "aware": clf.aware,
        "sensitive": list(clf.request().sensitive),
        "protects": clf.protects,
        "unit": whose,
    }
    say(as_json, facts, certificate_text(facts, path))


def _spent(epsilon: float, delta: float, charges: Any, books: Ledger) -> dict[str, Any]:
    replaced = epsilon_of(charges, delta, NeighboringRelation.REPLACE_ONE)
    spent = {
        "epsilon": epsilon,
        "epsilon_spent": epsilon_of(charges, delta),
        "epsilon_replace_one": replaced,
        "epsilon_spent_total": books.epsilon(delta),
    }
    return {name: finite(value) for name, value in spent.items()} | {"delta": delta}


def _check_apart(books: Ledger, name: str) -> None:
    """Refuse people whose own books show a training: a certificate from them would not be about new people."""
    if any(entry.purpose.startswith("fit of ") for entry in books.entries):
        raise BadStructureError(
            f"Expected people who had no part in training, got {name}, whose ledger shows a fit; certify on rows that "
            "were kept apart, under a ledger of their own."
        )


def _opened(model: Path, key: Path | None) -> FairClassifier:
    beside = model.resolve().parent / "key"
    if key is None and beside.is_file():
        kind = estimator_named(str(read_facts(model).get("estimator")))
        key = beside if kind is not None and (kind.postprocesses or kind.is_randomized) else None
    return FairClassifier.load(model, key=key)
