"""What can be typed: commands, options and their help. Nothing here computes."""

import json
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from fairveil import __version__
from fairveil.cli.options import (
    RESULTS,
    Against,
    Aware,
    ComparedWith,
    Confidence,
    Constraint,
    Data,
    Delimiter,
    Delta,
    Epsilon,
    Groups,
    Holdout,
    HowToTrain,
    Json,
    KeyFile,
    LambdaMax,
    LedgerFile,
    Method,
    ModelFolder,
    NormBound,
    Out,
    Protects,
    Rules,
    RunOptions,
    SchemaFile,
    Size,
    Target,
    Tolerance,
    WhatIsSecret,
    WhatToTrain,
    WhichGap,
    Whom,
)
from fairveil.errors import FairveilError
from fairveil.report.privacy_text import INTERRUPTED as INTERRUPTED_TEXT
from fairveil.report.privacy_text import TERMINATED

INTERRUPTED = 130

app = typer.Typer(
    name="fairveil",
    help="Classifiers that are differentially private and group-fair at once, with evidence.\n\n"
    "A first look, on bundled data:\n\n"
    "  fairveil train adult --aware --epsilon 1 --tolerance 0.02 --out results\n\n"
    "Your own table: schema draft, edit, schema approve, explain, train, predict; certify on people kept apart; "
    "frontier to compare; ledger show for all that was ever released from these people.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
ledger_app = typer.Typer(help="The books: what was ever released from a set of people.", no_args_is_help=True)
schema_app = typer.Typer(help="The public facts about a table.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")
app.add_typer(schema_app, name="schema")


def _run_command(action: str) -> Callable[..., None]:
    """Return the command that `train` and `explain` share: the same options, another action."""

    def command(
        data: Data,
        target: Target = None,
        sensitive: Groups = None,
        epsilon: Epsilon = 1.0,
        delta: Delta = 1e-5,
        constraint: WhichGap = Constraint.demographic_parity,
        tolerance: Tolerance = None,
        against: ComparedWith = Against.pairs,
        rule: Rules = None,
        aware: Aware = None,
        method: HowToTrain = Method.auto,
        model: WhatToTrain = None,
        norm_bound: NormBound = None,
        lambda_max: LambdaMax = None,
        protects: WhatIsSecret = Protects.record,
        schema: SchemaFile = None,
        n_public: Size = None,
        ledger: LedgerFile = None,
        unit: Whom = None,
        holdout: Holdout = 0.15,
        confidence: Confidence = 0.95,
        delimiter: Delimiter = ",",
        out: Out = RESULTS,
        as_json: Json = False,
    ) -> None:
        options = RunOptions(
            data, target, tuple(sensitive or ()), epsilon, delta, str(constraint), tolerance, str(against),
            tuple(rule or ()), aware, str(method), "" if model is None else str(model), schema, n_public, ledger,
            None if unit is None else str(unit), holdout, confidence, delimiter, out, as_json, norm_bound,
            lambda_max, str(protects),
        )  # fmt: skip
        _do("train", action, options)

    return command


app.command(
    "train",
    help="Train a private and fair classifier, certify it on held-out people, and write the evidence.\n\n"
    "Writes model/, summary.json and report.html into --out, and debits the ledger before any row is used.\n\n"
    "Example: fairveil train people.csv --schema schema.toml --aware --epsilon 1 --tolerance 0.02 --out results",
)(_run_command("train"))
app.command(
    "explain",
    help="Say what training would do, guarantee and probably certify, before any data is touched.\n\n"
    "Takes the options of train. Example: fairveil explain adult --aware --epsilon 1 --tolerance 0.02",
)(_run_command("explain"))


@app.command()
def predict(
    model: ModelFolder,
    data: Data,
    out: Annotated[Path, typer.Option(help="Where to write decisions: a .parquet or .csv file.")],
    key: KeyFile = None,
    delimiter: Delimiter = ",",
    as_json: Json = False,
) -> None:
    """Decide for the people of a table: columns prediction and p_CLASS, in the order of its rows.

    The table needs no target. Example: fairveil predict results/model new.csv --out decisions.parquet
    """
    _do("predict", "predict", model, data, out, key, delimiter, as_json)


@app.command()
def certify(
    model: ModelFolder,
    holdout: Annotated[
        str, typer.Argument(help="A table of people who had no part in training, with the target.")
    ],
    epsilon: Annotated[float, typer.Option(help="What the counts may cost these people; inf: not private.")],
    delta: Delta = 1e-5,
    confidence: Confidence = 0.95,
    ledger: LedgerFile = None,
    key: KeyFile = None,
    delimiter: Delimiter = ",",
    as_json: Json = False,
) -> None:
    """Certify a model on people of their own: which bounds hold, and the smallest tolerance that does.

    Noisy counts only, debited first. Example: fairveil certify results/model kept_apart.csv --epsilon 0.2
    """
    _do("predict", "certify", model, holdout, epsilon, delta, confidence, ledger, key, delimiter, as_json)


@app.command()
def frontier(
    data: Data,
    out: Annotated[
        Path, typer.Option(help="Folder for frontier.csv, frontier.html and every point's model.")
    ],
    epsilons: Annotated[
        str, typer.Option(help="Budgets, with commas; each point spends its own.")
    ] = "0.5,1,3",
    tolerances: Annotated[str, typer.Option(help="Tolerances, with commas.")] = "0,0.02,0.05,0.1",
    methods: Annotated[str, typer.Option(help="Methods, with commas.")] = "auto",
    target: Target = None,
    sensitive: Groups = None,
    delta: Delta = 1e-5,
    constraint: WhichGap = Constraint.demographic_parity,
    against: ComparedWith = Against.pairs,
    aware: Aware = None,
    model: WhatToTrain = None,
    schema: SchemaFile = None,
    n_public: Size = None,
    ledger: LedgerFile = None,
    unit: Whom = None,
    holdout: Holdout = 0.15,
    confidence: Confidence = 0.95,
    delimiter: Delimiter = ",",
    as_json: Json = False,
) -> None:
    """Train at every budget, tolerance and method, and draw accuracy against gap.

    All points are released from the same people, so the page shows their composed epsilon. A sweep that was stopped
    goes on where it stopped. Example: fairveil frontier adult --aware --epsilons 0.5,1 --tolerances 0,0.05 --out sweep
    """
    options = RunOptions(
        data, target, tuple(sensitive or ()), 1.0, delta, str(constraint), 0.0, str(against), (), aware, "auto",
        "" if model is None else str(model), schema, n_public, ledger, None if unit is None else str(unit), holdout,
        confidence, delimiter,
        out, as_json,
    )  # fmt: skip
    _do("frontier", "frontier", options, epsilons, tolerances, methods)


@app.command()
def check(data: Data, schema: SchemaFile = None, delimiter: Delimiter = ",", as_json: Json = False) -> None:
    """Show the data holder, and only them, which values do not fit the schema. The output is private."""
    _do("schema", "check", data, schema, delimiter, as_json)


@ledger_app.command("show")
def ledger_show(
    file: Annotated[Path, typer.Argument(help="The ledger.")],
    delta: Annotated[float, typer.Option(help="State the total at this delta.")] = 1e-5,
    as_json: Json = False,
) -> None:
    """List every debit and the composed total."""
    _do("ledger", "show", file, delta, as_json)


@ledger_app.command("budget")
def ledger_budget(
    file: Annotated[Path, typer.Argument(help="The ledger; it is made if there is none.")],
    epsilon: Annotated[float, typer.Option(help="The most that may ever be spent.")],
    delta: Annotated[float, typer.Option(help="The delta it is stated at.")] = 1e-5,
    as_json: Json = False,
) -> None:
    """Put a budget in force: whatever would exceed it is refused before any data is touched."""
    _do("ledger", "budget", file, epsilon, delta, as_json)


@schema_app.command("draft")
def schema_draft(
    data: Data,
    target: Annotated[str, typer.Option(help="The column to predict.")],
    sensitive: Annotated[str, typer.Option(help="The column of groups.")],
    out: Annotated[Path, typer.Option(help="Where to write the schema.")],
    epsilon: Annotated[
        float | None, typer.Option(help="Draft privately at this cost; the ledger is debited.")
    ] = None,
    delta: Annotated[
        float, typer.Option(help="With --epsilon: probability that a rare category shows.")
    ] = 1e-6,
    ledger: LedgerFile = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Approve at once: all that the draft shows is public.")
    ] = False,
    delimiter: Delimiter = ",",
    as_json: Json = False,
) -> None:
    """Write a first schema from a table, for a person to edit and approve."""
    _do("schema", "draft", data, target, sensitive, out, epsilon, delta, ledger, yes, delimiter, as_json)


@schema_app.command("approve")
def schema_approve(
    file: Annotated[Path, typer.Argument(help="The schema.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Yes, every fact in this file is public knowledge.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Approve a draft: from then on it counts as public knowledge."""
    _do("schema", "approve", file, yes, as_json)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"fairveil {__version__}")
        raise typer.Exit


def _do(module: str, action: str, *arguments: Any) -> None:
    """Load a command's module and call it."""
    getattr(import_module(f"fairveil.cli.{module}"), action)(*arguments)


def _refuse(sentence: str, code: int = 2) -> None:
    """Say in one sentence why nothing was done, and leave, with exit code 2 for what is refused."""
    sentence = " ".join(sentence.split()).rstrip(".") + "."
    typer.echo(json.dumps({"error": sentence}) if "--json" in sys.argv else f"fairveil: {sentence}", err=True)
    sys.exit(code)


def main() -> None:
    """Run the command line; what is refused on purpose is one sentence and exit code 2."""
    signal.signal(signal.SIGTERM, _stopped)
    try:
        code = app(standalone_mode=False, prog_name="fairveil")
    except FairveilError as problem:
        _refuse(str(problem))
    except typer.Abort:
        _refuse(INTERRUPTED_TEXT)
    except TyperException as problem:
        message = problem.format_message()
        if message.lstrip().startswith("Usage:"):  # a name alone shows its help
            typer.echo(message, err=True)
            sys.exit(2)
        _refuse(message)
    if code == INTERRUPTED:
        _refuse(INTERRUPTED_TEXT, INTERRUPTED)
    sys.exit(code or 0)


def _stopped(number: int, frame: object) -> None:
    """Leave by the usual way when told to stop, so that nothing unfinished is left behind."""
    _refuse(TERMINATED, 128 + number)
