"""Facts in, plain words out: what a person reads on the terminal."""

from pathlib import Path
from shlex import quote
from typing import Any

from fairveil.report.explanation import MOST_SHOWN, caution, spending, what_is_read


def results(summary: dict[str, Any], out: Path, ledger: Path, delimiter: str = ",") -> str:
    """Return the summary of a finished training, and what to do next."""
    level = f"{100 * summary['confidence']:g} %"
    measured = (
        "measured privately on held-out rows"
        if summary["private_evaluation"]
        else "measured on held-out rows"
    )
    if summary["certificate"] is None:
        measured = "not measured: no rows were held out"
    elif summary["accuracy"]["value"] is None:
        measured = (
            "not measured: too few held-out rows, or labels that the schema does not name (fairveil check)"
        )
    gap = summary["constraint"].replace("_", " ")
    lines = [
        f"Trained a {_private(summary)} {summary['model']} classifier on {summary['data']} ({summary['method']})"
        f"{_hides(summary)}.",
        f"  decisions  {what_is_read(summary)}",
        f"  accuracy   {_interval(summary['accuracy'], level)}, {measured}",
        f"  gap        {_interval(summary['gap'], level)}, {gap}{_asked(summary)}",
        *_compared(summary, level),
        *_certificate(summary["certificate"]),
        *_over_noise(summary),
        *_bounds(summary),
        *spending(summary),
        *caution(summary),
        f"  seconds    {summary['seconds']:.1f} ({_timing(summary)})",
        f"Report: {out / 'report.html'}",
        f"Written: {', '.join(str(out / name) for name in _written(out))}; ledger {ledger}",
        f"Next: fairveil predict {quote(str(out / 'model'))} NEW.csv{_cells(delimiter)} --out decisions.parquet",
        f"      fairveil ledger show {quote(str(ledger))} --delta {summary['delta']:g}  # all that was ever released",
    ]
    return "\n".join(lines)


def _written(out: Path) -> list[str]:
    return [
        name for name in ("model", "summary.json", "constraint_trace.csv", "key") if (out / name).exists()
    ]


def certified(facts: dict[str, Any], ledger: Path) -> str:
    """Return a certificate on people of their own."""
    lines = [
        f"Certificate of {facts['model']} from {facts['n_rows']} rows ({_exactly(facts)}) of {facts['data']}.",
        f"  decisions  {what_is_read(facts)}",
        *_certificate(facts),
        *_claims(facts["claims"]),
        *_open_here(facts),
        "  assumes    that none of these people was trained on, which fairveil cannot see from their rows",
        *spending(facts),
        f"Next: fairveil ledger show {quote(str(ledger))}  # everything ever released from these people",
    ]  # fmt: skip
    return "\n".join(lines)


def _open_here(facts: dict[str, Any]) -> list[str]:
    """Return what is not hidden of these people where an attribute alone is."""
    if facts["protects"] != "attribute":
        return []
    return ["  not hidden their features and labels, and that they are in this table: they are public here"]


def _claims(claims: list[dict[str, Any]]) -> list[str]:
    """Return the claims that are closest to being broken, or beyond it, and how many more there are."""
    ordered = sorted(claims, key=lambda claim: claim["limit"] - claim["upper"])
    lines = [
        f"  {claim['verdict']:15} {claim['bound']}; measured {_number(claim['value'])}, surely at most "
        f"{claim['upper']:.4f}"
        for claim in ordered[: 2 * MOST_SHOWN]
    ]
    more = len(ordered) - len(lines)
    return [*lines, f"  ... and {more} more, none of them closer: --json lists all"] if more > 0 else lines


def _cells(delimiter: str) -> str:
    return "" if delimiter == "," else f" --delimiter {quote(delimiter)}"


def _exactly(facts: dict[str, Any]) -> str:
    return "exact, not private" if facts["epsilon"] is None else "noisy"


def _timing(summary: dict[str, Any]) -> str:
    return ", ".join(f"{name} {seconds:.1f}" for name, seconds in summary["timing"].items())


def _asked(summary: dict[str, Any]) -> str:
    if not summary["asked"]:
        aimed = "brings it towards 0 and" if summary["method"] == "pfld" else "does not bound it:"
        return f"; {summary['method']} {aimed} measures it"
    return (
        "; measured, not bounded" if summary["tolerance"] is None else f"; asked for {summary['tolerance']:g}"
    )


def _compared(summary: dict[str, Any], level: str) -> list[str]:
    """Return lines that are there whatever was measured: which ones are may depend on public facts alone."""
    compared = summary["comparisons"]
    if not compared["all"]:
        return []
    return [
        f"  ratio      {_interval(summary['ratio'], level)}, smallest over largest (four fifths: 0.8)",
        f"  compared   {compared['all']} pairs or rates, {compared['unknown']} of too few held-out rows to tell",
    ]


def _certificate(certificate: dict[str, Any] | None) -> list[str]:
    if certificate is None or certificate["verdict"] == "nothing was asked":
        return []
    plain = certificate["verdict"] in {"not enough data", "measured"}
    lead = "" if plain else f"{certificate['verdict']}: "
    return [f"  certified  {lead}{certificate['sentence']}"]


def _bounds(summary: dict[str, Any]) -> list[str]:
    """Return each bound that is shown to be broken, and what training itself noticed."""
    broken = [one for one in summary["bounds"] if one["holds"] == "no"]
    lines = [f"  broken     {one['bound']}; measured {_number(one['value'])}" for one in broken[:MOST_SHOWN]]
    return lines + [f"  caution    {sentence}" for sentence in summary["cautions"]]


def _over_noise(summary: dict[str, Any]) -> list[str]:
    """Return FairDP's statements, each with what it is not about."""
    return [
        f"  not model  {one['name']}: {_number(one['gap'])}, {one['about']}"
        for one in summary["noise_statements"]
    ]


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"


def _private(summary: dict[str, Any]) -> str:
    return "NON-PRIVATE" if summary["epsilon"] is None else "private"


def _hides(summary: dict[str, Any]) -> str:
    """Return what is hidden where that is not whole records."""
    if summary["protects"] != "attribute" or summary["epsilon"] is None:
        return ""
    return (
        f": hides {' and '.join(summary['sensitive'])} and nothing else, features and labels are public here"
    )


def _interval(interval: dict[str, float | None], level: str) -> str:
    if interval["value"] is None:
        return "unknown"
    return f"{interval['value']:.4f}  ({level}: {interval['low']:.4f} to {interval['high']:.4f})"
