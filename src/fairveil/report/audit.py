"""The audit of a privacy claim as an HTML page: the claim, the lower bound, and what it does not show."""

from collections.abc import Mapping
from typing import Any

from fairveil.report.page import plain_facts, render
from fairveil.report.text import AUDIT_LIMITS

NEEDED = (
    "audited", "created", "version", "game", "epsilon", "delta", "lower_bound", "lower_bound_free", "ratio",
    "confidence", "repeats", "reach", "holds", "plan",
)  # fmt: skip


def audit_page(audit: Mapping[str, Any]) -> str:
    """Return an audit as one HTML text that needs no network.

    Parameters
    ----------
    audit : mapping
        What ``fairveil audit --json`` prints.
    """
    facts = plain_facts("audit", audit, NEEDED)
    return render("audit.html.jinja", facts, limits=AUDIT_LIMITS)
