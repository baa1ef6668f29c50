"""`fairveil check`, `fairveil schema draft` and `fairveil schema approve`."""

from dataclasses import asdict
from pathlib import Path
from shlex import quote

from fairveil.cli._inputs import ledger_file, schema_of, source_of
from fairveil.cli._outputs import check_place, say
from fairveil.data.drafting import draft_privately, draft_schema
from fairveil.data.inspection import check_table
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.privacy.ledger import Ledger


def check(data: str, schema: Path | None, delimiter: str, as_json: bool) -> None:
    """Print what does not fit the schema: exact counts, for the data holder only."""
    source = source_of(data)
    findings = check_table(source.file(), schema_of(source, schema), delimiter=delimiter)
    lines = [f"PRIVATE: exact counts of {source.name}, for its holder only. Do not publish them."]
    width = max((len(finding.column) for finding in findings), default=0)
    for finding in findings:
        lines.append(f"  {finding.column:{width}}  {finding.count:>8}  {finding.what} -> {finding.rule}")
    lines.append("Nothing else does not fit." if findings else "Every value fits.")
    lines.append(next_explain(data, schema, delimiter))
    facts = {"private": True, "data": source.name, "findings": [asdict(finding) for finding in findings]}
    say(as_json, facts, "\n".join(lines))


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
    check_place(out)
    if epsilon is None:
        schema = draft_schema(source.file(), target, [sensitive], delimiter=delimiter)
        if yes:
            schema = schema.model_copy(update={"private_draft": False})
    else:
        books = Ledger(ledger_file(source, ledger, out.parent))
        schema = draft_privately(source.file(), target, sensitive, epsilon, delta, books, delimiter)
    schema.write(out)
    facts = {"schema": str(out), "private_draft": schema.private_draft, "epsilon": epsilon}
    booked = (
        ""
        if epsilon is None
        else f"  booked     epsilon {epsilon:g} at delta {delta:g} on the ledger of these people\n"
    )
    say(as_json, facts, booked + _next_step(data, out, schema, delimiter))


def _next_step(data: str, out: Path, schema: Schema, delimiter: str) -> str:
    lines = [f"Wrote {out}: {len(schema.columns)} features, classes {', '.join(schema.target.classes)}."]
    if schema.private_draft:
        lines.append(
            "It was read off the rows, so it is as private as they are. Replace every bound, cut and category by "
            "what is public knowledge, declare n_public if it is, and say so:"
        )
        lines.append(f"Next: fairveil schema approve {quote(str(out))} --yes")
        return "\n".join(lines)
    lines.append(next_explain(data, out, delimiter))
    return "\n".join(lines)


def next_explain(data: str, schema: Path | None, delimiter: str) -> str:
    """Return the line that proposes to look at the plan; a person chooses epsilon, tolerance and awareness."""
    place = "" if schema is None else f" --schema {quote(str(schema))}"
    cells = "" if delimiter == "," else f" --delimiter {quote(delimiter)}"
    return (
        f"Next: fairveil explain {quote(data)}{place}{cells} --epsilon 1 --tolerance 0.05 --unaware"
        "  # --aware if decisions may read the group"
    )


def approve(file: Path, yes: bool, as_json: bool) -> None:
    """Mark a draft as public knowledge."""
    schema = Schema.read(file)
    if not yes:
        raise InvalidParameterError(
            f"Expected --yes to say that every fact in {file} is public knowledge, got no answer."
        )
    schema.model_copy(update={"private_draft": False}).write(file)
    text = f"Approved: every fact in {file} now counts as public.\n{next_explain('DATA.csv', file, ',')}"
    say(as_json, {"schema": str(file), "private_draft": False}, text)
