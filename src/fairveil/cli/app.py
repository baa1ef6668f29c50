"""What can be typed: every command with its options and help. The work is in modules that are loaded when needed."""

import inspect
import io
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from fairveil import __version__
from fairveil.cli._terminal import Command, Group, dressed
from fairveil.cli.options import (
    PER_POINT,
    Cache,
    Confidence,
    Data,
    Delimiter,
    Delta,
    Encoding,
    Grid,
    Json,
    KeyFile,
    LedgerFile,
    ModelFolder,
    SchemaFile,
    TrainOptions,
)
from fairveil.errors import FairveilError, printable
from fairveil.report.privacy_text import STAYS_SPENT

STARTED = time.perf_counter()
"""When the command line began to load."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a command in the usual way, so that nothing unfinished is left."""

SELDOM_USED = ("scipy.stats", "scipy.optimize", "numpy.f2py", "numpy.testing")
"""What scikit-learn and SciPy import for single functions that few commands call: a third of the start of `train`."""

LONGEST_METAVAR = 40
"""Characters of the choices that fit beside the name of an option; more stand in its help."""

INTERRUPTED_CODE = 130
"""What typer returns for a command that Ctrl-C ended."""


# --- loading ----------------------------------------------------------------------------------------------------------


def load_command(module: str) -> Any:
    """Return a module of the command line. What is seldom used gets a stand-in that loads it when it is read."""
    for name in SELDOM_USED:
        if name not in sys.modules:
            stand_in: Any = ModuleType(name)
            stand_in.__getattr__ = partial(_read_from, name, stand_in)
            parent, _, child = name.rpartition(".")
            setattr(import_module(parent), child, stand_in)
            sys.modules[name] = stand_in
    return import_module(f"fairveil.cli.{module}")


def _read_from(name: str, stand_in: ModuleType, attribute: str) -> Any:
    """Load a module, let its stand-in be like it, and return an attribute of it."""
    if sys.modules.get(name) is stand_in:
        del sys.modules[name]
    loaded = import_module(name)
    vars(stand_in).update(vars(loaded))
    return getattr(loaded, attribute)


# --- commands that train ----------------------------------------------------------------------------------------------


class _Commands(Group):
    """All commands; those that train get their options for methods when one of them is used: methods load slowly."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name in TRAINING_COMMANDS:
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(name, cls=Command, help=TRAINING_COMMANDS[name])(_training_command(name, _registry_options()))
            command = typer.main.get_command(alone)
        return name, command, rest


TRAINING_COMMANDS = {
    "train": "Train a private and fair classifier, certify it on held-out people, and write the evidence.\n\n"
    "Writes model/, summary.json and report.html into --out, and debits the ledger before any row is used.\n\n"
    "Example: fairveil train people.csv --schema schema.toml --aware --epsilon 1 --tolerance 0.02 --out results",
    "explain": "Explain what training would do, guarantee and probably certify, before any data is read.\n\n"
    "Takes the options of train. Example: fairveil explain adult --aware --epsilon 1 --tolerance 0.02",
    "frontier": "Train at every budget, tolerance and method, and draw accuracy against gap.\n\n"
    "All points are released from the same people, so the page shows their composed epsilon. A sweep that was stopped "
    "continues where it stopped.\n\n"
    "Example: fairveil frontier adult --aware --epsilons 0.5,1 --tolerances 0,0.05 --out sweep",
}


def _registry_options() -> dict[str, Any]:
    """Return the options that depend on what is registered: constraints, methods, models, and each method's knob."""
    registered = load_command("train")
    constraints, auto, known = registered.CONSTRAINT_TYPES, registered.AUTO, registered.METHODS
    methods, engines = known.values(), import_module("fairveil.methods.engines").ENGINES.values()
    kept = "; ".join(f"{one.name}: {one.help}" for one in engines)
    lines = "; ".join(f"{one.name}: {one.help}" for one in methods)
    others = ", ".join(f"{one.name}: {one.default_model}" for one in methods if one.default_model != auto)
    models = tuple(dict.fromkeys(kind for one in methods for kind in one.models))
    options: dict[str, Any] = {
        "constraint": Annotated[
            str,
            _choice(constraints, "Which gap to bound (methods without a tolerance reduce or only measure it):"),
        ],
        "method": Annotated[str, _choice((auto, *known), f"{auto} chooses by public facts. {lines}.")],
        "engine": Annotated[
            str, _choice((auto, *(one.name for one in engines)), f"Where encoded rows are kept. {kept}.")
        ],
        "model": Annotated[
            str | None,
            _choice(
                models,
                f"The model to train; {auto} is a linear one whose features follow from public facts "
                f"[default: {auto}; {others}].",
            ),
        ],
    }
    for one in methods:
        if one.knob is not None:
            owners = " or ".join(each.name for each in methods if each.knob == one.knob)
            words = f"With {owners}: {one.knob_help}"
            option = typer.Option(f"--{one.knob.replace('_', '-')}", help=words, rich_help_panel="Model")
            options[one.knob] = Annotated[float | None, option]
    return options


def _choice(values: Iterable[str], words: str) -> Any:
    """Return an option that lists and completes these values; what they stand for refuses others."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    metavar = f"[{'|'.join(values)}]"
    if len(metavar) > LONGEST_METAVAR:
        metavar, words = "NAME", words if all(value in words for value in values) else f"{words} {', '.join(values)}."
    return typer.Option(metavar=metavar, help=words, autocompletion=complete)


def _training_command(name: str, completed: Mapping[str, Any]) -> Callable[..., None]:
    """Return a command whose parameters are the fields of its options, some of them completed from the registry."""

    def command(**values: Any) -> None:
        known = {one.name for one in fields(TrainOptions)}
        knobs = {option: values.pop(option) for option in completed if option not in known and option in values}
        set_knobs = {option: value for option, value in knobs.items() if value is not None}
        if name == "frontier":
            grid = Grid(**{one.name: values.pop(one.name) for one in fields(Grid)})
            load_command("frontier").frontier(TrainOptions(**values, out=grid.out), grid)
        else:
            getattr(load_command("train"), name)(TrainOptions(**values, knobs=set_knobs))

    parameters = dict(inspect.signature(TrainOptions).parameters)
    if name == "frontier":
        parameters = {key: one for key, one in parameters.items() if key not in PER_POINT}
        parameters = {"data": parameters.pop("data"), **inspect.signature(Grid).parameters, **parameters}
    else:
        del parameters["knobs"]
    for option, annotation in completed.items():
        if option in parameters:
            parameters[option] = parameters[option].replace(annotation=annotation)
        elif name != "frontier":
            parameters[option] = inspect.Parameter(
                option, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
            )
    command.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return command


app = typer.Typer(
    name="fairveil",
    cls=_Commands,
    help="Classifiers that are differentially private and group-fair at once, with evidence.\n\n"
    "A first example, on bundled data:\n\n"
    "  fairveil train adult --aware --epsilon 1 --tolerance 0.02 --out results\n\n"
    "Your own table: schema draft, edit, schema approve, explain, train, predict; certify on held-out people; "
    "frontier to compare; ledger show for all that was ever released from these people.\n\n"
    "Exit codes: 0 done; 1 stopped from outside; 2 refused, with one sentence that says what to do.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
ledger_app = typer.Typer(
    cls=Group, help="The ledger: what was ever released from a data set.", no_args_is_help=True, rich_markup_mode=None
)
schema_app = typer.Typer(cls=Group, help="The public facts about a table.", no_args_is_help=True, rich_markup_mode=None)
for _name, _help in TRAINING_COMMANDS.items():
    app.command(_name, cls=Command, help=_help)(_training_command(_name, {}))


# --- other commands ---------------------------------------------------------------------------------------------------


def _implemented_in(module: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the function of the same name in this module, by keyword; the module is loaded when the command is used."""

    def decorate(declared: Callable[..., None]) -> Callable[..., None]:
        @wraps(declared)
        def command(**values: Any) -> None:
            getattr(load_command(module), declared.__name__)(**values)

        return command

    return decorate


@app.command(cls=Command)
@_implemented_in("predict")
def predict(
    model: ModelFolder,
    data: Data,
    out: Annotated[
        Path, typer.Option(help="Where to write decisions: a .parquet or .csv file for its owner only (0600).")
    ],
    reasons: Annotated[
        int,
        typer.Option(
            metavar="N", help="Name the N columns that cost an unfavorable decision the most points: reason_1 to N."
        ),
    ] = 0,
    typical: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="With --reasons: compare a column with this public value, not with its best one. May be repeated.",
        ),
    ] = None,
    key: KeyFile = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    as_json: Json = False,
) -> None:
    """Write a decision for every row of a table: its id, prediction, p_CLASS and note, in the order of the rows.

    The table needs no target. Example: fairveil predict results/model new.csv --out decisions.parquet --reasons 3
    """


@app.command(cls=Command)
@_implemented_in("certify")
def certify(
    model: ModelFolder,
    data: Annotated[
        str,
        typer.Argument(metavar="HOLDOUT", help="A table of people who took no part in training, with the target."),
    ],
    epsilon: Annotated[float, typer.Option(help="What the counts may cost these people; inf means not private.")],
    delta: Delta = 1e-5,
    confidence: Confidence = 0.95,
    ledger: LedgerFile = None,
    key: KeyFile = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    engine: Annotated[str, typer.Option(metavar="NAME", help="Where encoded rows are kept, as in train.")] = "auto",
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Certify a model on other people: which bounds hold, and the smallest tolerance that does.

    Uses noisy counts only, debited first. Example: fairveil certify results/model held_out.csv --epsilon 0.2
    """


@app.command(cls=Command)
@_implemented_in("audit")
def audit(
    subject: Annotated[
        str,
        typer.Argument(metavar="METHOD|DIR", help="The name of a method, auto, or a folder that 'train' wrote."),
    ],
    epsilon: Annotated[float, typer.Option(help="With a method: the claim to audit.")] = 1.0,
    delta: Annotated[float, typer.Option(help="With a method: the delta of the claim.")] = 1e-5,
    repeats: Annotated[
        int, typer.Option(help="How often the game is played in each world; more repeats give a tighter bound.")
    ] = 2000,
    confidence: Annotated[float, typer.Option(help="Confidence of the lower bound.")] = 0.999,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="With a method: run its recipe afresh in every repeat (slow).")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the audit to this .json or .html file.")] = None,
    as_json: Json = False,
) -> None:
    """Try to break a privacy claim: a lower bound on epsilon from games on synthetic records, beside the claim.

    Reads no data and costs nobody any privacy. Example: fairveil audit dp2dp --epsilon 1 --repeats 2000
    """


@app.command(cls=Command)
@_implemented_in("bench")
def bench(
    grid: Annotated[Path, typer.Argument(metavar="GRID.toml", help="What to compare: docs/how-to/compare-methods.md.")],
    out: Annotated[Path, typer.Option(help="Folder for runs/, bench.html, bench.md, figures/ and tables.")] = Path(
        "fairveil-bench"
    ),
    workers: Annotated[
        int | None, typer.Option(help="Fits at the same time, one table in memory each [default: one for each core].")
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="[local|ray]", help="Where fits run: on the cores of this machine, or on Ray.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="With --engine ray: the Ray cluster [default: workers on this machine].")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare methods on public data: every method, bound, budget and split of a grid, with exact held-out figures.

    Runs that are there already are not made again, so a bench that was stopped continues. The figures are not private.
    Example: fairveil bench benchmarks/grids/quick.toml --out bench
    """


@app.command("verify", cls=Command)
@_implemented_in("verify")
def verify_results(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that 'train' wrote.")],
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="The ledger of that run [default: the one in DIR].")
    ] = None,
    no_ledger: Annotated[
        bool, typer.Option("--no-ledger", help="Check the other files alone: the ledger is not at hand.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option("--data", help="Also check that this is the file that was trained on.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that model, summary, report, key, card and ledger belong together and were not changed since.

    Reads no rows and costs nobody any privacy. Example: fairveil verify results
    """


@app.command(cls=Command)
@_implemented_in("schema")
def check(
    data: Data,
    schema: SchemaFile = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    as_json: Json = False,
) -> None:
    """Show the data holder, and only them, which values do not match the schema. The output is private."""


@ledger_app.command(cls=Command)
@_implemented_in("ledger")
def show(
    file: Annotated[Path, typer.Argument(help="The ledger.")],
    delta: Annotated[float, typer.Option(help="State the total at this delta.")] = 1e-5,
    as_json: Json = False,
) -> None:
    """List every debit and the composed total."""


@ledger_app.command(cls=Command)
@_implemented_in("ledger")
def verify(
    file: Annotated[Path, typer.Argument(help="The ledger.")],
    summary: Annotated[
        list[Path] | None,
        typer.Option(help="A summary.json that was written with this ledger; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that a ledger is complete and unbroken, and that these summaries were written with it."""


@ledger_app.command(cls=Command)
@_implemented_in("ledger")
def budget(
    file: Annotated[Path, typer.Argument(help="The ledger; it is created if there is none.")],
    epsilon: Annotated[float, typer.Option(help="The most that may ever be spent.")],
    delta: Annotated[float, typer.Option(help="The delta it is stated at.")] = 1e-5,
    as_json: Json = False,
) -> None:
    """Put a budget in force: whatever would exceed it is refused before any data is read."""


@schema_app.command(cls=Command)
@_implemented_in("schema")
def draft(
    data: Data,
    target: Annotated[str, typer.Option(help="The column to predict.")],
    sensitive: Annotated[str, typer.Option(help="The column of groups.")],
    out: Annotated[Path, typer.Option(help="Where to write the schema; a private draft is for its owner only (0600).")],
    epsilon: Annotated[float | None, typer.Option(help="Draft privately at this cost; the ledger is debited.")] = None,
    delta: Annotated[float, typer.Option(help="With --epsilon: probability that a rare category shows.")] = 1e-6,
    ledger: LedgerFile = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Approve at once: everything in the draft is public knowledge.")
    ] = False,
    positive: Annotated[
        str | None,
        typer.Option(help="The class that counts as positive [default: one named like yes, else the last one]."),
    ] = None,
    cuts: Annotated[
        str | None,
        typer.Option(help="Cut points of a sensitive column of numbers, such as 30,50 [default: one in the middle]."),
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="COLUMN=FORMAT",
            help="How a column spells numbers or dates, such as pay=1.234,5 or born=DD/MM/YYYY; repeatable "
            "[default: without --epsilon it is guessed].",
        ),
    ] = None,
    n_public: Annotated[int | None, typer.Option(help="The number of rows, if it is public.")] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            metavar="CHARACTER",
            help="The character between the cells of a CSV file, or tab, semicolon, comma, pipe [default: guessed "
            "from the first line].",
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(help="The encoding of a CSV file, such as latin-1 or cp1252 [default: utf-8]."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a first schema from a table, for a person to edit and approve."""


@schema_app.command(cls=Command)
@_implemented_in("approve")
def approve(
    file: Annotated[Path, typer.Argument(help="The schema.")],
    yes: Annotated[bool, typer.Option("--yes", help="Yes, every fact in this file is public knowledge.")] = False,
    by: Annotated[str, typer.Option(help="Who approves; recorded in the file with the time.")] = "",
    as_json: Json = False,
) -> None:
    """Approve a draft: from then on it is treated as public knowledge."""


app.add_typer(ledger_app, name="ledger")
app.add_typer(schema_app, name="schema")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"fairveil {__version__}")
        raise typer.Exit


# --- running ----------------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the command line. Exit code 2 and one sentence: refused; 1: stopped from outside; 0: done."""
    _prepare_streams()
    for number in SIGNALS[1:]:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _terminate)
    code, sentence = 0, ""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = app(standalone_mode=False, prog_name="fairveil") or 0
            if code == INTERRUPTED_CODE:
                raise KeyboardInterrupt
        except (FairveilError, TyperException, MemoryError, RecursionError, UnicodeError, OSError) as problem:
            code, sentence = 2, _explained(problem)
        except (typer.Abort, KeyboardInterrupt, _TerminatedError) as problem:
            code, sentence = 1, _explained(problem)
            for number in SIGNALS:  # one is enough
                signal.signal(number, signal.SIG_IGN)
    if sentence.lstrip().startswith("Usage:"):  # a name alone shows its help
        typer.echo(sentence, err=True)
        sentence = ""
    if sentence:
        sentence = printable(" ".join(sentence.split())).rstrip(".") + "."
        shown = (
            json.dumps({"error": sentence}) if "--json" in sys.argv else dressed(f"fairveil: {sentence}", sys.stderr)
        )
        with suppress(OSError):  # nobody is there to read it
            typer.echo(shown, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # Python would try again at its end, and exit with another code
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def _explained(problem: BaseException) -> str:
    """Return why a command was refused or stopped, in one sentence without any private number."""
    match problem:
        case FairveilError():
            return str(problem)
        case TyperException():
            return str(problem.format_message())
        case _TerminatedError():
            what = "Terminated"
        case typer.Abort() | KeyboardInterrupt():
            what = "Interrupted"
        case MemoryError():
            what = (
                "Expected enough memory for this table, got too little; use fewer columns, categories or rows, a "
                "Parquet file instead of CSV, or a larger machine"
            )
        case RecursionError():
            what = "Expected files without deep nesting, got one that is nested too deeply; simplify it"
        case UnicodeError():
            what = "Expected text in UTF-8, got other bytes; convert the file, or rename it"
        case _:
            reason = getattr(problem, "strerror", None) or type(problem).__name__
            file = getattr(problem, "filename", None)
            place = "" if file is None else f" for {os.fsdecode(file)}"
            what = f"Expected to read and write the files of this command, got {reason}{place}; check the path, its "
            what += "permissions and the free space"
    return f"{what}; {STAYS_SPENT}"


def _prepare_streams() -> None:
    """Make printing safe: closed streams lead nowhere, and what an encoding cannot spell is escaped."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # else the next file would get the number of a stream
        pass
    os.close(number)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (open until the end)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning of fairveil in a sentence; those of other packages may quote what they have read."""
    if category.__module__.startswith("fairveil"):
        typer.echo(dressed(f"fairveil: {printable(str(message))}", sys.stderr), file=sys.stderr)


class _TerminatedError(BaseException):
    """Raised by a signal that ends the program, so that nothing unfinished is left."""


def _terminate(number: int, frame: object) -> None:
    raise _TerminatedError
