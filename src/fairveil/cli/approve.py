"""`fairveil schema approve`: a draft becomes public knowledge. No table is read, so none of its libraries is loaded."""

from pathlib import Path

from fairveil.cli._terminal import say
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.report.text import approval_text


def approve(file: Path, yes: bool, by: str, as_json: bool) -> None:
    """Mark a draft as public knowledge, and record who said so and when."""
    schema = Schema.read(file)
    if not yes:
        raise InvalidParameterError(
            f"Expected --yes to confirm that every fact in {file} is public knowledge, got no answer."
        )
    approved = schema.approved(by.strip())
    approved.write(file)
    facts = {"schema": str(file), "private_draft": False, "by": approved.approved_by, "at": approved.approved_at}
    say(as_json, facts, approval_text(facts))
