"""Small tables and grids for the tests of the bench."""

import json

import numpy as np
import pandas as pd
import pytest

SCHEMA = """
name = "small"
id_column = "person"

[target]
column = "y"
classes = ["no", "yes"]
positive = "yes"

[[sensitive]]
column = "group"
groups = ["a", "b"]

[columns.x]
type = "number"
bounds = [-3, 3]
bins = 6

[columns.group]
type = "category"
categories = ["a", "b"]
"""


def small_frame(n_rows=1200, seed=5):
    """People whose group shifts a number that tells the label; every person has four rows."""
    rng = np.random.default_rng(seed)
    is_b = rng.random(n_rows) < 0.4
    x = rng.normal(size=n_rows) + 1.5 * is_b
    y = rng.random(n_rows) < 1 / (1 + np.exp(-2 * (x - 0.5)))
    group, label = np.where(is_b, "b", "a"), np.where(y, "yes", "no")
    return pd.DataFrame({"x": x, "group": group, "y": label, "person": np.arange(n_rows) // 4})


@pytest.fixture
def folder(tmp_path):
    """A folder with a table, its schema, and nothing else."""
    small_frame().to_csv(tmp_path / "small.csv", index=False)
    (tmp_path / "small.toml").write_text(SCHEMA)
    return tmp_path


def grid_text(**changes):
    """A grid of the small table as TOML."""
    facts = {
        "data": [{"source": "small.csv", "schema": "small.toml"}],
        "methods": ["dpsgd", "logistic"],
        "aware": True, "epsilons": [1.0], "tolerances": [0.05], "seeds": 2,
    } | changes  # fmt: skip
    return "".join(f"{name} = {toml(value)}\n" for name, value in facts.items() if value is not None)


def toml(value):
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {toml(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


@pytest.fixture
def write_grid(folder):
    """Write a grid beside the table and return its path."""

    def write(**changes):
        path = folder / "grid.toml"
        path.write_text(grid_text(**changes))
        return path

    return write
