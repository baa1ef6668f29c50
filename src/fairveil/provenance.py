"""The public facts that a result relies on, for auditors: none of them depends on a row."""

from typing import Any

from fairveil.data.schema import Category, Schema
from fairveil.report.formatting import compact


def schema_facts(schema: Schema) -> dict[str, Any]:
    """Return what a schema declares of every column, and who approved it when, with both in words."""
    columns = []
    for name, column in schema.columns.items():
        facts: dict[str, Any] = {"column": name, "kind": column.type, "bounds": None, "n_bins": None}
        if isinstance(column, Category):
            facts["n_categories"] = len(column.categories)
            facts["declared"] = f"one of {len(column.categories)} categories"
        else:
            facts["n_categories"], facts["bounds"] = None, list(column.bounds)
            facts["declared"] = f"number from {compact(column.bounds[0])} to {compact(column.bounds[1])}"
            if column.encode != "scale":
                facts["n_bins"] = len(column.edges) + 1
                facts["declared"] += f", in {facts['n_bins']} bins"
        columns.append(facts)
    approval: dict[str, Any] = {"by": None, "at": None, "is_unchanged": None}
    sentence = "No approval is recorded in the schema."
    if schema.approved_at:
        approval = {"by": schema.approved_by or None, "at": schema.approved_at, "is_unchanged": schema.is_as_approved}
        sentence = f"Approved by {approval['by'] or 'a person whose name is not stated'} at {approval['at']}"
        changed = "; the facts used here differ from those approved: the schema was edited later, or an option such as "
        changed += "--n-public or --unit changed them"
        sentence += f"{'' if approval['is_unchanged'] else changed}."
    return {
        "name": schema.name,
        "source": schema.source,
        "sha256": schema.fingerprint(),
        "approval": approval | {"sentence": sentence},
        "n_public": schema.n_public,
        "id_column": schema.id_column,
        "n_row_rules": len(schema.where),
        "target": {"column": schema.target.column, "classes": list(schema.target.classes)},
        "sensitive": [
            {"column": one.column, "groups": list(one.groups), "unknown": one.unknown} for one in schema.sensitive
        ],
        "columns": columns,
    }
