"""Bad values in a table of Adult: each must be met without a word."""

import numpy as np


def spoil(X, y, how):
    """Return the same rows and labels with bad values, or with few, one or no people."""
    X, y = X.astype(object), y.astype(object)
    if how == "nan":
        X.iloc[:5] = np.nan
    elif how == "infinity":
        X.loc[X.index[:2], "age"] = [np.inf, -np.inf]
    elif how == "text in a number column":
        X.loc[X.index[0], "age"] = "old"
    elif how == "unknown category":
        X.loc[X.index[0], "workclass"] = "Pirate"
    elif how == "unknown group":
        X.loc[X.index[:3], "sex"] = ["Unknown", None, 7]
    elif how == "unknown groups only":
        X["sex"] = "Unknown"
    elif how == "unknown label":
        y.iloc[0] = "?"
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
    return X, y
