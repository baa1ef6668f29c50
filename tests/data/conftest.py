"""A small schema and a table that fits it, shared by the tests of data/."""

import pandas as pd
import pytest

from fairveil.data.schema import Category, Number, Schema, Sensitive, Target


@pytest.fixture
def schema() -> Schema:
    return Schema(
        n_public=5,
        target=Target(column="hired", classes=("no", "yes")),
        sensitive=(Sensitive(column="sex", groups=("f", "m")),),
        columns={
            "age": Number(bounds=(18, 70), cuts=(30, 50)),
            "pay": Number(bounds=(0, 100), encode="scale"),
            "hours": Number(bounds=(0, 80), bins=4, encode="both"),
            "sex": Category(categories=("f", "m")),
        },
    )


@pytest.fixture
def people() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": [18, 30, 49, 50, 70],
            "pay": [0.0, 25.0, 50.0, 75.0, 100.0],
            "hours": [0, 20, 40, 60, 80],
            "sex": ["f", "m", "f", "m", "f"],
            "hired": ["no", "yes", "no", "yes", "no"],
        }
    )
