"""Sentences about single decisions: what a note means, why there are no reasons, how many groups were unknown."""

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from fairveil.report.formatting import percent
from fairveil.report.text import listed, reading

NOTES = ("", "fairness rule", "randomized", "randomized against the score")
UNKNOWN_GROUP = "unknown group"
NOTE_MEANINGS = {
    "": "The decision is the class with the largest probability of the model.",
    "fairness rule": "The decision is not the class with the largest probability of the model, because the rule that "
    "keeps the fairness bound decides otherwise.",
    "randomized": "The decision was drawn at random, by the key and the record, and agrees with the score.",
    "randomized against the score": "The decision was drawn at random, by the key and the record, and is not the one "
    "that the score alone would lead to; so no column is a reason for it.",
    UNKNOWN_GROUP: "The group of this row is missing or not listed in the schema. It stands after another "
    "note, if there is one.",
}
"""What each text in the column `note` of a decision file means; also kept in the metadata of a Parquet file."""

LOG_ODDS = "log-odds"
RULE_SCORE = "rule score"
POINT_MEANINGS = {
    LOG_ODDS: "A point is one unit of the log-odds of the favorable class.",
    RULE_SCORE: "A point is one unit of the score that the rule compares, a weighted sum of probabilities.",
}

MANY_UNKNOWN = 0.01
"""From this share of rows on, unknown groups are a caution: a spelling that differs is likelier than new groups."""


def unknown_groups_sentence(n_unknown: int, n_rows: int, attributes: Sequence[Any]) -> str:
    """Return what a caution about unknown groups says; attributes have a name and the groups that the schema names."""
    share = percent(n_unknown / max(n_rows, 1), unit=" %")
    named = listed([f"{one.name} ({clip_names(one.groups)})" for one in attributes])
    return (
        f"{n_unknown} of {n_rows} rows ({share}) have a missing or unlisted group; the schema lists {named}. What was "
        "learned about the groups does not apply to these rows: check how the groups are spelled, and decide again."
    )


def clip_names(names: Sequence[str]) -> str:
    """Return at most five names, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def no_reasons_sentence(name: str) -> str:
    """Return why a classifier that was fitted elsewhere gets no reasons."""
    return (
        f"Expected a model that was trained here to give reasons, got a {name} that was fitted elsewhere, whose inputs "
        "only it knows; leave out the reasons, or explain it with tools of its own."
    )


def no_shapes_sentence(kind: str) -> str:
    """Return why a model has no points by column; `kind` is "fitted", "mlp", "pairs" or "joint"."""
    what = {
        "fitted": "The classifier was fitted elsewhere",
        "mlp": "The model is a neural network",
        "pairs": "The model weighs pairs of columns (--model linear trains one that does not)",
        "joint": "The model predicts group and label together, and the rule weighs these probabilities",
    }[kind]
    return f"{what}: the score is not a sum of points by column, so there are no shapes to draw."


def prediction_text(facts: Mapping[str, Any], option: str) -> str:
    """Return what `fairveil predict` wrote, and what may surprise a reader of it."""
    unknown = "; people of no known group are decided by the model alone" if facts["aware"] else ""
    lines = [
        f"Wrote {facts['n_rows']} decisions to {facts['out']}: columns {', '.join(facts['columns'])}.",
        f"  decisions  {reading(facts)}{unknown}",
        f"  model      digest {facts['model_digest']}",
    ]
    if facts["n_unknown_groups"] is not None:
        lines.append(
            f"  groups     {facts['n_unknown_groups']} of {facts['n_rows']} rows have a missing or unlisted group"
        )
    if facts["may_differ"]:
        why = "the rule weighs the model's probabilities to keep the fairness bound"
        if facts["is_random"]:
            why = "some decisions are drawn at random"
        elif facts["reads_group"]:
            why = "each group has a threshold of its own to keep the fairness bound"
        lines.append(
            f"  note       a decision may differ from the largest probability, because {why}; the column note says "
            "which one does"
        )
    if facts["reasons"]["n"]:
        lines.append(
            f"  reasons    the columns that cost the most points, for every decision but "
            f"{facts['reasons']['favorable']}. {POINT_MEANINGS[facts['reasons']['points']]}"
        )
    lines += [f"Caution: {sentence}" for sentence in facts["cautions"]]
    lines += [
        "Decisions and these counts are about the people of this table: keep them as private as their data.",
        f"Next: fairveil certify {quote(facts['model'])} HELD_OUT.csv{option} --epsilon 0.2",
    ]
    return "\n".join(lines)
