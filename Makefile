# Each goal sets up what it needs in .venv: nothing has to be installed by hand but Python 3.11, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
export OPENBLAS_NUM_THREADS ?= 1
# one process more than there are cores: some tests wait for a disk, a browser or another process
WORKERS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")
# the real data sets, which are not ours to ship; without them their tests are skipped
export FAIRVEIL_DATA ?= $(wildcard $(CURDIR)/../shared/data)
# where the browser tests keep their screenshots
export FAIRVEIL_ARTEFACTS ?= $(CURDIR)/build/artefacts

.PHONY: demo test test-fast check speed clean

demo: $(VENV)/demo.stamp
	$(BIN)/fairveil train adult --aware --epsilon 1 --delta 1e-5 --tolerance 0.02 --out fairveil-demo

test: check
	$(BIN)/python -m pytest -q -rs -n $(WORKERS) --dist worksteal

# while you work: no large samples, no browser, no long trainings
test-fast: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not (statistical or browser or slow or sklearn or attack)"

check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

speed: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/speed.py --json

$(VENV)/demo.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[dev,torch]"
	touch $@

clean:
	rm -rf $(VENV) fairveil-demo fairveil-examples build dist
