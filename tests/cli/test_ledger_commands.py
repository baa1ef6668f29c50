"""`fairveil ledger`: one set of books for all commands, composed totals, budgets that bind."""

import json
from pathlib import Path

import pytest

from fairveil.privacy.ledger import Ledger

PLAIN = ("--method", "dpsgd", "--unaware")
TRAIN = ("train", "people.csv", "--schema", "schema.toml", *PLAIN, "--out", "results")
BOOKS = "people.csv.ledger.jsonl"


def totals(say, delta="1e-5"):
    said = say("ledger", "show", BOOKS, "--delta", delta, "--json")
    assert (said.code, said.err) == (0, "")
    return json.loads(said.out)


def test_two_runs_on_one_file_compose(folder, say):
    first = json.loads(say(*TRAIN, "--json").out)
    second = json.loads(say(*TRAIN, "--epsilon", "2", "--json").out)
    assert first["epsilon_spent_total"] == pytest.approx(first["epsilon_spent"])
    assert second["epsilon_spent"] <= 2.0
    assert second["epsilon_spent"] < second["epsilon_spent_total"]
    assert second["epsilon_spent_total"] < first["epsilon_spent"] + second["epsilon_spent"]
    shown = totals(say)
    assert shown["epsilon_spent_total"] == second["epsilon_spent_total"]
    assert shown["epsilon_spent_total"] < shown["epsilon_spent_total_replace_one"]
    assert [entry["details"]["epsilon"] for entry in shown["entries"]] == [1.0, 2.0]
    assert totals(say, "1e-7")["epsilon_spent_total"] > shown["epsilon_spent_total"]


def test_two_runs_on_a_known_name_compose_in_the_output_folder(tmp_path, monkeypatch, say):
    monkeypatch.chdir(tmp_path)
    for n_runs in (1, 2):
        summary = json.loads(say("train", "adult", *PLAIN, "--out", "results", "--json").out)
        assert len(Ledger("results/ledger.jsonl").entries) == n_runs
    assert summary["epsilon_spent"] < summary["epsilon_spent_total"] < 2 * summary["epsilon_spent"]
    assert summary["epsilon_spent_total"] == Ledger("results/ledger.jsonl").epsilon(1e-5)


def test_one_file_has_one_ledger_whatever_name_leads_to_it(folder, say):
    Path("elsewhere").mkdir()
    Path("elsewhere/link.csv").symlink_to(folder / "people.csv")
    for name in ("people.csv", "elsewhere/link.csv", str(folder / "people.csv"), "elsewhere/../people.csv"):
        assert say("train", name, *TRAIN[2:]).code == 0
    assert len(totals(say)["entries"]) == 4


def test_records_and_persons_do_not_add_up(folder, people, facts, say):
    people.assign(id=range(len(people))).to_csv("people.csv", index=False)
    facts.model_copy(update={"id_column": "id"}).write("schema.toml")
    person = json.loads(say(*TRAIN, "--json").out)
    assert person["unit"] == "person"
    assert person["epsilon_spent_total"] == pytest.approx(person["epsilon_spent"])
    record = json.loads(say(*TRAIN, "--unit", "record", "--json").out)
    assert record["unit"] == "record"
    assert record["epsilon_spent_total"] is totals(say)["epsilon_spent_total"] is None
    assert "no bound can be stated" in say("ledger", "show", BOOKS).out


def test_each_run_splits_the_people_anew(folder, say):
    """Parts of two splits are not disjoint: only within one run may they count in parallel."""
    say(*TRAIN)
    say(*TRAIN)
    splits = [{charge["split"] for charge in entry["charges"]} for entry in totals(say)["entries"]]
    assert all(len(split) == 1 for split in splits)
    assert splits[0].isdisjoint(splits[1])


def test_the_text_lists_debits_total_and_budget(folder, say):
    say(*TRAIN)
    say("ledger", "budget", BOOKS, "--epsilon", "5")
    lines = say("ledger", "show", BOOKS).out.splitlines()
    assert lines[0] == f"Debits in {BOOKS}: 1"
    assert "(epsilon 1, delta 1e-05)" in lines[1]
    assert "total: epsilon 1.0000 at delta 1e-05 (one record added or removed)" in lines[2]
    assert lines[3].strip() == "budget: epsilon 5 at delta 1e-05"


def test_a_budget_refuses_what_would_exceed_it(folder, say, is_refused):
    assert say("ledger", "budget", BOOKS, "--epsilon", "1.2").code == 0
    assert say(*TRAIN).code == 0
    sentence = is_refused(folder, TRAIN)
    assert "at most 1.2" in sentence and "1 is already spent" in sentence
    assert totals(say)["budget"] == {"epsilon": 1.2, "delta": 1e-5}
    assert len(totals(say)["entries"]) == 1
    assert say(*TRAIN, "--epsilon", "0.1").code == 0


def test_a_budget_refuses_the_first_run_before_the_data_is_opened(folder, say, is_refused):
    assert say("ledger", "budget", BOOKS, "--epsilon", "0.5").code == 0
    Path("people.csv").write_bytes(b"\x00 no table at all")
    assert "at most 0.5" in is_refused(folder, TRAIN)


def test_a_budget_binds_every_command(folder, say, is_refused):
    assert say("ledger", "budget", BOOKS, "--epsilon", "0.5").code == 0
    draft = (
        "schema",
        "draft",
        "people.csv",
        "--target",
        "income",
        "--sensitive",
        "sex",
        "--out",
        "draft.toml",
    )
    assert "at most 0.5" in is_refused(folder, (*draft, "--epsilon", "1"))
    assert "at most 0.5" in is_refused(folder, (*TRAIN, "--epsilon", "inf"))


def test_a_later_budget_replaces_the_earlier_one(folder, say):
    say("ledger", "budget", BOOKS, "--epsilon", "0.5")
    said = say("ledger", "budget", BOOKS, "--epsilon", "3", "--delta", "1e-6")
    assert (said.code, said.err) == (0, "")
    assert "epsilon 3 at delta 1e-06" in said.out
    assert totals(say)["budget"] == {"epsilon": 3.0, "delta": 1e-6}
    assert say(*TRAIN).code == 0


@pytest.mark.parametrize(
    "options",
    [("0",), ("-1",), ("nan",), ("inf",), ("1", "--delta", "0"), ("1", "--delta", "1")],
    ids=" ".join,
)
def test_a_budget_that_is_none(folder, is_refused, options):
    is_refused(folder, ("ledger", "budget", BOOKS, "--epsilon", *options))


def test_what_is_not_private_ends_all_totals(folder, say):
    say(*TRAIN, "--epsilon", "inf")
    summary = json.loads(say(*TRAIN, "--json").out)
    assert summary["epsilon_spent"] <= 1.0
    assert summary["epsilon_spent_total"] is None
    assert totals(say)["epsilon_spent_total"] is None
    assert "no bound can be stated" in say("ledger", "show", BOOKS).out
    assert "no bound can be stated" in say(*TRAIN).out


def test_a_ledger_that_cannot_be_shown(folder, is_refused):
    assert "nothing.jsonl" in is_refused(folder, ("ledger", "show", "nothing.jsonl"))
    assert "people.csv" in is_refused(folder, ("ledger", "show", "people.csv"))
    assert "delta" in is_refused(folder, ("ledger", "show", "people.csv", "--delta", "0"))


def test_a_changed_ledger_is_refused_everywhere(folder, say, is_refused):
    say(*TRAIN)
    say(*TRAIN)
    books = Path(BOOKS)
    books.write_text(books.read_text().replace('"noise_multiplier": ', '"noise_multiplier": 9', 1))
    assert "line 3" in is_refused(folder, ("ledger", "show", BOOKS))
    assert "line 3" in is_refused(folder, TRAIN)
    assert "line 3" in is_refused(folder, ("ledger", "budget", BOOKS, "--epsilon", "1"))


def test_a_last_line_cut_off_by_a_crash_does_not_stop_anyone(folder, say):
    say(*TRAIN)
    whole = Path(BOOKS).read_bytes()
    Path(BOOKS).write_bytes(whole + whole.splitlines()[1][:200])
    assert len(totals(say)["entries"]) == 1
    assert say(*TRAIN).code == 0
    assert len(totals(say)["entries"]) == 2
