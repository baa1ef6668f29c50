"""Benchmarks run in this process, as their scripts would be."""

import io
import json
import sys
from contextlib import redirect_stdout
from types import ModuleType
from typing import Any
from unittest.mock import patch

from threadpoolctl import threadpool_limits


def last_line(module: ModuleType, *words: str) -> Any:
    """Run a benchmark and return the JSON object on its last line."""
    out = io.StringIO()
    command = [f"{module.__name__}.py", *words, "--json"]
    with threadpool_limits(1), redirect_stdout(out), patch.object(sys, "argv", command):
        module.main()
    return json.loads(out.getvalue().splitlines()[-1])
