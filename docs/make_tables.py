"""Write the tables of README.md and of the research pages from docs/research/figures/*.csv.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``; a NAME that begins with reproduce/ is a file that
a script of benchmarks/reproduce wrote, and one that begins with bench/ of benchmarks/bench_tables.py. They are shown
with all of their columns, their caveats and their command. Change the CSV file, then run

    python docs/make_tables.py
"""

import csv
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent
FIGURES = DOCS / "research" / "figures"
PAGES = (
    DOCS.parent / "README.md",
    DOCS / "how-to" / "choose-a-method.md",
    DOCS / "research" / "benchmarks.md",
    DOCS / "research" / "rivals.md",
    *sorted((DOCS / "research" / "papers").glob("*.md")),
)

MEAN_AND_INTERVAL = {
    "accuracy": "{accuracy} ({accuracy_low}&nbsp;to&nbsp;{accuracy_high})",
    "gap": "{gap} ({gap_low}&nbsp;to&nbsp;{gap_high})",
}
COLUMNS: dict[str, dict[str, str]] = {
    "scores": {
        "data and bound": "{data}", "epsilon": "{epsilon}", "tolerance": "{tolerance}", **MEAN_AND_INTERVAL,
        "fair optimum: accuracy, gap": "{optimum_accuracy}, {optimum_gap}", "splits": "{splits}",
    },
    "synthetic": {
        "p": "{p}", "tolerance": "{tolerance}",
        "exact optimum, not private": "{exact_accuracy} / {exact_gap}",
        "hard-max dual (Denis et al.) on a pool of its own, not private": "{hard_max_accuracy} / {hard_max_gap}",
        "DP2DP's descent without noise": "{descent_accuracy} / {descent_gap}",
        "DP2DP's descent, corrected": "{descent_corrected_accuracy} / {descent_corrected_gap}",
        "fairveil": "{fairveil_accuracy} / {fairveil_gap}",
    },
    "raco": {
        "data and bound": "{data}", "epsilon": "{epsilon}", "tolerance": "{tolerance}", **MEAN_AND_INTERVAL,
        "no privacy, no bound: accuracy, gap": "{unconstrained_accuracy}, {unconstrained_gap}",
    },
    "clip_norm": {"clip norm": "{clip_norm}", "false negative rate": "{false_negative_rate}"},
    "functional": {
        "tolerance": "{tolerance}",
        "decisions read sex: accuracy, gap": "{aware_accuracy}, {aware_gap}",
        "decisions do not: accuracy, gap": "{unaware_accuracy}, {unaware_gap}",
    },
    "fairdp": {"method": "{method}", "accuracy": "{accuracy}", "gap": "{gap}"},
    "fairdp_norm_41_inputs": {
        "norm bound": "{norm_bound}", "runs": "{runs}", "accuracy": "{accuracy}", "gap": "{gap}",
    },
    "fairdp_norm_all_columns": {"norm bound": "{norm_bound}", "accuracy": "{accuracy}", "gap": "{gap}"},
    "pfld": {
        "data": "{data}", "parity": "{parity}",
        "PF-LD": "{pfld_accuracy}, {pfld_gap} ({pfld_deviation})", "chance": "{chance_gap}",
        "M": "{m_accuracy}, {m_gap} ({m_deviation})", "A": "{a_accuracy}, {a_gap}", "Z": "{z_accuracy}, {z_gap}",
        "CLF": "{clf_accuracy}, {clf_gap}",
    },
    "private": {
        "data": "{data}", "epsilon 0.5": "{epsilon_05}", "epsilon 1": "{epsilon_1}", "epsilon 3": "{epsilon_3}",
        "not private": "{not_private}", "gap at epsilon 1 (not private)": "{gap_at_epsilon_1} ({gap_not_private})",
    },
    "digits": {"training": "{training}", "accuracy": "{accuracy}", "gap": "{gap}", "largest gap": "{largest_gap}"},
    "micro_batches": {
        "rows of a batch": "{rows}", "micro-batches of 32": "{micro_32}", "of 128": "{micro_128}",
        "all at once": "{at_once}",
    },
    "speed": {"step": "{step}", "linear": "{linear}", "MLP": "{mlp}"},
}  # fmt: skip
"""For each CSV file: the headings of its table, and how a cell is written from the columns of the file."""

README_ROWS = {
    ("Adult, parity by sex", "0"): "Adult, sex",
    ("credit default, parity by sex", "0"): "Credit default, sex",
    ("bank, parity by age 60", "0"): "Bank marketing, age 60",
    ("COMPAS, parity by race", "0"): "COMPAS, race",
    ("ACS income, 35 states, parity by sex", "0"): "ACS income in 35 states, sex",
    ("Adult, parity of five races", "0.02"): "Adult, five races",
}
"""The rows of scores.csv at epsilon 1 that the README shows, by data and tolerance."""
README_COLUMNS = {
    "data, groups": "{data}", "tolerance": "{tolerance}", "accuracy": "{accuracy}", "gap": "{gap}",
    "fair optimum: accuracy, gap": "{optimum_accuracy}, {optimum_gap}",
}  # fmt: skip


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with (FIGURES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def written(columns: dict[str, str], rows: list[dict[str, str]]) -> str:
    """Return a Markdown table; a cell whose figures are all missing is a dash."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = (template.format_map(row) for template in columns.values())
        lines.append("| " + " | ".join(cell if cell.strip(" ,()") else "-" for cell in cells) + " |")
    return "\n".join(lines)


def table(name: str) -> str:
    """Return the table of this name."""
    if name.startswith(("reproduce/", "bench/")):
        return reproduced(name)
    if name != "readme":
        return written(COLUMNS[name], rows_of(name))
    found = {(row["data"], row["tolerance"]): row for row in rows_of("scores") if row["epsilon"] == "1"}
    return written(README_COLUMNS, [found[key] | {"data": label} for key, label in README_ROWS.items()])


def reproduced(name: str) -> str:
    """Return a table that stands beside the paper's, with its caveats and the command that printed it."""
    lines = (FIGURES / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    above = [line.removeprefix("# ").partition(": ")[::2] for line in lines if line.startswith("# ")]
    rows = list(csv.DictReader(lines[len(above) :]))
    shown = written({column.replace("_", " "): f"{{{column}}}" for column in rows[0]}, rows)
    caveats = " ".join(text for key, text in above if key == "caveat")
    command = dict(above)["command"]
    return "\n\n".join(part for part in (shown, caveats, f"`{command}`") if part)


def page_with_tables(text: str) -> str:
    """Return a page with all of its tables written anew."""
    pattern = r"(<!-- table: ([\w/]+) -->\n)(?:(?!<!-- end).)*(<!-- end -->)"
    return re.sub(pattern, lambda found: f"{found[1]}\n{table(found[2])}\n\n{found[3]}", text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(page_with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
