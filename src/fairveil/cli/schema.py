"""`fairveil check` and `fairveil schema draft`."""

from dataclasses import asdict
from pathlib import Path

from fairveil.cli._files import check_outputs, check_place, choose_ledger, rescue, source_of, source_with_schema
from fairveil.cli._terminal import say
from fairveil.data.drafting import draft_privately, draft_schema
from fairveil.data.inspection import check_table
from fairveil.errors import BadStructureError
from fairveil.privacy.ledger import Ledger
from fairveil.report.privacy_text import caution_lines
from fairveil.report.text import check_text, draft_text, explain_step


def check(data: str, schema: Path | None, delimiter: str, as_json: bool) -> None:
    """Print what does not match the schema: exact counts, for the data holder only."""
    source, declared = source_with_schema(data, schema)
    findings = check_table(source.file(), declared, delimiter=delimiter)
    facts = {"private": True, "data": source.name, "findings": [asdict(finding) for finding in findings]}
    step = explain_step(data, None if schema is None else str(schema), delimiter)
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
    delimiter: str,
    as_json: bool,
) -> None:
    """Write a first schema: without epsilon a private draft to be approved, with epsilon a public one."""
    source = source_of(data)
    cautions: list[str] = []
    path = source.ledger(ledger, out.parent)
    check_outputs([out], source.inputs(path))
    check_place(out)
    if epsilon is None:
        schema = draft_schema(source.file(), target, [sensitive], delimiter=delimiter)
        if yes:
            schema = schema.approved()
    else:
        path, cautions = choose_ledger(source, ledger, out.parent)
        schema = draft_privately(source.file(), target, sensitive, epsilon, delta, Ledger(path), delimiter)
    try:
        schema.write(out)
    except BadStructureError as problem:
        if epsilon is None:
            raise
        kept = rescue("the draft", lambda folder: schema.write(folder / out.name))
        raise BadStructureError(f"{str(problem).rstrip('.')}; {kept}.") from None
    facts = {"schema": str(out), "private_draft": schema.private_draft, "epsilon": epsilon, "cautions": cautions}
    step = explain_step(data, str(out), delimiter)
    known = facts | {"delta": delta, "n_features": len(schema.columns), "classes": schema.target.classes}
    say(as_json, facts, "\n".join([draft_text(known, step), *caution_lines(cautions)]))
