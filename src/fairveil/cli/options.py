"""Options that can be typed: their types, defaults and help. `app` makes commands of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

GROUPS = {
    "Data": (
        "data", "file", "target", "positive", "schema", "n_public", "formats", "delimiter", "encoding", "engine",
        "cache", "address", "workers", "grid",
    ),
    "Privacy": ("epsilon", "epsilons", "delta", "unit", "protects", "ledger"),
    "Fairness": ("sensitive", "cuts", "aware", "constraint", "tolerance", "tolerances", "against", "rule"),
    "Model": ("subject", "method", "methods", "model", "setting", "key"),
    "Evidence": (
        "holdout", "auc", "confidence", "repeats", "adaptive", "summary", "yes", "by", "owner", "purpose", "card",
        "reasons", "typical", "no_ledger",
    ),
    "Output": ("out", "as_json"),
}  # fmt: skip
"""The parameters of all commands by the heading that help pages show them under."""


class Against(StrEnum):
    """What a group is compared with."""

    pairs = "pairs"
    rest = "rest"


class Protects(StrEnum):
    """What is secret."""

    record = "record"
    attribute = "attribute"


class Unit(StrEnum):
    """What one unit of privacy stands for."""

    record = "record"
    person = "person"


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Data = Annotated[
    str,
    typer.Argument(
        help="A known name (adult is bundled), or the path of a CSV or Parquet file or of a folder of Parquet files."
    ),
]
SchemaFile = Annotated[Path | None, typer.Option("--schema", help="TOML file with the public facts about the table.")]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        help="The character between the cells of a CSV file, or tab, semicolon, comma, pipe [default: the schema's].",
    ),
]
Encoding = Annotated[
    str | None, typer.Option(help="The encoding of a CSV file, such as latin-1 or cp1252 [default: the schema's].")
]
Cache = Annotated[
    Path | None,
    typer.Option(help="Folder for encoded rows on disk; they are private [default: beside the ledger]."),
]
LedgerFile = Annotated[
    Path | None,
    typer.Option("--ledger", help="Privacy ledger of this data set [default: beside the data file]."),
]
Delta = Annotated[float, typer.Option(help="Probability that the privacy bound may fail.")]
Confidence = Annotated[float, typer.Option(help="Confidence of the intervals.")]
ModelFolder = Annotated[Path, typer.Argument(help="A model folder that 'fairveil train' wrote.")]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key", help="Key of a randomized rule [default: the key beside the model folder, if any]."),
]


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Every option of `train`, `explain` and each point of `frontier`.

    A field is an option. Those without help here, and one option for each method's knob, are completed from the
    registry of methods by `_registry_options`.
    """

    data: Data
    target: Annotated[str | None, typer.Option(help="The column to predict [default: the schema's].")] = None
    sensitive: Annotated[
        list[str] | None,
        typer.Option(help="The column of groups; several for their intersections [default: the schema's first]."),
    ] = None
    epsilon: Annotated[float, typer.Option(help="Privacy budget; inf means not private.")] = 1.0
    delta: Delta = 1e-5
    constraint: str = "demographic_parity"
    tolerance: Annotated[float | None, typer.Option(help="Maximum allowed gap (or rate, for caps), e.g. 0.02.")] = None
    against: Annotated[Against, typer.Option(help="Compare each group with every other, or with everyone else.")] = (
        Against.pairs
    )
    rule: Annotated[
        list[str] | None,
        typer.Option(help="A further bound, such as 'false_negative_rate <= 0.3'; repeatable."),
    ] = None
    aware: Annotated[
        bool | None,
        typer.Option(
            "--aware/--unaware",
            help="May decisions read the sensitive column? Required: reading it is unlawful in some places.",
        ),
    ] = None
    method: str = "auto"
    model: str | None = None
    protects: Annotated[
        Protects,
        typer.Option(help="Hide whole records, or only the sensitive attribute: features and labels are then public."),
    ] = Protects.record
    schema: SchemaFile = None
    n_public: Annotated[int | None, typer.Option(help="The number of units, if it is public.")] = None
    ledger: LedgerFile = None
    unit: Annotated[
        Unit | None, typer.Option(help="Hide rows or persons [default: person if the schema names an id column].")
    ] = None
    holdout: Annotated[
        str,
        typer.Option(
            metavar="[auto|SHARE]", help="Share of units held out for the certificate; auto chooses by public facts."
        ),
    ] = "auto"
    auc: Annotated[
        bool, typer.Option("--auc", help="Also measure ROC-AUC and average precision on the hold-out, in its budget.")
    ] = False
    confidence: Confidence = 0.95
    delimiter: Delimiter = None
    encoding: Encoding = None
    engine: str = "auto"
    cache: Cache = None
    address: Annotated[
        str | None, typer.Option(help="With --engine ray: the Ray cluster [default: workers on this machine].")
    ] = None
    owner: Annotated[str | None, typer.Option(help="Who is responsible for the classifier; shown as evidence.")] = None
    purpose: Annotated[str | None, typer.Option(help="What the classifier is for; shown as evidence.")] = None
    card: Annotated[bool, typer.Option("--card", help="Also write model-card.md, for model registries.")] = False
    out: Annotated[
        Path, typer.Option(help="Folder for model/, summary.json and report.html; replaces earlier ones.")
    ] = Path("fairveil-results")
    as_json: Json = False
    setting: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Set a field of the method's recipe: descent.n_steps=600. Repeatable; an unknown name lists all.",
        ),
    ] = None
    knobs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What `frontier` varies, and where all points go."""

    out: Annotated[Path, typer.Option(help="Folder for frontier.csv, frontier.html and every point's model.")]
    epsilons: Annotated[str, typer.Option(help="Budgets, separated by commas; each point spends its own.")] = "0.5,1,3"
    tolerances: Annotated[str, typer.Option(help="Tolerances, separated by commas.")] = "0,0.02,0.05,0.1"
    methods: Annotated[str, typer.Option(help="Methods, separated by commas.")] = "auto"


PER_POINT = ("epsilon", "tolerance", "rule", "method", "protects", "setting", "knobs", "out")
"""Options of `train` that `frontier` does not have: it varies them, or cannot."""
