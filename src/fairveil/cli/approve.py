"""`fairveil schema approve`: a draft becomes public knowledge. No table is read, so none of its libraries is loaded."""

from pathlib import Path

from fairveil.cli._terminal import say
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.report.text import approval_text


def approve(file: Path, yes: bool, as_json: bool) -> None:
    """Mark a draft as public knowledge."""
    schema = Schema.read(file)
    if not yes:
        raise InvalidParameterError(
            f"Expected --yes to confirm that every fact in {file} is public knowledge, got no answer."
        )
    schema.approved().write(file)
    facts = {"schema": str(file), "private_draft": False}
    say(as_json, facts, approval_text(facts))
