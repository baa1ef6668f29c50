"""Interrupted benches continue, changed grids run only what changed, failures are recorded and stop nothing."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from _support.bench_workers import die_for_dpsgd
from fairveil.bench import running
from fairveil.bench.contenders import Contender
from fairveil.bench.grid import read_grid
from fairveil.bench.running import bench_in, done_in, perform, result_in
from fairveil.errors import BadStructureError
from fairveil.privacy.ledger import Ledger

pytestmark = pytest.mark.slow
PATIENCE_SECONDS = 120


def start(grid, out, workers=1):
    command = [sys.executable, "-m", "fairveil.cli", "bench", str(grid), "--out", str(out), "--workers", str(workers)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def whole_files(out):
    """When each result was written, by name; every file that has the name of a result must be whole."""
    found = {}
    for path in out.glob("runs/*.json"):
        assert isinstance(json.loads(path.read_text())["figures"], dict)
        found[path.name] = path.stat().st_mtime_ns
    return found


def wait_until(moment):
    started = time.monotonic()
    while not moment():
        assert time.monotonic() - started < PATIENCE_SECONDS
        time.sleep(0.01)


def children_of(process):
    words = ["ps", "-o", "pid=", "--ppid", str(process.pid)]
    return [int(one) for one in subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(") ", 1)[1][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_killed_bench_continues_where_it_stopped(write_grid, tmp_path):
    grid, out = write_grid(methods=["dpsgd", "logistic"], seeds=12), tmp_path / "out"
    first = start(grid, out)
    wait_until(lambda: len(list(out.glob("runs/*.json"))) >= 3)
    workers = children_of(first)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    wait_until(lambda: not any(map(is_alive, workers)))  # workers end when their driver is gone
    before = whole_files(out)
    assert 3 <= len(before) < 24 and not (out / "bench.html").exists()
    second = start(grid, out, workers=2)
    answer, said = second.communicate()
    assert second.returncode == 0, said
    assert f"24 runs, {24 - len(before)} of them to do" in said
    after = whole_files(out)
    assert len(after) == 24 and before.items() <= after.items()  # nothing lost, nothing run twice that was whole
    assert "24 of 24 runs are here" in answer and (out / "bench.html").exists()


def test_a_changed_grid_runs_only_what_changed(write_grid, tmp_path):
    runs = list(read_grid(write_grid(seeds=2)).runs())
    with bench_in(tmp_path / "out"):
        first = list(perform(runs, tmp_path / "out", "command", 1))
    assert len(first) == 4 and not any("error" in one for one in first)
    changed = list(read_grid(write_grid(seeds=3, methods=[{"name": "dpsgd", "label": "plain"}, "logistic"])).runs())
    done = done_in(tmp_path / "out", changed)
    assert {run.seed for run in changed if run.identity not in done} == {1002}
    assert {one["label"] for one in done.values()} == {"plain", "logistic"}  # labels are those of the new grid


def test_a_run_has_a_ledger_of_its_own_and_states_its_cost(write_grid, tmp_path):
    run = next(iter(read_grid(write_grid()).runs()))
    result = result_in(run, str(tmp_path / "runs" / run.identity))
    ledger = Ledger(tmp_path / result["ledger"])
    assert ledger.epsilon(1e-5) == pytest.approx(result["epsilon_spent"])
    assert result["epsilon_spent"] <= 1.0 and result["protects"] == "record"
    assert {"fairveil", "python", "numpy"} <= result["versions"].keys() and result["seconds"] > 0
    json.dumps(result, allow_nan=False)


def test_a_failing_run_says_why_and_stops_nothing(write_grid, tmp_path):
    grid = read_grid(write_grid(methods=["fair-logistic", "dpsgd"], constraints=["precision_parity"], seeds=1))
    runs = list(grid.runs())
    with bench_in(tmp_path):
        results = {one["contender"]: one for one in perform(runs, tmp_path, "command", 1)}
    assert "precision" in results["fair-logistic"]["error"] and "figures" in results["dpsgd"]
    assert len(done_in(tmp_path, runs)) == 1  # the other one is tried again
    place = tmp_path / "runs" / f"{results['dpsgd']['id']}.json"
    place.write_text(place.read_text()[:50])
    assert done_in(tmp_path, runs) == {}


def test_what_other_packages_raise_is_one_sentence(write_grid, tmp_path, monkeypatch):
    def fails(problem):
        raise ValueError("a row\nis wrong")

    run = next(iter(read_grid(write_grid()).runs()))
    monkeypatch.setattr(running, "contender_named", lambda name: Contender(name, "", fails))
    assert result_in(run, str(tmp_path))["error"] == "ValueError: a row is wrong"


def test_a_worker_that_dies_takes_only_its_run(write_grid, tmp_path, monkeypatch):
    runs = list(read_grid(write_grid(methods=["dpsgd", "logistic"], seeds=1)).runs())
    monkeypatch.setattr(running, "result_in", die_for_dpsgd)
    with bench_in(tmp_path):
        results = list(perform(runs, tmp_path, "command", 1))
    assert [one["contender"] for one in results if "figures" in one] == ["logistic"]
    assert [one["error"] for one in results if "error" in one] == [f"{running.ENDED}."]


def test_two_benches_never_share_a_folder(tmp_path):
    with bench_in(tmp_path), pytest.raises(BadStructureError, match="another bench"), bench_in(tmp_path):
        pass
    with bench_in(tmp_path):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(BadStructureError, match="use another"), bench_in(tmp_path / "file"):
        pass


def test_ray_gives_the_same_figures(write_grid, tmp_path):
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    ray = pytest.importorskip("ray", reason="needs ray: pip install 'fairveil[ray]'")
    runs = list(read_grid(write_grid(methods=["dpsgd", "logistic"], seeds=1)).runs())
    try:
        with bench_in(tmp_path):
            results = {one["contender"]: one for one in perform(runs, tmp_path, "command", 1, "ray")}
    finally:
        ray.shutdown()
    here = result_in(runs[1], str(tmp_path / "here"))
    assert results["logistic"]["figures"] == here["figures"]
    ledger = Ledger(tmp_path / "runs" / results["dpsgd"]["id"] / "ledger.jsonl")
    assert ledger.epsilon(1e-5) == pytest.approx(results["dpsgd"]["epsilon_spent"])
    assert len(done_in(tmp_path, runs)) == 2
