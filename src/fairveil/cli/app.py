"""What can be typed: commands, options and their help. Nothing here computes."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from fairveil import __version__
from fairveil.errors import FairveilError

__all__ = ["RunOptions", "app", "main"]

app = typer.Typer(
    name="fairveil",
    help="Classifiers that are differentially private and group-fair at once, with evidence.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
ledger_app = typer.Typer(help="The books: what was ever released from a set of people.", no_args_is_help=True)
schema_app = typer.Typer(help="The public facts about a table.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")
app.add_typer(schema_app, name="schema")


class Constraint(StrEnum):
    """Constraint names, those of parities as in fairlearn."""

    demographic_parity = "demographic_parity"
    equalized_odds = "equalized_odds"
    true_positive_rate_parity = "true_positive_rate_parity"
    false_positive_rate_parity = "false_positive_rate_parity"
    false_negative_rate_parity = "false_negative_rate_parity"
    error_rate_parity = "error_rate_parity"
    precision_parity = "precision_parity"
    false_negative_rate_cap = "false_negative_rate_cap"
    false_positive_rate_cap = "false_positive_rate_cap"


class Against(StrEnum):
    """Whom a group is compared with."""

    pairs = "pairs"
    rest = "rest"


class Method(StrEnum):
    """Ways to train that exist today."""

    dpsgd = "dpsgd"
    dpsgdf = "dpsgdf"
    output = "output"
    raco = "raco"
    dp2dp = "dp2dp"
    parity = "parity"


class ModelKind(StrEnum):
    """Models that exist today."""

    linear = "linear"
    mlp = "mlp"


class Unit(StrEnum):
    """Whom one unit of privacy stands for."""

    record = "record"
    person = "person"


@dataclass(frozen=True)
class RunOptions:
    """Everything that `train` and `explain` were asked for."""

    data: str
    target: str | None
    sensitive: tuple[str, ...]
    epsilon: float
    delta: float
    constraint: str
    tolerance: float | None
    against: str
    rules: tuple[str, ...]
    aware: bool | None
    method: str
    model: str
    schema: Path | None
    n_public: int | None
    ledger: Path | None
    unit: str | None
    holdout: float
    confidence: float
    delimiter: str
    out: Path | None
    as_json: bool


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Data = Annotated[
    str, typer.Argument(help="A known name (adult is bundled) or the path of a CSV or Parquet file.")
]
SchemaFile = Annotated[Path | None, typer.Option("--schema", help="The public facts, a TOML file.")]
Delimiter = Annotated[str, typer.Option(help="The character between the cells of a CSV file.")]
LedgerFile = Annotated[
    Path | None, typer.Option("--ledger", help="The books of these people [default: beside the data file].")
]
Target = Annotated[str | None, typer.Option(help="The column to predict [default: the schema's].")]
Groups = Annotated[
    list[str] | None,
    typer.Option(help="The column of groups; several for their intersections [default: the schema's first]."),
]
Epsilon = Annotated[float, typer.Option(help="Privacy budget; inf means not private.")]
Delta = Annotated[float, typer.Option(help="Probability that the privacy bound may fail.")]
WhichGap = Annotated[
    Constraint, typer.Option(help="Which gap to measure, and with raco, dp2dp or parity to bound.")
]
Tolerance = Annotated[
    float | None, typer.Option(help="Largest gap (of a cap: largest rate); raco, dp2dp, parity.")
]
ComparedWith = Annotated[Against, typer.Option(help="Compare a group with each other one, or with the rest.")]
Rules = Annotated[
    list[str] | None,
    typer.Option(
        "--rule", help="A further bound, such as 'false_negative_rate <= 0.3'; raco and dp2dp, repeatable."
    ),
]
Aware = Annotated[
    bool | None,
    typer.Option(
        "--aware/--unaware",
        help="May decisions read the sensitive column? [default: unaware; methods that bound a gap want an answer]",
    ),
]
HowToTrain = Annotated[Method, typer.Option(help="How to train.")]
WhatToTrain = Annotated[ModelKind, typer.Option(help="What to train.")]
Size = Annotated[int | None, typer.Option(help="The number of units, if it is public.")]
Whom = Annotated[
    Unit | None, typer.Option(help="Whom to hide [default: a person if the schema names an id column].")
]
Holdout = Annotated[float, typer.Option(help="Share of units kept apart to measure privately.")]
Confidence = Annotated[float, typer.Option(help="Confidence of the intervals.")]
Out = Annotated[Path | None, typer.Option(help="Folder for model, summary and, with bounds, their course.")]


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
        method: HowToTrain = Method.dpsgd,
        model: WhatToTrain = ModelKind.linear,
        schema: SchemaFile = None,
        n_public: Size = None,
        ledger: LedgerFile = None,
        unit: Whom = None,
        holdout: Holdout = 0.15,
        confidence: Confidence = 0.95,
        delimiter: Delimiter = ",",
        out: Out = None,
        as_json: Json = False,
    ) -> None:
        options = RunOptions(
            data, target, tuple(sensitive or ()), epsilon, delta, str(constraint), tolerance, str(against),
            tuple(rule or ()), aware, str(method), str(model), schema, n_public, ledger,
            None if unit is None else str(unit), holdout, confidence, delimiter, out, as_json,
        )  # fmt: skip
        _do("runs", action, options)

    return command


app.command(
    "train",
    help="Train a private classifier; writes model/, summary.json and the course of its bounds, debits the ledger.",
)(_run_command("train"))
app.command("explain", help="Say what training would do and guarantee, before any data is touched.")(
    _run_command("explain")
)


@app.command()
def check(data: Data, schema: SchemaFile = None, delimiter: Delimiter = ",", as_json: Json = False) -> None:
    """Show the data holder, and only them, which values do not fit the schema. The output is private."""
    _do("tables", "check", data, schema, delimiter, as_json)


@ledger_app.command("show")
def ledger_show(
    file: Annotated[Path, typer.Argument(help="The ledger.")],
    delta: Annotated[float, typer.Option(help="State the total at this delta.")] = 1e-5,
    as_json: Json = False,
) -> None:
    """List every debit and the composed total."""
    _do("books", "show", file, delta, as_json)


@ledger_app.command("budget")
def ledger_budget(
    file: Annotated[Path, typer.Argument(help="The ledger; it is made if there is none.")],
    epsilon: Annotated[float, typer.Option(help="The most that may ever be spent.")],
    delta: Annotated[float, typer.Option(help="The delta it is stated at.")] = 1e-5,
) -> None:
    """Put a budget in force: whatever would exceed it is refused before any data is touched."""
    _do("books", "budget", file, epsilon, delta)


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
    _do("tables", "draft", data, target, sensitive, out, epsilon, delta, ledger, yes, delimiter, as_json)


@schema_app.command("approve")
def schema_approve(
    file: Annotated[Path, typer.Argument(help="The schema.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Yes, every fact in this file is public knowledge.")
    ] = False,
) -> None:
    """Approve a draft: from then on it counts as public knowledge."""
    _do("tables", "approve", file, yes)


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


def _refuse(sentence: str) -> None:
    """Say in one sentence why nothing was done, and leave with exit code 2."""
    sentence = " ".join(sentence.split()).rstrip(".") + "."
    typer.echo(json.dumps({"error": sentence}) if "--json" in sys.argv else f"fairveil: {sentence}", err=True)
    sys.exit(2)


def main() -> None:
    """Run the command line; what is refused on purpose is one sentence and exit code 2."""
    try:
        code = app(standalone_mode=False, prog_name="fairveil")
    except FairveilError as problem:
        _refuse(str(problem))
    except typer.Abort:
        _refuse("Expected to finish, got an interruption; what was booked stays booked")
    except TyperException as problem:
        message = problem.format_message()
        if message.lstrip().startswith("Usage:"):  # a name alone shows its help
            typer.echo(message, err=True)
            sys.exit(2)
        _refuse(message)
    sys.exit(code or 0)
