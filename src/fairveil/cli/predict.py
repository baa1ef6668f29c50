"""`fairveil predict`: a decision for each row of a table, with reasons if they are requested."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fairveil._durable import replacing
from fairveil.cli._files import check_outputs, check_place, source_of
from fairveil.cli._models import open_model
from fairveil.cli._terminal import say
from fairveil.data.readers import read_table, table_columns
from fairveil.errors import BadStructureError, InvalidParameterError
from fairveil.fair_classifier import FairClassifier
from fairveil.methods.explanations import column_values, explain_decisions, score_kind
from fairveil.models.rules import Argmax
from fairveil.persistence import model_digest
from fairveil.report.decision_text import (
    MANY_UNKNOWN,
    NOTE_MEANINGS,
    POINT_MEANINGS,
    prediction_text,
    unknown_groups_sentence,
)
from fairveil.report.text import file_options

FORMATS = (".parquet", ".csv")
OWNER_ONLY = 0o600
"""The permissions of decisions, which are as private as the people they are about."""
SHORT_DIGEST = 16
"""Digits of the model's digest in each row of a CSV file, which has no other place for it."""


def predict(
    model: Path,
    data: str,
    out: Path,
    reasons: int,
    typical: Sequence[str] | None,
    key: Path | None,
    delimiter: str | None,
    encoding: str | None,
    as_json: bool,
) -> None:
    """Write one decision for each row of a table, in its order."""
    clf, source, digest = open_model(model, key), source_of(data), model_digest(model)
    if out.suffix not in FORMATS:
        raise BadStructureError(f"Expected --out to end in {' or '.join(FORMATS)}, got {out.name!r}; rename it.")
    check_outputs([out], source.inputs(source.ledger(None, out.parent), model=model, key=key))
    check_place(out)
    file, inputs, rule = source.file(), clf.estimator_.inputs_, clf.estimator_.rule_
    names, id_column = list(inputs.schema.columns), inputs.schema.id_column
    if rule.reads_group or inputs.predicts == "decoupled":
        names += [entry.column for entry in inputs.sensitive]
    mark, spelled = delimiter or inputs.schema.file.delimiter, encoding or inputs.schema.file.encoding
    if id_column is not None and id_column in table_columns(file, mark, encoding=spelled):
        names.append(id_column)
    points = {"points": score_kind(clf.estimator_._predictor)} if reasons else {}
    counts: Counter[str] = Counter()
    names = list(dict.fromkeys(names))
    chunks = read_table(file, names, delimiter=mark, encoding=spelled, keep_malformed=True)
    tables = _decided(clf, chunks, reasons, typical_values(typical or ()), counts)
    if out.suffix == ".csv":
        tables = (table.assign(model_digest=digest[:SHORT_DIGEST]) for table in tables)
    kept = {"fairveil_model_digest": digest, "fairveil_notes": json.dumps(NOTE_MEANINGS)}
    kept |= {f"fairveil_{name}": POINT_MEANINGS[kind] for name, kind in points.items()}
    with replacing(out, OWNER_ONLY) as new:
        n_rows, columns = _write(tables, new, out.suffix, kept)
    unknown = counts.pop("", None)
    attributes, favorable = inputs.people.attributes, inputs.schema.target.positive
    is_caution = unknown is not None and unknown > MANY_UNKNOWN * n_rows
    facts: dict[str, Any] = {
        "model": str(model), "data": source.name, "out": str(out), "n_rows": n_rows, "columns": columns,
        "model_digest": digest, "n_unknown_groups": unknown, "unknown_categories": dict(counts),
        "reasons": {"n": reasons, "favorable": favorable, **points}, "notes": NOTE_MEANINGS,
        "cautions": [unknown_groups_sentence(unknown or 0, n_rows, attributes)] if is_caution else [],
    }  # fmt: skip
    how = {
        "aware": clf.aware, "sensitive": list(clf.request().sensitive), "reads_group": rule.reads_group,
        "is_random": rule.is_random or rule.needs_uniforms, "may_differ": not isinstance(rule, Argmax),
    }  # fmt: skip
    say(as_json, facts, prediction_text(facts | how, file_options(delimiter, encoding)))


def typical_values(pairs: Sequence[str]) -> dict[str, str]:
    """Return the typical values that --typical COLUMN=VALUE names."""
    for pair in pairs:
        if "=" not in pair:
            raise InvalidParameterError(f"Expected --typical COLUMN=VALUE, got {pair!r}; write for example income=0.")
    return dict(pair.split("=", 1) for pair in pairs)


def _decided(
    clf: FairClassifier, chunks: Iterable[pd.DataFrame], n: int, typical: Mapping[str, str], counts: Counter[str]
) -> Iterator[pd.DataFrame]:
    """Yield the decisions about each chunk; count rows of no known group and, by column, of unlisted categories."""
    predictor, id_column = clf.estimator_._predictor, clf.estimator_.schema_.id_column
    columns = column_values(predictor.inputs.encoder, typical)
    for chunk in chunks:
        frame = chunk.reset_index(drop=True)
        explained = explain_decisions(predictor, clf.classes_, frame, n, columns)
        table = explained.table
        for place, (name, values) in enumerate(zip(clf.classes_, clf.predict_proba(frame).T, strict=True)):
            table.insert(1 + place, f"p_{name}", values)
        if id_column in frame.columns:
            cells = frame[id_column]
            name = "id" if id_column in table.columns else id_column  # no column of decisions is named "id"
            table.insert(0, name, cells.astype("string") if cells.dtype == object else cells)
        counts.update(explained.unknown_categories)
        if explained.n_unknown_groups is not None:
            counts[""] += explained.n_unknown_groups  # no column has an empty name
        yield table


def _write(tables: Iterator[pd.DataFrame], path: Path, suffix: str, facts: Mapping[str, str]) -> tuple[int, list[str]]:
    """Write tables one after the other (there is at least one); return how many rows they have, and their columns.

    A Parquet file keeps the facts in its metadata.
    """
    first = next(tables)
    n_rows, several, columns = 0, chain([first], tables), list(map(str, first.columns))
    if suffix == ".csv":
        for table in several:
            table.to_csv(path, mode="a", index=False, header=n_rows == 0 and table is first)
            n_rows += len(table)
        return n_rows, columns
    schema = pa.Schema.from_pandas(first, preserve_index=False)
    with pq.ParquetWriter(path, schema.with_metadata({**(schema.metadata or {}), **facts})) as writer:
        for table in several:
            writer.write_table(pa.Table.from_pandas(table, writer.schema, preserve_index=False))
            n_rows += len(table)
    return n_rows, columns
