"""A small private table with canaries in every column, its schema, its ledger, and models trained on it."""

import random
from functools import cache
from pathlib import Path

from fuzz.driver import N_ROWS, Case, run

HEADER = ("who", "age", "pay", "area", "kind", "sex", "hired")
SCHEMA = """# Public facts about a table of people.
name = "people"
n_public = 600
missing_values = ["", "?"]

[target]
column = "hired"
classes = ["no", "yes"]

[[sensitive]]
column = "sex"
groups = ["f", "m"]

[[where]]
column = "kind"
none_of = ["test"]

[columns.age]
type = "number"
bounds = [18, 70]
cuts = [30, 50]

[columns.pay]
type = "number"
bounds = [0, 100]
encode = "scale"

[columns.area]
type = "category"
categories = ["north", "south", "1", "2.5"]

[columns.sex]
type = "category"
categories = ["f", "m"]
"""
BY_PERSON = SCHEMA.replace("n_public = 600\n", 'n_public = 600\nid_column = "who"\n')
PRIVATE = ("--schema", "schema.toml", "--epsilon", "4", "--n-public", "600")
MODELS = {
    "plain": ("--unaware", "--method", "dpsgd"),
    "aware": ("--aware", "--tolerance", "0.2"),
    "parity": ("--aware", "--tolerance", "0.2", "--method", "parity"),
}
"""Ways to train the models that commands open."""


@cache
def rows() -> tuple[tuple[str, ...], ...]:
    """Return the rows of the table; in every column some cells are canaries that no schema lists."""
    rng = random.Random("people")
    made = []
    for place in range(N_ROWS):
        sex = rng.choice("fm")
        cells = [
            f"zqperson{place}",
            str(rng.randint(18, 70)),
            f"{rng.uniform(0, 100):.2f}",
            rng.choice(["north", "south", "1", "2.5"]),
            rng.choice(["real", "test", "real"]),
            sex,
            "yes" if rng.random() < (0.6 if sex == "m" else 0.4) else "no",
        ]
        odd = {1: "7741950273", 2: "8675309.25", 3: "zqcell", 4: "zqcell", 5: "zqgroup", 6: "zqlabel"}
        column = rng.randint(0, 120)
        cells[column if column in odd else 0] = odd.get(column, cells[0])
        made.append(tuple(cells))
    made[0] = ("zqperson0", "7741950273", "8675309.25", "zqcell", "real", "zqgroup", "zqlabel")
    return tuple(made)


def table(header: bool = True) -> str:
    """Return the table as CSV."""
    lines = [",".join(cells) for cells in ((HEADER, *rows()) if header else rows())]
    return "\n".join(lines) + "\n"


def write_base(folder: Path) -> None:
    """Write what every case finds: the table, its schema, models, a ledger with the debits of their trainings."""
    (folder / "people.csv").write_text(table())
    (folder / "schema.toml").write_text(SCHEMA)
    for name, options in MODELS.items():
        words = ("train", "people.csv", *PRIVATE, *options, "--ledger", "ledger.jsonl", "--out", name)
        outcome = run(Case(words), folder)
        assert outcome.code == 0, outcome
