"""Does every script that reproduces a paper run at small size, and is what it wrote on the site?"""

import json
import re
import subprocess
import sys

import pytest

from _support.source import ROOT

SCRIPTS = sorted((ROOT / "benchmarks" / "reproduce").glob("[a-z]*.py"))
FIGURES = ROOT / "docs" / "research" / "figures" / "reproduce"
PAGES = sorted((ROOT / "docs" / "research" / "papers").glob("*.md"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_small_run_writes_every_item(script, tmp_path):
    words = [sys.executable, str(script), "--small", "--out", str(tmp_path)]
    answer = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout.splitlines()[-1])["small"] is True
    written = sorted(path.name for path in tmp_path.glob("*.csv"))
    assert written
    assert not any("nan" in path.read_text().lower().split(",") for path in tmp_path.glob("*.csv"))


def test_every_committed_result_is_on_a_page_with_its_command():
    text = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)
    shown = set(re.findall(r"<!-- table: reproduce/(\w+) -->", text)) | set(re.findall(r"\{curves\} (\w+)", text))
    files = {path.stem: path.read_text(encoding="utf-8") for path in FIGURES.glob("*.csv")}
    assert set(files) == shown
    for name, content in files.items():
        assert "# command: python benchmarks/" in content, name
        assert "--small" not in content.split("\n# command: ")[1].splitlines()[0], name
