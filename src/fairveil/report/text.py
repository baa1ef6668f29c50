"""Every other text of the terminal and the report: facts in, plain English out.

Functions take plain facts, such as a summary, and return text. They import nothing heavy, so that any package may use
them. Sentences about privacy are in `privacy_text`, those on what a result amounts to in `headlines`; a certificate
says itself what is certified.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from fairveil.report.formatting import DASH, compact, finite, fixed, percent, points
from fairveil.report.headlines import COMPARED, extremes, listed, other_gaps
from fairveil.report.privacy_text import (
    cover_lines,
    epsilon_or_none,
    neighbor_wording,
    spending_lines,
)

MOST_SHOWN = 5
"""Bounds that the terminal lists; `--json` lists all."""

CHECK_NOTE = "# values outside the schema's bounds, groups and classes, counted exactly for the data holder"

Facts = Mapping[str, Any]

VERDICT_BADGES = {
    "holds": ("good", "✓", "holds"),
    "does not hold": ("bad", "✕", "does not hold"),
    "measured above the tolerance": ("unsure", "▲", "measured above the tolerance"),
    "not enough data": ("unsure", "?", "not enough data"),
    "nothing was asked": ("none", DASH, "no bound requested"),
}
"""CSS class, sign and words of each verdict of summary.json."""

CERTIFIED = {
    "holds": "The certificate confirms that every requested bound holds.",
    "does not hold": "The certificate finds that a requested bound does not hold.",
    "measured above the tolerance": "A requested bound was measured above its limit; with so few held-out rows, chance "
    "may explain it.",
    "measured": "No bound was requested; the certificate says how large a gap may be, not that it is small enough.",
    "not enough data": "There are too few held-out rows to confirm the requested bounds or to refute them.",
}
ONLY_THE_ATTRIBUTE = (
    "Epsilon covers one column, and nothing else.",
    "It bounds what this release adds about the sensitive attribute of a person whose features and labels are known. "
    "Whether somebody is in the data, and every other column, is not protected at all; and other columns may reveal "
    "the attribute.",
)
LIMITS = (
    (
        "It is about people like those held out.",
        "The certificate and every interval describe people drawn like the held-out rows. If other people apply "
        "tomorrow, or the same people change, measure again.",
    ),
    (
        "Equal rates are not justice for a person.",
        "Two groups can be treated alike on average while one applicant is treated wrongly. Nor does a rate say "
        "whether the label that was learned is itself fair.",
    ),
    (
        "One gap is not every gap.",
        "What was bounded is the gap named above, between the groups named above. Other rates, other groups and finer "
        "intersections of groups may differ more.",
    ),
    (
        "Small groups stay unknown.",
        "Where too few rows were held out, the page says unknown. That is neither a pass nor a zero.",
    ),
    (
        "Not reading a column is not the same as not knowing it.",
        "Other columns can reveal the group. A rule that reads no sensitive column may still follow it closely.",
    ),
    (
        "Epsilon covers the rows that were used for training.",
        "It bounds what this release adds about one of them. It does not cover what was known before, what somebody "
        "computed from the same rows without this ledger, or facts about the population that hold with or without you.",
    ),
    (
        "Epsilon is a bound for one unit.",
        "A family of five, or one person with five records where the unit is a record, is covered at about five times "
        "the epsilon.",
    ),
    (
        "Delta is a real chance.",
        "The factor above may fail with a probability of about delta. It should be far below one divided by the number "
        "of people.",
    ),
    (
        "Declared facts are taken as public.",
        "Column bounds, categories and sizes of the schema are not protected. How long the computation took is not "
        "protected either.",
    ),
    (
        "The decisions themselves are not hidden.",
        "Whoever is decided upon, and whoever sees that decision, learns it. Privacy here is for the people whose rows "
        "trained the rule.",
    ),
)
ROW_LIMITS = ("Epsilon covers the rows", "The decisions themselves")
"""How the limits begin that do not apply where the attribute alone is protected."""

ATTRIBUTE_LIMITS = (ONLY_THE_ATTRIBUTE, *(one for one in LIMITS if not one[0].startswith(ROW_LIMITS)))
TRACE_WORDING = {
    False: {
        "about": "How the bounds developed during training, from noisy batches; the bands show the noise alone.",
        "dashed": "Dashed: the limit. Below it the bound is kept.",
        "multipliers": "How strongly training pushed on each bound; zero is no push.",
    },
    True: {
        "about": "How the differences developed during training, estimated from noisy counts; the bands show the noise "
        "alone.",
        "dashed": "Dashed: zero, where a difference should be; above and below it are equally wrong, and nothing is "
        "bounded.",
        "multipliers": "How strongly training pushed each difference, and in which direction; zero is no push.",
    },
}
"""The captions of the section on convergence, by whether the method only aims at no difference and bounds nothing."""


# --- phrases that several texts share ---------------------------------------------------------------------------------


def reading(facts: Facts) -> str:
    """Return whether decisions may read the sensitive columns, for the line `decisions` of the terminal."""
    columns = listed(facts["sensitive"]) or "any sensitive column"
    return f"{'may read' if facts['aware'] else 'do not read'} {columns}"


def file_options(delimiter: str | None, encoding: str | None) -> str:
    """Return the options that a further command needs to read the same file, beside what its schema says."""
    options = (("delimiter", delimiter), ("encoding", encoding))
    return "".join(f" --{name} {quote(value)}" for name, value in options if value is not None)


def number(value: float | None) -> str:
    """Return a measured number for the terminal."""
    return "unknown" if value is None else f"{value:.4f}"


def interval(facts: Facts, confidence: float) -> str:
    """Return a measured value with its interval for the terminal, whose ends are rounded outward."""
    if facts["value"] is None:
        return "unknown"
    low, high = fixed(facts["low"], toward="down"), fixed(facts["high"], toward="up")
    return f"{fixed(facts['value'])}  ({100 * confidence:g} %: {low} to {high})"


def gap_name(constraint: str, against: str | None) -> str:
    """Return what the gap is, in words."""
    if constraint.endswith("_cap"):
        return f"largest {constraint.removesuffix('_cap').replace('_', ' ')} that has a bound"
    rates = COMPARED.get(constraint, constraint.replace("_", " "))
    pair = "a group and everyone else" if against == "rest" else "any two groups"
    return f"largest difference in {rates} between {pair}"


# --- certificates -----------------------------------------------------------------------------------------------------


def _certificate_lines(certificate: Facts | None, decided: Facts | None = None) -> list[str]:
    """Return the line on what is certified; a verdict on a rule that is nearly a constant does not stand alone."""
    if certificate is None or not certificate["claims"]:
        return []
    lead = f"{certificate['verdict']}: " if certificate["verdict"] in {"holds", "does not hold"} else ""
    if lead and decided is not None and decided["is_nearly_everyone"]:
        lead = f"{lead[:-2]}, but {percent(decided['value'])} of people get the same decision: "
    return [f"  certified  {lead}{certificate['sentence']}"]


def _changes_lines(summary: Facts) -> list[str]:
    return [] if summary["changes"] is None else [f"  changed    {summary['changes']['sentence']}"]


def certificate_text(facts: Facts, ledger: Path) -> str:
    """Return what `fairveil certify` found on other people, the claims nearest their limit first."""
    claims = sorted(facts["claims"], key=lambda claim: claim["limit"] - claim["high"])
    counts = "exact, not private" if facts["epsilon"] is None else "noisy"
    level = f"{100 * facts['confidence']:g} % confidence"
    lines = [
        f"Certificate of {facts['model']} from {facts['n_rows']} rows ({counts}) of {facts['data']}.",
        f"  model      SHA-256 {facts['model_digest']}",
        f"  decisions  {reading(facts)}",
        *_certificate_lines(facts),
    ]
    for claim in claims[:MOST_SHOWN]:
        lines.append(
            f"  {claim['verdict']:15} {claim['words'] or claim['bound']}; measured {number(claim['value'])}, at most "
            f"{fixed(claim['high'], toward='up')} ({level}), limit {claim['limit']:g}"
        )
    if len(claims) > MOST_SHOWN:
        lines.append(f"  ... and {len(claims) - MOST_SHOWN} more, none closer to its limit: --json lists all")
    lines.append("  assumes    that nobody here was in the training data, which fairveil cannot see from these rows")
    if facts["protects"] == "attribute":
        lines.append(
            "  not hidden features and labels of these people, and that they are in this table: both are public here"
        )
    lines += spending_lines(facts)
    lines.append(f"Next: fairveil ledger show {quote(str(ledger))}  # everything ever released from these people")
    return "\n".join(lines)


AUDIT_LIMITS = (
    (
        "An audit shows leaks, never their absence.",
        "A lower bound above the claim disproves it. One below the claim shows only that this attack, with so many "
        "repeats, found nothing against it; the claim itself is proved in the documentation.",
    ),
    (
        "It is about the releases, not about your rows.",
        "All records are synthetic, so reading, encoding and labeling of real tables are not part of the game, nor are "
        "timing, memory and files. It costs nobody any privacy.",
    ),
    (
        "What the bound assumes.",
        "The first bound assumes that the noise is that of the plan at some scale. Above the claim it needs no "
        "assumption. The second bound never does, and is smaller.",
    ),
)
"""What an audit can and cannot show: a heading and what it means."""


def audit_text(facts: Facts) -> str:
    """Return what an audit found: the claim, the lower bound, and what that means."""
    level, reach = f"{100 * facts['confidence']:g} % confidence", facts["reach"]
    verdict = "nothing was found against the claim" if facts["holds"] else "THE CLAIM IS BROKEN: do not release by this"
    lines = [
        f"Audit of {facts['audited']}: {verdict}.",
        f"  claim        epsilon {facts['epsilon']:.4g} at delta {facts['delta']:g}",
        f"  lower bound  epsilon {facts['lower_bound']:.4g} ({level}), {percent(facts['ratio'])} of the claim",
        f"  without any assumption  epsilon {facts['lower_bound_free']:.4g}",
        f"  game         {facts['game']}, {facts['repeats']} times each",
    ]
    if reach is not None:
        lines.append(f"  canary       adds {percent(reach)} of what the plan lets one record add")
    lines += [f"  note         {heading} {words}" for heading, words in AUDIT_LIMITS]
    return "\n".join(lines)


def ranked(summary: Facts) -> list[tuple[str, Facts]]:
    """Return ROC-AUC and AUC-PR with their intervals, if the scores of the people held out were counted."""
    found = [("ROC-AUC", summary.get("roc_auc")), ("AUC-PR", summary.get("average_precision"))]
    return [(name, one) for name, one in found if one is not None]


# --- train and explain ------------------------------------------------------------------------------------------------


def training_text(
    summary: Facts, out: Path, written: Sequence[str], ledger: Path, option: str = "", cache: Path | None = None
) -> str:
    """Return the results of a finished training for the terminal, and what to do next."""
    confidence, compared, certificate = summary["confidence"], summary["comparisons"], summary["certificate"]
    constant = summary["best_constant"]
    everyone = f"accuracy of {constant['decision']!r} for everyone"
    measured = f"measured {'privately ' if summary['private_evaluation'] else ''}on held-out rows"
    if certificate is None:
        measured = "not measured: no rows were held out"
    elif summary["accuracy"]["value"] is None:
        measured = "not measured: too few held-out rows, or labels that the schema does not name (fairveil check)"
    requested = "measured, not bounded"
    if summary["tolerance"] is not None:
        requested = f"requested {summary['tolerance']:g}"
    elif not summary["asked"]:
        aim = "moves it towards 0 and" if summary["aims_at_zero"] else "does not bound it:"
        requested = f"{summary['method']} {aim} measures it"
    private, hidden = "NON-PRIVATE" if summary["epsilon"] is None else "private", ""
    if summary["protects"] == "attribute" and private == "private":
        hidden = f": hides {listed(summary['sensitive'])} and nothing else, features and labels are public here"
    lines = [
        f"Trained a {private} {summary['model']} classifier on {summary['data']} ({summary['method']}){hidden}.",
        f"  decisions  {reading(summary)}",
        *(f"  caution    {sentence}" for sentence in summary["cautions"]),
        f"  accuracy   {interval(summary['accuracy'], confidence)}, {measured}",
        *(f"  {name:10} {interval(found, confidence)}, of the model's score" for name, found in ranked(summary)),
        *([f"  constant   {interval(constant, confidence)}, {everyone}"] if constant["decision"] is not None else []),
        f"  gap        {interval(summary['gap'], confidence)}, {summary['constraint'].replace('_', ' ')}; {requested}",
        *([f"  groups     {extremes(summary['worst_pair'])}"] if summary["worst_pair"] else []),
        *(f"  other gap  {sentence}" for sentence in other_gaps(summary)),
    ]
    if compared["all"]:
        lines += [
            f"  ratio      {interval(summary['ratio'], confidence)}, smallest over largest (four fifths: 0.8)",
            f"  compared   {compared['all']} pairs or rates, {compared['unknown']} with too few rows to decide",
        ]
    claims = certificate["claims"] if certificate else []  # of groups, the certificate names the two that differ most
    broken = [one for one in claims if one["verdict"] == "does not hold" and not one["words"]][:MOST_SHOWN]
    timing = ", ".join(f"{name} {seconds:.1f}" for name, seconds in summary["timing"].items())
    lines += [
        *_certificate_lines(certificate, summary["most_common_decision"]),
        *(f"  broken     {one['bound']}; measured {number(one['value'])}" for one in broken),
        *_changes_lines(summary),
        *(f"  not model  {one['name']}: {number(one['gap'])}, {one['about']}" for one in summary["noise_statements"]),
        *spending_lines(summary),
        f"  seconds    {summary['seconds']:.1f} ({timing})",
        *([] if cache is None else [f"  rows       encoded rows stay in {cache}, as private as the table"]),
        f"Report: {out / 'report.html'}",
        f"Written: {', '.join(str(out / name) for name in written)}; ledger {ledger}",
        f"Next: fairveil predict {quote(str(out / 'model'))} NEW.csv{option} --out decisions.parquet",
        f"      fairveil ledger show {quote(str(ledger))} --delta {summary['delta']:g}  # everything ever released",
    ]
    return "\n".join(lines)


def explanation(facts: Facts, command: str = "fit", engine: str = "") -> str:
    """Return what training would do and guarantee, before any data is read; whether decisions read the group first.

    `engine` says where rows would be kept, if that is known.
    """
    bounds, expected = facts["asked"], facts["expected_tolerance"]
    shown = (
        bounds if len(bounds) <= MOST_SHOWN + 1 else [*bounds[:MOST_SHOWN], f"... and {len(bounds) - MOST_SHOWN} more"]
    )
    size = "not declared: a noisy count will be released"
    if facts["protects"] == "attribute":
        size = "public, as features and labels are; how many have a known attribute is not"
    elif facts["n_public"]:
        size = f"{facts['n_public']} {facts['unit']}s, declared public"
    lines = [
        f"What {command} would do. No row was read for this.",
        f"  decisions  {reading(facts)}",
        f"  method     {facts['method']}, {facts['model']} model",
        *(f"  features   {words}" for words in feature_words(facts)),
        *(f"  bound      {bound}" for bound in shown),
    ]
    if expected is not None:
        lines.append(
            f"  certifies  probably a gap of at most {expected:.3f} at 95 % confidence, if groups are of equal size "
            "(more if one is smaller)"
        )
    elif bounds and not facts["n_public"]:
        lines.append("  certifies  cannot be predicted: declare n_public in the schema, or --n-public, if it is public")
    if facts["certification_chance"] is not None:
        lines.append(f"  chance     {percent(facts['certification_chance'], 0)} that the request will be certified")
    lines += [f"  caution    {sentence}" for sentence in facts.get("cautions", ())]
    lines += [f"  size       {size}; {percent(facts['holdout'], 0)} held out", *spending_lines(facts)]
    lines += [f"  engine     {engine}"] if engine else []
    lines += [
        f"  chooses    the best of a secret number of runs (Poisson, {mean:g} on average), each by a random candidate; "
        "only the best is released"
        for mean in {stage["mean_runs"] for stage in facts["plan"] if "mean_runs" in stage}
    ]
    for stage in facts["plan"]:
        lines += _stage_lines(stage)
    return "\n".join([*lines, *cover_lines(facts)])


def feature_words(facts: Facts) -> list[str]:
    """Return one sentence on features that the schema does not list, or none."""
    detail, words = facts["features"], []
    if detail["resolution"] > 1:
        words.append(f"each bin of a number divided into {detail['resolution']} as well")
    if detail["pair_bins"]:
        words.append("pairs of columns")
    if any(stage["part"] == "levels" for stage in facts["plan"]):
        words.append("levels weighed by how frequent they are, from one noisy count (levels, below)")
    return ["; ".join(words)] if words else []


def _stage_lines(stage: Facts) -> list[str]:
    """Return a stage of a plan: who is read, how often, at which noise and cost."""
    rates = ", ".join(f"{cell}: {rate:g}" for cell, rate in stage["sampling_rates"].items())
    cost = "no guarantee"
    if stage["epsilon"] is not None:
        cost = f"epsilon {stage['epsilon']:.4f}, delta {stage['delta']:g}"
    units = "all units" if stage["share"] == 1 else f"a secret random {100 * stage['share']:g} % of the units"
    if "piece" in stage:
        units = f"the same units as {stage['piece']}"
    draw = "full pass" if set(stage["sampling_rates"].values()) == {1} else "Poisson draw"
    draws = (
        f"one {draw}" if stage["n_steps"] == 1 else f"{stage['n_steps']} {draw}{'es' if draw == 'full pass' else 's'}"
    )
    return [f"  stage      {stage['part']}: {units}; {draws} (rate {rates}); {cost} by itself"] + [
        f"             releases {release['name']}: {release['law']} noise, "
        f"{release['noise_multiplier']:.6g} x sensitivity"
        for release in stage["releases"]
    ]


# --- the other commands -----------------------------------------------------------------------------------------------


def frontier_text(facts: Facts, out: Path, model: Path, ledger: Path) -> str:
    """Return every point of a sweep, what all of them cost together, and what to do next."""
    lines = [f"{len(facts['points'])} points on {facts['data']}, accuracy and gap on held-out rows:"]
    width = max((len(point["method"]) for point in facts["points"]), default=0)
    for point in facts["points"]:
        epsilon = "inf" if point["epsilon"] is None else f"{point['epsilon']:.3g}"
        tolerance = "   -" if point["tolerance"] is None else f"{point['tolerance']:.2f}"
        lines.append(
            f"  {point['method']:{width}}  epsilon {epsilon:5} tolerance {tolerance}   accuracy "
            f"{number(point['accuracy']['value'])}   gap {number(point['gap']['value'])}   "
            f"{VERDICT_BADGES[point['verdict']][2] if point['verdict'] in VERDICT_BADGES else 'not certified'}"
        )
    if facts["epsilon_sweep"] is not None:
        besides = f"; {epsilon_or_none(facts['epsilon_besides_sweep'])} was spent on these people before or besides it"
        lines.append(f"  this sweep {epsilon_or_none(facts['epsilon_sweep'])}, its points together{besides}")
    lines += [
        f"  ever spent {epsilon_or_none(facts['epsilon_spent_total'])} on these people, all points together (delta "
        f"{facts['delta']:g}): choosing one after seeing all costs that, not its own epsilon",
        "  certified  each tolerance by itself: one of many may seem to hold by chance; certify the chosen one again",
        f"Page: {out / 'frontier.html'}",
        f"Written: {out / 'frontier.csv'}, {out / 'points'}; ledger {ledger}",
        f"Next: fairveil predict {quote(str(model))} NEW.csv --out decisions.parquet  "
        "# every point's model is already trained and paid for",
    ]
    return "\n".join(lines)


def sweep_notice(n_points: int, n_left: int, repeated: Sequence[tuple[str, float]]) -> str:
    """Return what a sweep is about to do; `repeated` are methods and epsilons that must be trained and paid again."""
    done = "" if n_left == n_points else f", {n_points - n_left} of them already trained"
    lines = [f"{n_points} points{done}; all are released from the same people."]
    lines += [
        f"{method} is trained again at epsilon {epsilon:g}, at the full cost: what its first training released was not "
        "kept. Request all tolerances at once."
        for method, epsilon in repeated
    ]
    return "\n".join(lines)


def check_text(facts: Facts, next_step: str) -> str:
    """Return the values of a table that do not match its schema: exact counts, for the data holder only."""
    findings = facts["findings"]
    width = max((len(finding["column"]) for finding in findings), default=0)
    lines = [f"PRIVATE: exact counts of {facts['data']}, for its holder only. Do not publish them."]
    lines += [
        f"  {finding['column']:{width}}  {finding['count']:>8}  {finding['what']} -> {finding['rule']}"
        for finding in findings
    ]
    lines.append("All other values match the schema." if findings else "Every value matches the schema.")
    return "\n".join([*lines, next_step])


def draft_text(facts: Facts, next_step: str) -> str:
    """Return what `fairveil schema draft` wrote.

    ``schema private_draft epsilon delta n_features classes positive groups notes private_notes`` are needed.
    """
    contents = f": {facts['n_features']} features, classes {', '.join(facts['classes'])}"
    is_private = facts["epsilon"] is None
    lines = [f"Wrote {facts['schema']}{'' if facts['private_draft'] else contents}."]
    if not is_private:
        lines.insert(
            0,
            f"  debited    epsilon {facts['epsilon']:g} at delta {facts['delta']:g} from the ledger of this data set",
        )
    lines += [f"  note       {note}" for note in facts["notes"]]
    if is_private:
        lines.append("PRIVATE, from exact counts of the rows, for their holder only:")
    lines += [
        f"  positive   {facts['positive']} counts as the positive class, the desirable outcome; change it with "
        "--positive CLASS or in [target]",
        f"  groups     {', '.join(facts['groups'])}; change them in [[sensitive]], numbers also with --cuts 30,50",
        *(f"  caution    {note}" for note in facts["private_notes"]),
    ]
    if facts["private_draft"]:
        lines += [
            "The draft was computed from the rows, so it is as private as they are. Replace every bound, cut and "
            "category by public knowledge, declare n_public if it is public, and approve it:",
            f"Next: fairveil schema approve {quote(facts['schema'])} --yes",
        ]
        return "\n".join(lines)
    return "\n".join([*lines, next_step])


def approval_text(facts: Facts) -> str:
    """Return that a schema is approved."""
    step = explain_step("DATA.csv", facts["schema"])
    by = f"by {facts['by']}" if facts["by"] else "by a person whose name is not stated (--by NAME)"
    return f"Approved {by} at {facts['at']}: every fact in {facts['schema']} is now treated as public.\n{step}"


def explain_step(data: str, schema: str | None, more: str = "") -> str:
    """Return the line that proposes to read the plan; a person chooses epsilon, tolerance and awareness."""
    option = "" if schema is None else f" --schema {quote(schema)}"
    return (
        f"Next: fairveil explain {quote(data)}{option}{more} --epsilon 1 --tolerance 0.05 "
        "--unaware  # --aware if decisions may read the group"
    )


# --- the report -------------------------------------------------------------------------------------------------------


def awareness(sensitive: Sequence[str], aware: bool) -> str:
    """Return whether decisions read the sensitive columns: the first thing to know."""
    if not sensitive:
        return "No sensitive column was named"
    return f"Decisions {'read' if aware else 'do not read'} {listed(sensitive)}"


def overview(summary: Facts) -> list[str]:
    """Return the report in a few sentences for somebody who reads nothing else."""
    positive = "" if summary["positive"] is None else f"; {summary['positive']} counts as selected"
    trained = (
        f"A {summary['model']} classifier was trained on {summary['data']} with the method {summary['method']} to "
        f"predict {summary['target']}{positive}."
    )
    accuracy, how = finite(summary["accuracy"]["value"]), "with noise for privacy"
    if not summary["private_evaluation"]:
        how = "without noise, which is not private"
    accurate = f"On rows that it had not seen it is right {percent(accuracy)} of the time, measured {how}."
    constant, decided = summary["best_constant"], summary["most_common_decision"]
    if constant["value"] is not None:
        accurate += (
            f" Deciding {constant['decision']} for everyone would be right {percent(constant['value'])} of the time."
        )
    if decided["is_nearly_everyone"]:
        accurate += (
            f" It decides {decided['decision']} for {percent(decided['value'])} of the people, so it hardly "
            "distinguishes anybody."
        )
    if accuracy is None:
        accurate = "How often it is right was not measured: no rows, or too few, were held out."
    name, gap = gap_name(summary["constraint"], summary["against"]), finite(summary["gap"]["value"])
    tolerance = finite(summary["tolerance"])
    requested = "no tolerance was requested" if tolerance is None else f"at most {points(tolerance, 2)} was requested"
    fair = f"The {name} was measured as {points(gap, 2)}; {requested}."
    if summary["worst_pair"] is not None:
        pair = extremes(summary["worst_pair"])
        fair += f" {pair[:1].upper()}{pair[1:]}."
    if gap is None:
        fair = f"The {name} is unknown."
    certified = "Nothing is certified, because no rows were held out."
    if summary["certificate"] is not None:
        certified = CERTIFIED.get(summary["certificate"]["verdict"], "No bound was requested, so none is certified.")
    spent, private = finite(summary["epsilon_spent"]), "The training was not private."
    if spent is not None:
        public = ""
        if summary["protects"] == "attribute":
            public = "; features and labels are not hidden at all, and may reveal it"
        hidden = neighbor_wording(summary).hidden
        private = (
            f"{hidden[:1].upper()}{hidden[1:]} stays hidden up to epsilon {compact(spent, 3)} at delta "
            f"{compact(summary['delta'])}{public}."
        )
        total = finite(summary["epsilon_spent_total"])
        if total is not None:
            released = "that this process" if summary["ledger"].get("in_memory") else "ever"
            private += f" With everything {released} released from these people, epsilon is {compact(total, 3)}."
    return [trained, accurate, fair, certified, private]
