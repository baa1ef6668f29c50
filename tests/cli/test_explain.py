"""`fairveil explain`: the plan in words and numbers, before any data is touched."""

import json

import pytest

from fairveil.accounting.composition import NeighboringRelation, epsilon_of
from fairveil.accounting.events import (
    Charge,
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    GaussianRelease,
    Joint,
    PoissonSampled,
    Repeated,
)

PLAIN = ("--method", "dpsgd", "--unaware")
EVENTS = {
    "gaussian": GaussianRelease,
    "discrete_gaussian": DiscreteGaussianRelease,
    "discrete_laplace": DiscreteLaplaceRelease,
}


def charge_by_hand(part: dict) -> Charge:
    """Price a part from the numbers that `plan` shows, and from nothing else."""
    releases = [EVENTS[release["law"]](release["noise_multiplier"]) for release in part["releases"]]
    assert {release["joint_batch"] for release in part["releases"]} == {len(releases) > 1}
    batch = releases[0] if len(releases) == 1 else Joint(tuple(releases))
    rate = max(part["sampling_rates"].values())
    event = Repeated(PoissonSampled(rate, batch), part["n_steps"])
    return Charge(event) if part["share"] == 1 else Charge(event, "by coins", part["part"])


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--epsilon", "0.3", "--delta", "1e-7"),
        ("--method", "dpsgdf"),
        ("--method", "dpsgdg"),
        ("--method", "output"),
        ("--model", "mlp"),
        ("--holdout", "0"),
        ("--schema", "schema.toml"),
    ],
    ids=" ".join,
)
def test_the_plan_is_enough_to_recompute_epsilon(folder, facts, say, options):
    facts.model_copy(update={"n_public": None}).write("schema.toml")
    stated = json.loads(say("explain", "adult", *PLAIN, *options, "--json").out)
    charges = [charge_by_hand(part) for part in stated["plan"]]
    delta = stated["delta"]
    assert epsilon_of(charges, delta) == pytest.approx(stated["epsilon_spent"], rel=1e-3)
    replaced = epsilon_of(charges, delta, NeighboringRelation.REPLACE_ONE)
    assert replaced == pytest.approx(stated["epsilon_replace_one"], rel=1e-3)
    for part, charge in zip(stated["plan"], charges, strict=True):
        at_delta = epsilon_of([charge.event], part["delta"] or delta)
        # A pure part is stated at delta 0; at a positive delta it costs a little less.
        assert at_delta <= part["epsilon"] * 1.001
        assert part["delta"] == 0 or at_delta == pytest.approx(part["epsilon"], rel=1e-3)
    shares = {part.get("piece", part["part"]): part["share"] for part in stated["plan"] if part["share"] < 1}
    assert sum(shares.values()) == pytest.approx(1 if shares else 0)


def test_training_follows_the_plan_that_was_explained(folder, say):
    options = ("people.csv", "--schema", "schema.toml", "--epsilon", "2")
    explained = json.loads(say("explain", *options, *PLAIN, "--json").out)
    trained = json.loads(say("train", *options, *PLAIN, "--out", "results", "--json").out)
    assert trained["statement"].pop("total").startswith("Everything ever released")
    assert {name: trained[name] for name in explained} == explained


def test_the_words_say_noise_rates_steps_neighbours_and_limits(say):
    said = say("explain", "adult", *PLAIN)
    plan = json.loads(say("explain", "adult", *PLAIN, "--json").out)["plan"]
    (part,) = (one for one in plan if one["part"] == "train")
    assert (said.code, said.err) == (0, "")
    assert "No row was read" in said.out
    assert f"{part['n_steps']} Poisson draws (rate all: {part['sampling_rates']['all']:g})" in said.out
    assert f"gaussian noise, {part['releases'][0]['noise_multiplier']:.6g} x sensitivity" in said.out
    assert "one record added or removed" in said.out and "for one record replaced by another" in said.out
    assert "hides" in said.out and "not hidden timing" in said.out
    assert "do not read sex" in said.out
    assert "may read sex" in say("explain", "adult", *PLAIN, "--aware").out


def test_no_row_is_needed(folder, say, contents):
    before = contents(folder)
    assert say("train", "acs_income", *PLAIN, "--out", "results").code == 2
    said = say("explain", "acs_income", *PLAIN, "--delta", "1e-7")
    assert (said.code, said.err) == (0, "")
    assert "898610 records, declared public" in said.out
    assert contents(folder) == before


def test_a_file_is_not_opened_and_no_ledger_is_made(folder, say, contents):
    (folder / "people.csv").write_bytes(b"\x00\xff no table at all")
    before = contents(folder)
    said = say("explain", "people.csv", "--schema", "schema.toml", *PLAIN)
    assert (said.code, said.err) == (0, "")
    assert contents(folder) == before


def test_a_noisy_size_is_named_where_none_is_declared(folder, facts, say):
    facts.model_copy(update={"n_public": None}).write("schema.toml")
    said = say("explain", "people.csv", "--schema", "schema.toml", *PLAIN)
    assert "not declared: a noisy count will be released" in said.out
    assert "releases size: discrete_laplace noise" in said.out


@pytest.mark.parametrize("command", ["explain", "train"])
@pytest.mark.parametrize("delta, limit", [("0.0005", "1 / n_public"), ("0.01", "0.01"), ("0.3", "0.01")])
def test_a_delta_that_lets_whole_records_leak_is_refused(folder, is_refused, command, delta, limit):
    words = (command, "people.csv", "--schema", "schema.toml", *PLAIN, "--out", "results", "--delta", delta)
    sentence = is_refused(folder, words)
    assert f"delta below {limit}" in sentence and "such as 1e-05" in sentence


def test_without_a_size_a_delta_of_one_in_a_hundred_is_refused(folder, facts, say, is_refused):
    facts.model_copy(update={"n_public": None}).write("schema.toml")
    words = ("explain", "people.csv", "--schema", "schema.toml", *PLAIN, "--delta")
    assert "delta below 0.01, got 0.01;" in is_refused(folder, (*words, "0.01"))
    assert say(*words, "0.009").code == 0


def test_what_is_not_private_needs_no_small_delta(folder, say):
    words = ("explain", "people.csv", "--schema", "schema.toml", *PLAIN, "--epsilon", "inf", "--delta", "0.001")
    assert say(*words).code == 0


def test_an_infinite_epsilon_claims_nothing(say):
    said = say("explain", "adult", *PLAIN, "--epsilon", "inf")
    assert "no privacy is claimed" in said.out
    assert "hides" not in said.out


def test_what_train_refuses_explain_refuses(folder, is_refused):
    for options in (("--epsilon", "0"), ("--delta", "1"), ("--tolerance", "0.1"), ("--target", "age")):
        is_refused(folder, ("explain", "people.csv", "--schema", "schema.toml", *PLAIN, *options))


def test_a_table_of_many_people_needs_a_smaller_delta_than_the_default(folder, is_refused):
    sentence = is_refused(folder, ("explain", "acs_income", *PLAIN))
    assert "delta below 1 / n_public = 1.11e-06, got 1e-05;" in sentence and "such as 1e-07" in sentence
