"""`fairveil bench`: a grid of fits on public data, compared on the same rows."""

import os
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from fairveil import __version__
from fairveil.bench.comparison import compare
from fairveil.bench.grid import Grid, Run, read_grid
from fairveil.bench.output import MARKDOWN, NOT_PRIVATE, PAGE, aligned, headline_table, write_outputs
from fairveil.bench.running import bench_in, done_in, perform
from fairveil.cli._files import check_outputs
from fairveil.cli._terminal import progress_unless, say
from fairveil.errors import InvalidParameterError

ENGINES = ("local", "ray")
OUTPUTS = (MARKDOWN, PAGE)
MOST_REASONS = 3
"""Failures that are printed; the page lists all."""


def bench(grid: Path, out: Path, workers: int | None, engine: str, address: str | None, as_json: bool) -> None:
    """Run what is not there yet, and write the comparison of all."""
    if engine not in ENGINES:
        raise InvalidParameterError(f"Expected --engine to be {' or '.join(ENGINES)}, got {engine!r}.")
    if address is not None and engine != "ray":
        raise InvalidParameterError("Expected --address with --engine ray only, got it without; leave it out.")
    n_workers = workers if workers is not None else (os.cpu_count() or 1)
    if n_workers < 1:
        raise InvalidParameterError(f"Expected at least one worker, got {workers}.")
    wanted = read_grid(grid)
    tables: dict[str, Path | None] = {f"data file {one.name}": one.path for one in wanted.data}
    check_outputs([out / name for name in OUTPUTS], {"grid": grid, **tables})
    runs = list(wanted.runs())
    command = shlex.join(["fairveil", *sys.argv[1:]])
    with bench_in(out):
        results = done_in(out, runs)
        left = [run for run in runs if run.identity not in results]
        if not as_json:
            typer.echo(f"{len(runs)} runs, {len(left)} of them to do, on {n_workers} workers.", err=True)
        work = perform(left, out, command, n_workers, engine, address)
        failures = []
        for result in _shown(work, len(left), as_json):
            if "error" in result:
                failures.append({"id": result["id"], "error": result["error"]})
            else:
                results[result["id"]] = result
        whole = [results[run.identity] for run in runs if run.identity in results]
        if not whole:
            reason = failures[0]["error"] if failures else "no run"
            raise InvalidParameterError(f"Expected at least one run that succeeds, got none of {len(runs)}: {reason}")
        facts = _facts(wanted, runs, whole, failures, command)
        written = write_outputs(out, facts, whole)
    say(
        as_json,
        _plain(facts) | {"written": [str(out / name) for name in written]},
        _text(facts, out, len(left) - len(failures)),
    )


def _shown(work: Iterator[dict[str, Any]], n: int, as_json: bool) -> Iterator[dict[str, Any]]:
    """Return results one by one, under a bar on a terminal."""
    bar = iter(progress_unless(as_json, "bench")(range(n)))
    for result in work:
        next(bar, None)
        yield result
    next(bar, None)


def _facts(
    grid: Grid, runs: list[Run], whole: list[dict[str, Any]], failures: list[dict[str, Any]], command: str
) -> dict[str, Any]:
    about = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "command": command,
        "n_planned": len(runs),
        "n_done": len(whole),
        "failures": failures,
        "missing": list(grid.missing),
    }
    return compare(grid, whole, about)


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    return {"public_data_only": NOT_PRIVATE, **facts}


def _text(facts: dict[str, Any], out: Path, n_new: int) -> str:
    lines = [aligned(headline_table(facts)), "", NOT_PRIVATE]
    lines.append(f"{facts['n_done']} of {facts['n_planned']} runs are here, {n_new} of them were made now.")
    lines += [f"{name} was left out: its rows are not there." for name in facts["missing"]]
    failures = facts["failures"]
    if failures:
        lines.append(f"{len(failures)} failed, and will be tried again the next time:")
        lines += [f"  {one['id']}: {one['error']}" for one in failures[:MOST_REASONS]]
    lines.append(f"Page: {out / PAGE}")
    return "\n".join(lines)
