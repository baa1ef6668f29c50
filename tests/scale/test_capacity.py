"""Estimates of rows: what Parquet states, and what text probably holds."""

import gzip

import pandas as pd
import pytest

from fairveil.scale.capacity import available_memory, probable_rows


@pytest.mark.parametrize("n_rows", [0, 1, 5000])
def test_parquet_files_state_their_rows(tmp_path, n_rows):
    pd.DataFrame({"x": range(n_rows)}).to_parquet(tmp_path / "a.parquet")
    assert probable_rows([tmp_path / "a.parquet"] * 2) == 2 * n_rows


def test_text_is_measured_by_its_first_lines(tmp_path):
    lines = "".join(f"{number % 10},some words\n" for number in range(200_000))  # more than is read
    (tmp_path / "a.csv").write_text("x,y\n" + lines)
    assert probable_rows([tmp_path / "a.csv"]) == pytest.approx(200_000, rel=0.01)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(lines.encode()))
    assert probable_rows([tmp_path / "a.csv.gz"]) > 0


def test_some_memory_is_left():
    assert 2**20 < available_memory() < 2**60
