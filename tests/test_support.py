"""What pyproject.toml claims to support is what the workflow tries."""

import re
import tomllib

import pytest

from _support.source import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
JOBS = dict(re.findall(r"^  (\w+):\n(.*?)(?=^  \w+:\n|\Z)", WORKFLOW.partition("\njobs:\n")[2], re.M | re.S))


def pythons_of(text: str) -> list[str]:
    return re.findall(r"\"(3\.\d+)\"", re.search(r"python: \[(.*?)\]", text)[1])


def test_every_python_that_is_claimed_is_tried():
    claimed = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", one)]
    assert claimed == pythons_of(JOBS["newest"]) == pythons_of(JOBS["install"])
    assert PROJECT["requires-python"] == f">={claimed[0]}"
    assert set(pythons_of(JOBS["oldest"])) <= set(claimed)


@pytest.mark.parametrize("line", PROJECT["dependencies"])
def test_every_dependency_names_its_oldest_version(line):
    """The workflow turns `>=` into `==`: each line must begin with a name and a least version."""
    assert re.match(r"[\w-]+>=[\d.]+", line)


def test_pinned_versions_are_not_older_than_the_oldest():
    pins = dict(line.lower().split("==") for line in (ROOT / "constraints.txt").read_text().split())
    for line in PROJECT["dependencies"]:
        name, least = re.match(r"([\w-]+)>=([\d.]+)", line).groups()
        numbers = [[int(part) for part in re.findall(r"\d+", text)] for text in (least, pins[name])]
        assert numbers[0] <= numbers[1], name


def test_wheel_and_source_archive_are_installed_elsewhere():
    assert "kind: [wheel, sdist]" in JOBS["install"] and "runner.temp" in JOBS["install"]
