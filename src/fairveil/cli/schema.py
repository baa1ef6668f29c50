"""`fairveil check` and `fairveil schema draft`."""

import math
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from fairveil.cli._files import check_outputs, check_place, choose_ledger, rescue, source_of, source_with_schema
from fairveil.cli._terminal import say
from fairveil.data.drafting import draft_schema
from fairveil.data.inspection import check_table
from fairveil.data.schema import Schema
from fairveil.data.values import number_of
from fairveil.errors import BadStructureError, InvalidParameterError
from fairveil.report.privacy_text import caution_lines
from fairveil.report.text import check_text, draft_text, explain_step, file_options


def check(data: str, schema: Path | None, delimiter: str | None, encoding: str | None, as_json: bool) -> None:
    """Print what does not match the schema: exact counts, for the data holder only."""
    source, declared = source_with_schema(data, schema)
    findings = check_table(source.file(), declared, delimiter=delimiter, encoding=encoding)
    facts = {"private": True, "data": source.name, "findings": [asdict(finding) for finding in findings]}
    step = explain_step(data, None if schema is None else str(schema), file_options(delimiter, encoding))
    say(as_json, facts, check_text(facts, step))


def draft(
    data: str,
    target: str,
    sensitive: str,
    out: Path,
    epsilon: float | None,
    delta: float,
    ledger: Path | None,
    yes: bool,
    positive: str | None,
    cuts: str | None,
    formats: list[str] | None,
    n_public: int | None,
    delimiter: str | None,
    encoding: str | None,
    as_json: bool,
) -> None:
    """Write a first schema: without epsilon a private draft to be approved, with epsilon a public one."""
    source = source_of(data)
    cautions: list[str] = []
    path = source.ledger(ledger, out.parent)
    check_outputs([out], source.inputs(path))
    check_place(out)
    if epsilon is not None:
        path, cautions = choose_ledger(source, ledger, out.parent)
    drafted = draft_schema(
        source.file(),
        target,
        sensitive,
        positive=positive,
        cuts=_numbers(cuts),
        formats=_formats(formats or ()),
        n_public=n_public,
        delimiter=delimiter,
        encoding=encoding,
        epsilon=epsilon,
        delta=delta,
        ledger=path,
    )
    if positive is None and epsilon is None and not as_json and sys.stdin.isatty() and sys.stdout.isatty():
        drafted = _with_chosen_positive(drafted)
    schema = drafted.approved() if yes else drafted
    try:
        schema.write(out)
    except BadStructureError as problem:
        if epsilon is None:
            raise
        kept = rescue("the draft", lambda folder: schema.write(folder / out.name))
        raise BadStructureError(f"{str(problem).rstrip('.')}; {kept}.") from None
    facts = {"schema": str(out), "private_draft": schema.private_draft, "epsilon": epsilon, "cautions": cautions}
    facts |= {"notes": list(schema.notes), "delimiter": schema.file.delimiter, "encoding": schema.file.encoding}
    found: dict[str, Any] = {"positive": schema.target.positive, "classes": list(schema.target.classes)}
    found["groups"] = list(schema.sensitive[0].groups)
    if epsilon is None:
        found["notes"] = list(drafted.private_notes)
    known = (
        facts
        | found
        | {"notes": schema.notes, "private_notes": drafted.private_notes}
        | {"delta": delta, "n_features": len(schema.columns)}
    )
    text = "\n".join([draft_text(known, explain_step(data, str(out))), *caution_lines(cautions)])
    say(as_json, facts | {"private" if epsilon is None else "public": found}, text)


def _numbers(text: str | None) -> list[float]:
    """Return numbers that are separated by commas."""
    numbers = [number_of(part) for part in (text or "").split(",") if part.strip()]
    if any(not math.isfinite(number) for number in numbers):
        raise InvalidParameterError(f"Expected --cuts as numbers, such as 30,50, got {text!r}.")
    return numbers


def _formats(texts: Iterable[str]) -> dict[str, Any]:
    """Return the formats of columns that were typed as COLUMN=FORMAT."""
    pairs = [text.partition("=") for text in texts]
    for name, mark, form in pairs:
        if not (name.strip() and mark and form):
            raise InvalidParameterError(
                f"Expected --format COLUMN=FORMAT, such as pay=DD/MM/YYYY, got {name + mark + form!r}."
            )
    return {name.strip(): form for name, _, form in pairs}


def _with_chosen_positive(schema: Schema) -> Schema:
    """Ask the person at the terminal which class counts as positive."""
    classes, chosen = schema.target.classes, ""
    while chosen not in classes:
        chosen = typer.prompt(
            f"Which class of {schema.target.column} counts as positive, the desirable outcome ({', '.join(classes)})?",
            default=schema.target.positive,
        )
    return schema.model_copy(update={"target": schema.target.model_copy(update={"positive": chosen})})
