"""Run by an interpreter that has dpmm, and by no other: a coded table and its domain in, a synthetic table out.

python _synthesis.py mst|aim TRAIN.csv DOMAIN.json ANSWER.csv EPSILON DELTA N_ROWS
"""

import json
import sys
from pathlib import Path

import pandas as pd

LARGEST_MODEL = 2
"""Megabytes of the graphical model of AIM. Fits take long: with this one, Adult was not finished after ten minutes on a
busy machine."""


def main(mechanism: str, train: str, domain: str, answer: str, epsilon: str, delta: str, n_rows: str) -> None:
    """Fit the mechanism to the coded rows and write as many synthetic ones."""
    from dpmm.pipelines import AIMPipeline, MSTPipeline

    common = {"epsilon": float(epsilon), "delta": float(delta), "disable_processing": True, "n_jobs": 1}
    made = MSTPipeline(**common) if mechanism == "mst" else AIMPipeline(**common, max_model_size=LARGEST_MODEL)
    made.fit(pd.read_csv(train), domain=json.loads(Path(domain).read_text(encoding="utf-8")))
    made.generate(n_records=int(n_rows)).to_csv(answer, index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
