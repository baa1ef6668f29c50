"""Facts in, plain words out: what a person reads on the terminal."""

from pathlib import Path
from shlex import quote
from typing import Any

__all__ = ["explanation", "results"]

MOST_SHOWN = 5


def results(name: str, summary: dict[str, Any], out: Path, ledger: Path, trace: Path | None) -> str:
    """Return the summary of a finished training; `trace` is where the course of the bounds was written, if anywhere."""
    level = f"{100 * summary['confidence']:g} %"
    measured = (
        "measured privately on held-out rows"
        if summary["private_evaluation"]
        else "measured on held-out rows"
    )
    if summary["accuracy"]["value"] is None:
        measured = "not measured: too few held-out rows, or --holdout 0"
    gap, compared = summary["constraint"].replace("_", " "), summary["comparisons"]
    lines = [
        f"Trained a {_private(summary)} {summary['model']} classifier on {name} ({summary['method']}, "
        f"{'may read' if summary['aware'] else 'does not read'} {_columns(summary)}).",
        f"  accuracy   {_interval(summary['accuracy'], level)}, {measured}",
        f"  gap        {_interval(summary['gap'], level)}, {gap}{_asked(summary)}",
        *(
            [
                f"  compared   {compared['all']} pairs or rates, {compared['unknown']} of too few held-out rows to tell"
            ]
            if compared["all"]
            else []
        ),
        *_bounds(summary),
        *_spending(summary),
        *_caution(summary),
        f"  seconds    {summary['seconds']:.1f}",
        f"Written: {out / 'summary.json'}, {out / 'model'}{'' if trace is None else f', {trace}'}; ledger {ledger}",
        f"Next: fairveil ledger show {quote(str(ledger))}  (everything ever released from these people)",
    ]
    return "\n".join(lines)


def _asked(summary: dict[str, Any]) -> str:
    if not summary["asked"]:
        return f"; {summary['method']} does not bound it"
    return (
        "; measured, not bounded" if summary["tolerance"] is None else f"; asked for {summary['tolerance']:g}"
    )


def _columns(facts: dict[str, Any]) -> str:
    return " and ".join(facts["sensitive"]) or "any sensitive column"


def _shown(bounds: list[str]) -> list[str]:
    """Return some of the bounds, and how many more there are."""
    more = len(bounds) - MOST_SHOWN
    return bounds if more <= 1 else [*bounds[:MOST_SHOWN], f"... and {more} more"]


def _bounds(summary: dict[str, Any]) -> list[str]:
    """Return how many of the bounds are shown to hold, each one that is not, and what training itself noticed."""
    told, lines = summary["bounds"], []
    if told:
        n_held = sum(one["holds"] == "yes" for one in told)
        lines.append(f"  bounds     {n_held} of {len(told)} shown to hold on held-out rows, all at once")
    broken = [one for one in told if one["holds"] == "no"]
    lines += [f"  broken     {one['bound']}; measured {_number(one['value'])}" for one in broken[:MOST_SHOWN]]
    return lines + [f"  caution    {sentence}" for sentence in summary["cautions"]]


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"


def _private(summary: dict[str, Any]) -> str:
    return "NON-PRIVATE" if summary["epsilon"] is None else "private"


def _interval(interval: dict[str, float | None], level: str) -> str:
    if interval["value"] is None:
        return "unknown"
    return f"{interval['value']:.4f}  ({level}: {interval['low']:.4f} to {interval['high']:.4f})"


def _spending(facts: dict[str, Any]) -> list[str]:
    if facts["epsilon"] is None:
        return ["  epsilon    infinite: no privacy is claimed"]
    replaced = facts["epsilon_replace_one"]
    lines = [
        f"  epsilon    {facts['epsilon_spent']:.4f} at delta {facts['delta']:g} for one {facts['unit']} added or "
        f"removed; {replaced:.4f} for one replaced"
    ]
    if "epsilon_spent_total" in facts:
        total = facts["epsilon_spent_total"]
        lines.append(
            f"  ever spent {'no bound can be stated' if total is None else f'{total:.4f}'} on these people"
        )
    return lines


def explanation(name: str, facts: dict[str, Any]) -> str:
    """Return the plan and its guarantee in plain words."""
    size = "not declared: a noisy count is bought"
    if facts["n_public"]:
        size = f"{facts['n_public']} {facts['unit']}s, declared public"
    lines = [
        f"What 'fairveil train {name}' would do. No row was read for this.",
        f"  method     {facts['method']}, {facts['model']} model, "
        f"{'may read' if facts['aware'] else 'does not read'} {_columns(facts)}",
        *(f"  bound      {bound}" for bound in _shown(facts["asked"])),
        f"  size       {size}",
        *_spending(facts),
    ]
    lines += [line for part in facts["plan"] for line in _part(part)]
    if facts["epsilon"] is not None:
        lines += _cover(facts) + _caution(facts)
    return "\n".join(lines)


def _part(part: dict[str, Any]) -> list[str]:
    rates = ", ".join(f"{cell}: {rate:g}" for cell, rate in part["sampling_rates"].items())
    cost = "no guarantee"
    if part["epsilon"] is not None:
        cost = f"epsilon {part['epsilon']:.4f}, delta {part['delta']:g}"
    whom = "all units" if part["share"] == 1 else f"{100 * part['share']:g} % of the units by secret coins"
    if "piece" in part:
        whom = f"the same units as {part['piece']}"
    draws = "one look" if part["n_steps"] == 1 else f"{part['n_steps']} Poisson draws"
    draws = f"{draws} (rate {rates})"
    return [f"  part       {part['part']}: {whom}; {draws}; {cost} by itself"] + [
        f"             releases {release['name']}: {release['law']} noise, "
        f"{release['noise_multiplier']:.6g} x sensitivity"
        for release in part["releases"]
    ]


def _cover(facts: dict[str, Any]) -> list[str]:
    lines = [
        f"  hides      whether any one {facts['unit']} is in the data, from whoever sees all that is written",
        "  not hidden timing, the schema (declared public), and what follows from the population as a whole",
    ]
    return lines


def _caution(facts: dict[str, Any]) -> list[str]:
    """Return a warning where delta is too large for the declared size; it follows from public facts alone."""
    if facts["epsilon"] is None or not facts["n_public"] or facts["delta"] < 1 / facts["n_public"]:
        return []
    return [
        f"  caution    delta {facts['delta']:g} is not below 1 / {facts['n_public']}: it allows a whole record to leak "
        "now and then; choose a smaller one"
    ]
