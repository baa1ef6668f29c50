"""Public facts of a run in, plain words out: what training would do and guarantee, before any data is touched."""

from typing import Any

from fairveil.report.privacy_text import NOT_COVERED, neighbour_of

MOST_SHOWN = 5


def explanation(facts: dict[str, Any], what: str = "fit") -> str:
    """Return the plan and its guarantee in plain words; whether decisions read the group comes first."""
    lines = [
        f"What {what} would do. No row was read for this.",
        f"  decisions  {what_is_read(facts)}",
        f"  method     {facts['method']}, {facts['model']} model",
        *(f"  bound      {bound}" for bound in shown_bounds(facts["asked"])),
        *_certifiable(facts),
        f"  size       {_size(facts)}",
        *spending(facts),
    ]
    lines += _choice(facts["plan"]) + [line for stage in facts["plan"] for line in _part(stage)]
    if facts["epsilon"] is not None:
        lines += _cover(facts) + caution(facts)
    return "\n".join(lines)


def _size(facts: dict[str, Any]) -> str:
    if facts.get("protects") == "attribute":
        return "public, as features and labels are; how many have a known attribute is not"
    if facts["n_public"]:
        return f"{facts['n_public']} {facts['unit']}s, declared public"
    return "not declared: a noisy count is bought"


def what_is_read(facts: dict[str, Any]) -> str:
    """Return whether decisions read the sensitive columns."""
    columns = " and ".join(facts["sensitive"]) or "any sensitive column"
    return f"{'may read' if facts['aware'] else 'do not read'} {columns}"


def shown_bounds(bounds: list[str]) -> list[str]:
    """Return some of the bounds, and how many more there are."""
    more = len(bounds) - MOST_SHOWN
    return bounds if more <= 1 else [*bounds[:MOST_SHOWN], f"... and {more} more"]


def spending(facts: dict[str, Any]) -> list[str]:
    """Return what a run costs, for one unit added or removed and for one replaced, and the total if it is known."""
    if facts["epsilon"] is None:
        return ["  epsilon    infinite: no privacy is claimed"]
    neighbour, replaced = neighbour_of(facts), facts["epsilon_replace_one"]
    lines = [
        f"  epsilon    {facts['epsilon_spent']:.4f} at delta {facts['delta']:g} for {neighbour.moved}; "
        f"{replaced:.4f} for {neighbour.replaced}"
    ]
    if "epsilon_spent_total" in facts:
        total = facts["epsilon_spent_total"]
        lines.append(
            f"  ever spent {'no bound can be stated' if total is None else f'{total:.4f}'} on these people, at delta "
            f"{facts['delta']:g}"
        )
    return lines


def caution(facts: dict[str, Any]) -> list[str]:
    """Return a warning where delta is too large for the declared size; it follows from public facts alone."""
    if facts["epsilon"] is None or not facts["n_public"] or facts["delta"] < 1 / facts["n_public"]:
        return []
    return [
        f"  caution    delta {facts['delta']:g} is not below 1 / {facts['n_public']}: it allows a whole record to leak "
        "now and then; choose a smaller one"
    ]


def _certifiable(facts: dict[str, Any]) -> list[str]:
    expected = facts.get("expected_tolerance")
    if expected is None and facts["asked"] and not facts["n_public"]:
        return [
            "  certifies  cannot be told beforehand: declare n_public in the schema, or --n-public, if it is public"
        ]
    if expected is None:
        return []
    return [
        f"  certifies  probably a gap of at most {expected:.3f} at 95 %, if groups are of equal size (fewer people in "
        "one make it more)"
    ]


def _choice(plan: list[dict[str, Any]]) -> list[str]:
    means = {stage["mean_runs"] for stage in plan if "mean_runs" in stage}
    return [
        f"  chooses    the best of a secret number of runs (Poisson, {mean:g} on average), each by a candidate at "
        "random; only the best is released"
        for mean in means
    ]


def _part(stage: dict[str, Any]) -> list[str]:
    rates = ", ".join(f"{cell}: {rate:g}" for cell, rate in stage["sampling_rates"].items())
    cost = "no guarantee"
    if stage["epsilon"] is not None:
        cost = f"epsilon {stage['epsilon']:.4f}, delta {stage['delta']:g}"
    whom = "all units" if stage["share"] == 1 else f"{100 * stage['share']:g} % of the units by secret coins"
    if "piece" in stage:
        whom = f"the same units as {stage['piece']}"
    kind = "look" if set(stage["sampling_rates"].values()) == {1} else "Poisson draw"
    many = f"{stage['n_steps']} {kind}s" if stage["n_steps"] > 1 else f"one {kind}"
    draws = f"{many} (rate {rates})"
    return [f"  stage       {stage['part']}: {whom}; {draws}; {cost} by itself"] + [
        f"             releases {release['name']}: {release['law']} noise, "
        f"{release['noise_multiplier']:.6g} x sensitivity"
        for release in stage["releases"]
    ]


def _cover(facts: dict[str, Any]) -> list[str]:
    more = [one for one in facts["statement"]["not_covered"] if one not in NOT_COVERED]
    return [
        f"  hides      {neighbour_of(facts).hidden}, from whoever sees all that is written",
        *(f"  not hidden {one[0].lower()}{one[1:].rstrip('.')}" for one in more),
        "  not hidden timing, the schema (declared public), and what follows from the population as a whole",
    ]
