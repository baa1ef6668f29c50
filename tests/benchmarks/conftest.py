"""What several tests of benchmarks read."""

import os
from pathlib import Path

import pytest

import baselines
from _support.benchmarking import last_line


@pytest.fixture(scope="session")
def compas_rivals(real_data: Path) -> list[dict]:
    """Rows of all rivals on COMPAS under one constraint."""
    command = "--dataset compas --sensitive race --constraint error_rate_parity --runs 2 --first-seed 0"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "FAIRVEIL_DATA", str(real_data))
        return last_line(baselines, *command.split())["rows"]
