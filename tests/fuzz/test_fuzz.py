"""Every seeded case, and every case that failed once, ends as a command must end. More of them: `run.py`."""

import os
from pathlib import Path

import pytest

from fuzz.driver import Case
from fuzz.kinds import KINDS, chained, ledger_lines
from fuzz.run import failures, outcome_of, prepare

pytestmark = pytest.mark.slow

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))
CASES_PER_TEST, TESTS_PER_KIND = 50, 4


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that every case starts from."""
    folder = tmp_path_factory.mktemp("base")
    prepare(folder)
    return folder


@pytest.mark.parametrize("part", range(TESTS_PER_KIND))
@pytest.mark.parametrize("kind", KINDS)
def test_seeded_cases_end_as_commands_must(kind: str, part: int, base: Path, tmp_path: Path) -> None:
    numbers = range(part * CASES_PER_TEST, (part + 1) * CASES_PER_TEST)
    found = [
        (one.number, one.case.words, one.complaints) for one in failures(kind, numbers, 0, base, tmp_path / "case")
    ]
    assert found == []


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_failed_once_does_not_fail_again(path: Path, base: Path, tmp_path: Path) -> None:
    assert outcome_of(Case.from_json(path.read_text()), base, tmp_path / "case") == []


def test_cases_leave_no_trace_in_the_process(base: Path, tmp_path: Path) -> None:
    before = Path.cwd(), dict(os.environ)
    list(failures("csv", range(20), 0, base, tmp_path / "case"))
    assert (Path.cwd(), dict(os.environ)) == before


def test_a_planted_value_and_a_traceback_are_noticed(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that cannot find anything proves nothing."""

    def careless() -> None:
        print("zqcell", float("nan"))
        raise KeyError("zqlabel")

    monkeypatch.setattr("fuzz.driver.main", careless)
    found = outcome_of(Case(("check", "people.csv")), base, tmp_path / "case")
    assert len(found) == 2 and "KeyError" in found[0] and "zqcell" in found[1]


def test_forged_ledgers_are_forged_well(base: Path) -> None:
    content = (base / "ledger.jsonl").read_bytes()
    assert chained(ledger_lines(content)) == content
