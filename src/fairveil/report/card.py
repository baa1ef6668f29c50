"""The model card: a summary as Markdown with the front matter that model registries read."""

import json
from collections.abc import Mapping
from typing import Any

from fairveil.report.charts import in_words, measurement
from fairveil.report.evidence_text import IMPACT_LIMITS, NOT_STATED
from fairveil.report.formatting import compact, fixed, points, whole
from fairveil.report.text import ATTRIBUTE_LIMITS, LIMITS, awareness, gap_name, interval, overview, ranked

LIBRARY = "fairveil"
TASK = "tabular-classification"
"""The registries' own name of what these models do."""

FIRST = ("selection_rate", "accuracy")
"""Which rates of groups a card shows; the report shows all."""

Facts = Mapping[str, Any]


def model_card(summary: Facts) -> str:
    """Return the model card of one training: Markdown that starts with the front matter of Hugging Face.

    Parameters
    ----------
    summary : mapping
        What `summary.json` of a training holds.

    Notes
    -----
    Everything on the card is in the summary, so the card costs no privacy. The license is "unknown" until somebody who
    may decide it writes another one.
    """
    origin, statement, cautions = summary["provenance"], summary["statement"], summary["cautions"]
    columns = [(one["column"], one["declared"]) for one in origin["schema"]["columns"]]
    limits = ATTRIBUTE_LIMITS if summary["protects"] == "attribute" else LIMITS
    head = summary["ledger"]["head"]
    sections = [
        _front_matter(summary),
        f"# Model card: {_inline(summary['target'])} from {_inline(summary['data'])}",
        _inline(" ".join(overview(summary))),
        "## Responsibility",
        _listed(
            {
                "Owner": origin["owner"] or NOT_STATED,
                "Purpose": origin["purpose"] or NOT_STATED,
                "License": NOT_STATED,
                "Trained": f"{summary['created']} with fairveil {summary['version']}",
                "Model (SHA-256)": summary["model_digest"] or "not saved with this summary",
                "Ledger head": "none" if head is None else f"{head['chain']} at line {head['n_lines']}",
                "Schema": origin["schema"]["approval"]["sentence"],
            }
        ),
        "## Decisions",
        _inline(f"{awareness(summary['sensitive'], summary['aware'])}. The inputs are {', '.join(origin['inputs'])}."),
        _table(("Column", "Declared"), columns),
        "## Privacy",
        *(_inline(sentence) for sentence in (*statement["covered"], statement["total"])),
        "Not covered:",
        "\n".join(f"- {_inline(sentence)}" for sentence in statement["not_covered"]),
        "## Accuracy and fairness",
        *_measured_sections(summary),
        "## Limits",
        "\n".join(f"- **{_inline(heading)}** {_inline(words)}" for heading, words in limits),
    ]
    if cautions:
        sections += ["## Cautions", "\n".join(f"- {_inline(sentence)}" for sentence in cautions)]
    return "\n\n".join(sections) + "\n"


def _front_matter(summary: Facts) -> str:
    """Return the front matter as YAML; every text is written as JSON, which YAML reads as it is.

    Metrics were measured with noise on held-out rows of the owner's data; they are stated as not verified by others.
    """
    metrics = [
        {"name": label, "type": kind, "value": summary[key]["value"], "verified": False}
        for label, kind, key in (("Accuracy", "accuracy", "accuracy"), ("Fairness gap", summary["constraint"], "gap"))
        if summary[key]["value"] is not None
    ]
    results = {
        "task": {"type": TASK},
        "dataset": {
            "name": str(summary["data"]),
            "type": "private" if summary["provenance"]["data_reference"] else "table",
        },
        "metrics": metrics,
    }
    private = "differential-privacy" if summary["epsilon"] is not None else "not-private"
    facts = {
        "license": "unknown",
        "library_name": LIBRARY,
        "pipeline_tag": TASK,
        "tags": [LIBRARY, "tabular-classification", "fairness", private, str(summary["method"])],
        "metrics": [metric["type"] for metric in metrics],
        "model-index": [
            {"name": f"{summary['target']} from {summary['data']}", "results": [results] if metrics else []}
        ],
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in facts.items()]
    shown = ["".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in line) for line in lines]
    return "\n".join(["---", *shown, "---"])


def _measured_sections(summary: Facts) -> list[str]:
    """Return accuracy, gap and certificate, the rates of groups, impact ratios, and people of no known group."""
    name = gap_name(summary["constraint"], summary["against"])
    sections = [
        f"Measured on held-out people; intervals have a confidence of {compact(100 * summary['confidence'])} %.",
        _listed(
            {
                "Accuracy": in_words(measurement(summary["accuracy"])),
                **{name: interval(found, summary["confidence"]) for name, found in ranked(summary)},
                name[:1].upper() + name[1:]: in_words(measurement(summary["gap"]), points),
                "Certificate": "none" if summary["certificate"] is None else summary["certificate"]["sentence"],
            }
        ),
    ]
    if not summary["groups"]:
        return [*sections, "No groups were measured."]
    rates = [[measurement(one["rates"].get(rate)) for rate in FIRST] for one in summary["groups"]]
    sizes = [(one["group"], whole(one["size"])) for one in summary["groups"]]
    rows = [(*size, *map(in_words, row)) for size, row in zip(sizes, rates, strict=True)]
    sections.append(_table(("Group", "People (noisy)", "Selection rate", "Accuracy"), rows))
    for table in summary["impact_ratios"]:
        rows = []
        for one in table["categories"]:
            ratio = "{} ({} to {})".format(*(fixed(one["impact_ratio"][end], 3) for end in ("value", "low", "high")))
            rate = in_words(measurement(one["selection_rate"]))
            rows.append((one["category"], whole(one["size"]), rate, ratio))
        sections.append(f"Impact ratios by {_inline(' and '.join(table['by']))}:")
        sections.append(_table(("Category", "People (noisy)", "Selection rate", "Impact ratio"), rows))
        sections += map(_inline, table["notes"])
    return [*sections, *map(_inline, IMPACT_LIMITS), *map(_inline, summary["unknown_groups"]["sentences"])]


def _inline(text: Any) -> str:
    """Return a text that Markdown shows as it is, on one line: no name may become markup, a heading or a link."""
    words = " ".join(str(text).split())
    return "".join(f"\\{char}" if char in "\\`*_{}[]<>#|~&!$" else char for char in words)


def _listed(facts: Mapping[str, Any]) -> str:
    return "\n".join(f"- **{_inline(name)}**: {_inline(value)}" for name, value in facts.items())


def _table(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    lines += [" | ".join(_inline(cell) for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)
