"""Sentences for auditors, used by the report, the model card and the command line."""

from collections.abc import Mapping
from typing import Any

Facts = Mapping[str, Any]

EXCLUDABLE = 0.02
"""The share of the data below which New York City's rule lets an auditor leave a category out (6 RCNY 5-301(d))."""

NOT_STATED = "not stated"

IMPACT_LIMITS = (
    "The form is that of New York City's Local Law 144 (6 RCNY 5-301): the impact ratio of a category is its selection "
    "rate divided by that of the most selected category. The law sets no threshold, and this table claims none.",
    "Every category with enough people is compared, small ones too. Where the most selected one is small, noise moves "
    "every ratio: read the intervals.",
    "It is not a bias audit: that takes an independent auditor and, where there are enough, data of the tool's use. "
    "These are noisy counts of people held out from the training data, and selected means the decision named above.",
    "Which column holds sex and which race or ethnicity, and whether its groups are the categories that the rule "
    "names, is for the auditor to say.",
)
"""What a table of impact ratios is, and what it is not."""

BUDGET_CAPTION = (
    "What each stage would cost by itself. These epsilons do not add up to the total: composition costs less than the "
    "sum, and stages that read different people do not add up at all."
)

UNSIGNED = (
    "Whoever can write both these files and the ledger can write others that fit together. To exclude that, keep the "
    "ledger's head where they cannot write, or have the owner sign summary.json."
)
"""What digests do not show."""


def verification_text(facts: Facts) -> str:
    """Return what `fairveil verify` found: every check, what was not checked, and what none of them shows."""
    lines = [f"The results in {facts['folder']} belong together and are as they were written."]
    lines += [f"  {name:<14}{words}" for name, words in facts["checks"].items()]
    lines += [f"  not checked   {sentence}" for sentence in facts["not_checked"]]
    return "\n".join([*lines, f"  note          {UNSIGNED}"])
