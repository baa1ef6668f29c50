"""What fairveil answers at its public doors: commands run in this process, benchmarks cut down to seconds.

Only `fairveil.cli.main`, names of `fairveil` itself and the benchmarks' own names are used here, so that modules may
move and classes may be renamed behind the doors.
"""

import csv
import importlib
import inspect
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import fairveil
from _support.benchmarking import last_line
from fairveil.cli import main

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
N_ROWS = 2000
BOUND = ("--tolerance", "0.05")
METHODS = {
    "auto": ("--aware", *BOUND),
    "dp2dp": ("--method", "dp2dp", "--aware", *BOUND),
    "dp2dp-unaware": ("--method", "dp2dp", "--unaware", *BOUND),
    "raco": ("--method", "raco", "--unaware", *BOUND),
    "parity": ("--method", "parity", "--aware", *BOUND),
    "functional": ("--method", "functional", "--unaware", *BOUND),
    "fairdp": ("--method", "fairdp", "--unaware"),
    "pfld": ("--method", "pfld", "--protects", "attribute", "--unaware"),
    "fermi": ("--method", "fermi", "--unaware"),
    "fermi-attribute": ("--method", "fermi", "--protects", "attribute", "--unaware"),
    "dpsgd": ("--method", "dpsgd", "--unaware"),
    "dpsgdf": ("--method", "dpsgdf", "--unaware"),
    "dpsgdg": ("--method", "dpsgdg", "--unaware"),
    "output": ("--method", "output", "--unaware"),
}
"""Every method that the command line offers, with the options it needs."""

TRAININGS = METHODS | {"pfld": (*METHODS["pfld"], "--model", "linear")}
"""How each is trained: as it is explained, but for a network that would take seconds."""

COMMANDS = (
    "train", "explain", "predict", "certify", "frontier", "check", "ledger show", "ledger verify", "ledger budget",
    "schema draft", "schema approve",
)  # fmt: skip
TABLE = ("people.csv", "--schema", "schema.toml")
MANY = ("--sensitive", "sex", "--sensitive", "race", "--against", "rest")
ODDS = ("--constraint", "equalized_odds")
RULES = ("--rule", "error_rate <= 0.3", "--rule", "false_negative_rate[sex=Female] <= 0.6")
PERSON = ("--schema", "persons.toml")
NOT_COUNTED = ("--schema", "not_counted.toml")
OTHER_BUDGET = ("--epsilon", "0.3", "--delta", "1e-7", "--holdout", "0.3")
PLANS = {
    method: {
        "as it is": (),
        "other budget": OTHER_BUDGET,
        "several attributes": MANY,
    }
    for method in METHODS
}
"""What is explained to the last digit, by method: options beside those that the method needs."""

for _name, _more in {
    "auto": {"not private": ("--epsilon", "inf"), "no hold-out": ("--holdout", "0"), "rules": RULES},
    "dp2dp": {
        "equalized odds": ODDS,
        "people": PERSON,
        "not counted": NOT_COUNTED,
        "network": ("--model", "mlp"),
    },
    "dp2dp-unaware": {"not counted": NOT_COUNTED, "few people": ("--n-public", "2000")},
    "raco": {"odds and rules": (*ODDS, *RULES), "people": PERSON, "not counted": NOT_COUNTED},
    "parity": {"few people": ("--n-public", "2000"), "not counted": NOT_COUNTED},
    "functional": {"equalized odds": ODDS, "not counted": NOT_COUNTED},
    "fairdp": {"linear": ("--model", "linear", "--norm-bound", "2"), "not counted": NOT_COUNTED},
    "pfld": {"linear odds": ("--model", "linear", *ODDS, "--lambda-max", "2"), "people": PERSON},
    "fermi": {"equalized odds": (*ODDS, "--penalty-weight", "2"), "not counted": NOT_COUNTED},
    "fermi-attribute": {"people": PERSON},
    "dpsgd": {"network of people": ("--model", "mlp", *PERSON), "no hold-out": ("--holdout", "0")},
    "dpsgdf": {"not counted": NOT_COUNTED},
    "dpsgdg": {"not counted": NOT_COUNTED},
    "output": {"not counted": NOT_COUNTED, "people": PERSON},
}.items():
    PLANS[_name] |= _more
del PLANS["parity"]["several attributes"]  # its flips are for two groups

WORDS = ("statement", "cautions", "version")
"""Keys of an explanation whose values are prose: their shape is kept, not their wording."""


class Door:
    """A folder with a table in it, and the command line run there; every training is done once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._done: dict[str, Any] = {}
        adult = fairveil.load_dataset("adult")
        people = adult.X.assign(**{adult.schema.target.column: adult.y})
        people.head(N_ROWS).to_csv(folder / "people.csv", index=False)
        people.iloc[N_ROWS : 2 * N_ROWS].to_csv(folder / "strangers.csv", index=False)
        people.head(N_ROWS).assign(age=-1, sex="?").to_csv(folder / "spoiled.csv", index=False)
        for name, facts in {
            "schema": {"n_public": N_ROWS},
            "not_counted": {"n_public": None},
            "persons": {"id_column": "person"},
        }.items():
            adult.schema.model_copy(update=facts).write(folder / f"{name}.toml")

    def says(self, *words: object) -> tuple[int, str, str]:
        """Run a command and return its exit code, what it printed, and what it complained of."""
        out, err = io.StringIO(), io.StringIO()
        with inside(self.folder), redirect_stdout(out), redirect_stderr(err):
            try:
                # without an index of ledgers: each method has a ledger of its own here
                with (
                    patch.object(sys, "argv", ["fairveil", *map(str, words)]),
                    patch.dict(os.environ, XDG_STATE_HOME="/dev/null"),
                ):
                    main()
                code = 0
            except SystemExit as stop:
                code = int(stop.code or 0)
        return code, out.getvalue(), err.getvalue()

    def answers(self, *words: object) -> Any:
        """Run a command with --json and return the object it printed."""
        code, out, err = self.says(*words, "--json")
        if code:
            raise AssertionError(f"fairveil {' '.join(map(str, words))} left with exit code {code}: {err}")
        return json.loads(out)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what was made under this name, making it if it was not."""
        if name not in self._done:
            self._done[name] = make()
        return self._done[name]

    def trained(self, method: str) -> Any:
        """Return what the training by a method printed; its results stand in the folder of that name."""
        books = ("--ledger", f"{method}.jsonl", "--out", method)
        return self.once(method, lambda: self.answers("train", *TABLE, *TRAININGS[method], *books))

    def summary(self, method: str) -> Any:
        """Return the summary.json that the training by a method wrote."""
        self.trained(method)
        return json.loads((self.folder / method / "summary.json").read_text())

    def explained(self, method: str, *options: str) -> Any:
        """Return what training on the bundled table would do."""
        words = (*METHODS[method], *options)
        return self.once(f"explain {words}", lambda: self.answers("explain", "adult", *words))

    def explained_exactly(self, method: str, case: str) -> dict[str, Any]:
        """Return an explanation without its prose: what public facts alone determine."""
        found = self.explained(method, *PLANS[method][case])
        return {name: value for name, value in found.items() if name not in WORDS}

    def predicted(self, method: str) -> Any:
        """Return what predict says with a trained model."""
        self.trained(method)
        return self.answers("predict", f"{method}/model", "strangers.csv", "--out", f"{method}-decisions.csv")

    def certified(self, method: str) -> Any:
        """Return what certify says of a trained model, at other people's cost."""
        self.trained(method)
        books = ("--ledger", f"{method}-strangers.jsonl")
        return self.answers("certify", f"{method}/model", "strangers.csv", "--epsilon", "1", *books)

    def swept(self) -> Any:
        """Return what a small frontier says."""
        grid = ("--epsilons", "1", "--tolerances", "0,0.1", "--methods", "functional,dpsgd", "--unaware")
        books = ("--ledger", "sweep.jsonl", "--out", "sweep")
        return self.once("frontier", lambda: self.answers("frontier", *TABLE, *grid, *books))

    def files(self, method: str) -> dict[str, str]:
        """Return what stands in the folder that a training wrote, as keys."""
        self.trained(method)
        return {path.name: "" for path in (self.folder / method).iterdir()}

    def columns(self, path: str) -> dict[str, str]:
        """Return the columns of a CSV file that was written before, as keys."""
        with (self.folder / path).open() as lines:
            return dict.fromkeys(next(csv.reader(lines)), "")

    def columns_of_trace(self) -> dict[str, str]:
        """Return the columns of the constraint trace of a training under bounds."""
        self.trained("raco")
        return self.columns("raco/constraint_trace.csv")

    def columns_of_decisions(self) -> dict[str, str]:
        """Return the columns of a file of decisions."""
        self.predicted("dp2dp")
        return self.columns("dp2dp-decisions.csv")

    def columns_of_frontier(self) -> dict[str, str]:
        """Return the columns of the table of a frontier."""
        self.swept()
        return self.columns("sweep/frontier.csv")

    def options(self, command: str) -> dict[str, str]:
        """Return the options of a command, as keys."""
        with patch.dict(os.environ, COLUMNS="200"):
            _, out, _ = self.says(*command.split(), "--help")
        lines = [line for line in out.splitlines() if line.lstrip().startswith("-")]
        names = [name for line in lines for name in re.findall(r"--[a-z][a-z-]*", line.strip().split("  ")[0])]
        return dict.fromkeys(names, "")

    def books(self, method: str) -> Any:
        """Return what the ledger of a training shows."""
        self.trained(method)
        return self.answers("ledger", "show", f"{method}.jsonl")

    def budget(self) -> Any:
        """Return what putting a budget in force says."""
        return self.answers("ledger", "budget", "budget.jsonl", "--epsilon", "3")

    def books_with_budget(self) -> Any:
        """Return what an empty ledger under a budget shows."""
        self.budget()
        return self.answers("ledger", "show", "budget.jsonl")

    def draft(self, *options: str) -> Any:
        """Return what drafting a schema says."""
        asked = ("--target", "income", "--sensitive", "sex", "--out", "draft.toml", "--ledger", "draft.jsonl")
        words = ("schema", "draft", "people.csv", *asked, *options)
        return self.once(f"draft {options}", lambda: self.answers(*words))

    def books_of_a_draft(self) -> Any:
        """Return what the ledger of a privately drafted schema shows."""
        self.draft("--epsilon", "1")
        return self.answers("ledger", "show", "draft.jsonl")

    def approved(self) -> Any:
        """Return what approving a schema says."""
        shutil.copy(self.folder / "schema.toml", self.folder / "approved.toml")  # other answers use the first one
        return self.answers("schema", "approve", "approved.toml", "--yes")

    def checked(self, table: str) -> Any:
        """Return what a check of a table against the schema says."""
        return self.answers("check", table, "--schema", "schema.toml")

    def refused(self) -> Any:
        """Return what is said, with exit code 2, where something is refused."""
        code, out, err = self.says("explain", "adult", "--tolerance", "0.05", "--json")
        return {"exit_code": code, "printed": out, "complaint": json.loads(err)}


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder, with no data sets but the bundled ones."""
    before = Path.cwd()
    with patch.dict(os.environ):
        os.environ.pop("FAIRVEIL_DATA", None)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


class Anything(ModuleType):
    """Stands for the other libraries' side of the speed benchmark: whatever is measured takes 1 ms."""

    def __getattr__(self, name: str) -> Callable[..., float]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_arguments: 1.0


@contextmanager
def benchmark(name: str) -> Iterator[ModuleType]:
    """Import a benchmark as its script would be, with nothing of the other libraries behind it."""
    own = {path.stem for path in BENCHMARKS.glob("*.py")}
    before = {stem: sys.modules.pop(stem) for stem in own & set(sys.modules)}
    sys.modules["opacus_timing"] = Anything("opacus_timing")
    try:
        with patch.object(sys, "path", [str(BENCHMARKS), *sys.path]):
            yield importlib.import_module(name)
    finally:  # what else was imported stays
        for stem in own:
            sys.modules.pop(stem, None)
        sys.modules.update(before)


def few_people(n_rows: int) -> SimpleNamespace:
    """Return the first rows of the bundled table, as a data set."""
    adult = fairveil.load_dataset("adult")
    schema = adult.schema.model_copy(update={"n_public": n_rows})
    return SimpleNamespace(X=adult.X.head(n_rows), y=adult.y.head(n_rows), schema=schema)


def speed(_: Door) -> Any:
    """Return the figures of the speed benchmark, from a few steps of each contender on few rows."""
    small: dict[str, Any] = {
        "ROUNDS": 1,
        "GROUP": 1,
        "N_ROWS": 4096,
        "load_dataset": lambda _name: few_people(4096),
    }
    small["subprocess"] = SimpleNamespace(run=lambda *_words, **_options: None)
    small["OursLagrangian"] = lambda *_choices: SimpleNamespace(ms=lambda: 1.0)  # its warm-up takes seconds
    with benchmark("speed") as module, patch.multiple(module, **small):
        return last_line(module)


def quality(*words: str) -> Callable[[Door], Any]:
    """Return how to get the figures of the quality benchmark, on few rows."""

    def answer(_: Door) -> Any:
        with benchmark("quality") as module:
            whole = module.bench_of

            def cut(options: Any) -> Any:
                bench = whole(options)
                parts = {"frame": bench.frame, "y": bench.y, "groups": bench.groups}
                return module.replace(bench, **{name: part[:N_ROWS] for name, part in parts.items()})

            with patch.object(module, "bench_of", cut):
                return last_line(module, *words, "--runs", "1")

    return answer


def quality_beside_rivals(door: Door) -> Any:
    """Return the figures of PF-LD beside those of its rivals, which are read from a file."""
    figures = (
        "accuracy_mean",
        "accuracy_sd",
        "violation_mean",
        "violation_sd",
        "positive_rate_mean",
        "roc_auc_mean",
    )
    task = {"dataset": "adult", "constraint": "demographic_parity", "runs": 1}
    rows = [
        task | dict.fromkeys(figures, 0.5) | {"rival": name, "epsilon": 1.0 if name == "M" else None}
        for name in ("CLF", "Z", "A", "M")
    ]
    path = door.folder / "rivals.json"
    path.write_text(json.dumps({"rows": rows}))
    return quality("--method", "pfld", "--model", "linear", "--rivals", str(path))(door)


def front_door(*words: str) -> Callable[[Door], Any]:
    """Return how to get the figures of the front door benchmark, on few rows."""

    def answer(_: Door) -> Any:
        with (
            benchmark("front_door") as module,
            patch.object(module, "load_dataset", lambda _name: few_people(N_ROWS)),
        ):
            return last_line(module, *words, "--runs", "1")

    return answer


def _each(methods: Any, action: str) -> dict[str, Callable[[Door], Any]]:
    return {method: lambda door, method=method: getattr(door, action)(method) for method in methods}


SHAPES: dict[str, dict[str, Callable[[Door], Any]]] = {
    "summary": _each(METHODS, "summary"),
    "explain": _each(METHODS, "explained"),
    "predict": _each(("dp2dp", "parity", "dpsgd", "pfld"), "predicted"),
    "certify": _each(("dp2dp", "raco", "parity", "fairdp", "pfld", "dpsgd"), "certified"),
    "frontier": {"functional and dpsgd": Door.swept},
    "ledger_show": _each(METHODS, "books")
    | {"with a budget": Door.books_with_budget, "of a draft": Door.books_of_a_draft},
    "ledger_budget": {"new": Door.budget},
    "schema_draft": {"to be approved": Door.draft, "private": lambda door: door.draft("--epsilon", "1")},
    "schema_approve": {"draft": Door.approved},
    "check": {
        "all fits": lambda door: door.checked("people.csv"),
        "spoiled": lambda door: door.checked("spoiled.csv"),
    },
    "files": _each(METHODS, "files"),
    "columns": {
        "constraint trace": Door.columns_of_trace,
        "decisions": Door.columns_of_decisions,
        "frontier": Door.columns_of_frontier,
    },
    "options": _each(COMMANDS, "options"),
    "refusal": {"left open": Door.refused},
    "benchmark_speed": {"all parts": speed},
    "benchmark_quality": {
        "dpsgd": quality("--method", "dpsgd"),
        "dpsgdf": quality("--method", "dpsgdf"),
        "dpsgdg": quality("--method", "dpsgdg"),
        "output": quality("--method", "output"),
        "raco": quality("--method", "raco", "--tolerance", "0.05"),
        "dp2dp": quality("--method", "dp2dp"),
        "dp2dp-unaware": quality("--method", "dp2dp", "--unaware"),
        "parity": quality("--method", "parity"),
        "functional": quality("--method", "functional"),
        "fairdp": quality("--method", "fairdp", "--model", "linear"),
        "pfld beside its rivals": quality_beside_rivals,
        "frontier": quality("--method", "functional", "--frontier", "0,0.1"),
    },
    "benchmark_front_door": {"plain": front_door(), "with a test part": front_door("--test", "0.25")},
}
"""Whose shapes are kept: kinds of answers, and of each kind some cases."""


def public_names() -> list[str]:
    """Return the public names."""
    return sorted(fairveil.__all__)


def estimator_parameters() -> dict[str, list[str]]:
    """Return the parameters of every public estimator, in their order."""
    public = {name: getattr(fairveil, name) for name in public_names()}
    estimators = {name: one for name, one in public.items() if inspect.isclass(one) and hasattr(one, "get_params")}
    return {name: list(inspect.signature(one).parameters) for name, one in estimators.items()}


NAMES: dict[str, Callable[[], Any]] = {
    "public_names": public_names,
    "estimator_parameters": estimator_parameters,
}
"""What is changed on purpose only, and then here as well."""
