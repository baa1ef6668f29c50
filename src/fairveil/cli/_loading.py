"""Modules that libraries import and commands seldom use: each is loaded when something in it is first used.

scikit-learn imports scipy.stats, and SciPy imports numpy.f2py and numpy.testing, for single functions that no command
calls. Together they take a third of the start of `fairveil train`.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

SELDOM_USED = ("scipy.stats", "scipy.optimize", "numpy.f2py", "numpy.testing")


def load_command(module: str) -> ModuleType:
    """Return a module of the command line; what it seldom uses is not loaded yet."""
    for name in SELDOM_USED:
        if name not in sys.modules:
            _postpone(name)
    return import_module(f"fairveil.cli.{module}")


def _postpone(name: str) -> None:
    """Put an empty module in the place of one, which fills itself when an attribute of it is first read."""
    parent, _, child = name.rpartition(".")
    stand_in: Any = ModuleType(name)

    def load(attribute: str) -> Any:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]
        loaded = import_module(name)
        stand_in.__dict__.update(loaded.__dict__)
        return getattr(loaded, attribute)

    stand_in.__getattr__ = load
    setattr(import_module(parent), child, stand_in)
    sys.modules[name] = stand_in
