"""Bad values in a table of Adult: each must be met without a word."""

import numpy as np

CELLS = "bad cells"
"""Everything that one row may hold; what becomes of each value is tested in tests/data."""

PEOPLE = ("unknown groups only", "one class", "a group of one class", "empty group", "one row", "no rows")
"""Tables in which somebody is missing: what is counted there is all noise."""

WAYS = ("nothing", CELLS, *PEOPLE)
WORST = (CELLS, "one class", "empty group", "no rows")


def spoil(X, y, how):
    """Return the same rows and labels with bad values, or with few, one or no people."""
    X, y = X.astype(object), y.astype(object)
    if how == CELLS:
        X.iloc[:5] = np.nan
        X.loc[X.index[5:9], "age"] = [np.inf, -np.inf, "old", "9" * 1000]
        X.loc[X.index[9:12], "workclass"] = ["Pirate", 7, "x" * 10**6]
        X.loc[X.index[12:15], "sex"] = ["Unknown", None, 7]
        y.iloc[15:18] = ["?", None, 7]
    elif how == "unknown groups only":
        X["sex"] = "Unknown"
    elif how == "one class":
        y.iloc[:] = "<=50K"
    elif how == "a group of one class":
        y[X["sex"] == "Female"] = "<=50K"
    elif how == "empty group":
        X["sex"] = "Male"
    elif how == "one row":
        X, y = X.head(1), y.head(1)
    elif how == "no rows":
        X, y = X.head(0), y.head(0)
    else:
        assert how == "nothing", how
    return X, y
