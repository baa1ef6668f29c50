"""Trainings at the same time: each has its entry, and the ledger is sound."""

import json
from pathlib import Path

import pytest

from fairveil.privacy.ledger import Ledger

pytestmark = pytest.mark.slow

N_TRAININGS = 8
NAME = "people.csv.ledger.jsonl"


def test_eight_trainings_at_once_leave_eight_entries(folder, launch, say):
    Path("link.csv").symlink_to("people.csv")
    options = ("--schema", "schema.toml", "--method", "dpsgd", "--unaware", "--json", "--out")
    tables = ["people.csv", "link.csv", str(folder / "people.csv"), "./people.csv"] * (N_TRAININGS // 4)
    runs = [launch("train", table, *options, f"results-{n}") for n, table in enumerate(tables)]
    answers = [run.finish() for run in runs]
    assert [(code, err) for code, _, err in answers] == [(0, "")] * N_TRAININGS
    assert len(Ledger(NAME).entries) == N_TRAININGS
    summaries = [word for n in range(N_TRAININGS) for word in ("--summary", f"results-{n}/summary.json")]
    assert say("ledger", "verify", NAME, *summaries).code == 0
    totals = [json.loads(out)["epsilon_spent_total"] for _, out, _ in answers]
    assert max(totals) == Ledger(NAME).epsilon(1e-5)
