"""What can be typed, in types: choices, options and their help."""

import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

STARTED = time.perf_counter()
"""When the command line began to load."""


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
    """Ways to train."""

    auto = "auto"
    dp2dp = "dp2dp"
    raco = "raco"
    parity = "parity"
    functional = "functional"
    fairdp = "fairdp"
    pfld = "pfld"
    dpsgd = "dpsgd"
    dpsgdf = "dpsgdf"
    output = "output"


class ModelKind(StrEnum):
    """Models."""

    linear = "linear"
    mlp = "mlp"


class Protects(StrEnum):
    """What is secret."""

    record = "record"
    attribute = "attribute"


class Unit(StrEnum):
    """Whom one unit of privacy stands for."""

    record = "record"
    person = "person"


@dataclass(frozen=True)
class RunOptions:
    """Everything that `train`, `explain` and each point of `frontier` were asked for."""

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
    out: Path
    as_json: bool
    norm_bound: float | None = None
    lambda_max: float | None = None
    protects: str = "record"


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
    Constraint,
    typer.Option(help="Which gap to bound (pfld: to bring to 0; fairdp, dpsgd, dpsgdf, output: to measure)."),
]
Tolerance = Annotated[
    float | None, typer.Option(help="Largest gap that may be (of a cap: largest rate), such as 0.02.")
]
ComparedWith = Annotated[Against, typer.Option(help="Compare a group with each other one, or with the rest.")]
Rules = Annotated[
    list[str] | None,
    typer.Option("--rule", help="A further bound, such as 'false_negative_rate <= 0.3'; repeatable."),
]
Aware = Annotated[
    bool | None,
    typer.Option(
        "--aware/--unaware",
        help="May decisions read the sensitive column? You must say: reading it is unlawful in some places.",
    ),
]
HowToTrain = Annotated[
    Method,
    typer.Option(
        help="auto chooses by public facts. dp2dp: a fair rule on top of scores; raco: training under bounds; parity: "
        "random flips; functional: one release of moments; fairdp: groups side by side, the gap is measured; pfld: the "
        "attribute alone is secret, the gap is measured; dpsgd, dpsgdf, output: private only, the gap is measured."
    ),
]
WhatToTrain = Annotated[
    ModelKind | None, typer.Option(help="What to train [default: linear; fairdp, pfld: mlp].")
]
NormBound = Annotated[
    float | None,
    typer.Option(
        "--norm-bound",
        help="With fairdp: the largest norm of the last layer; small is cautious [default: 10, mlp 1.5].",
    ),
]
LambdaMax = Annotated[
    float | None,
    typer.Option(
        "--lambda-max",
        help="With pfld: the largest multiplier of a gap; small is accurate, large is fair [default: 5].",
    ),
]
WhatIsSecret = Annotated[
    Protects,
    typer.Option(
        help="Hide whole records, or the sensitive attribute alone, while features and labels are public (pfld)."
    ),
]
Size = Annotated[int | None, typer.Option(help="The number of units, if it is public.")]
Whom = Annotated[
    Unit | None, typer.Option(help="Whom to hide [default: a person if the schema names an id column].")
]
Holdout = Annotated[float, typer.Option(help="Share of units kept apart to measure privately.")]
Confidence = Annotated[float, typer.Option(help="Confidence of the intervals.")]
Out = Annotated[
    Path, typer.Option(help="Folder for model/, summary.json and report.html; replaces earlier ones.")
]
RESULTS = Path("fairveil-results")
"""Where results go if nothing else is said."""

ModelFolder = Annotated[Path, typer.Argument(help="A model folder that 'fairveil train' wrote.")]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key", help="What decides lots [default: the key beside the model folder, if any]."),
]
