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
# figures that others published, to stand beside ours; without them only ours are shown
export FAIRVEIL_REFERENCE ?= $(wildcard $(CURDIR)/../shared/reference)
# where the browser tests keep their screenshots
export FAIRVEIL_ARTEFACTS ?= $(CURDIR)/build/artefacts

.PHONY: demo test test-fast check docs speed bench-quick kills fuzz audit clean

demo: $(VENV)/demo.stamp
	$(BIN)/fairveil train adult --aware --epsilon 1 --delta 1e-5 --tolerance 0.03 --out fairveil-demo

test: check
	$(BIN)/python -m pytest -q -rs -n $(WORKERS) --dist worksteal

# while you work: no large samples, no browser, no long trainings
test-fast: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not (statistical or browser or slow or sklearn or attack)"

check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# the site in build/docs; a warning is an error, and the tutorials run
docs: $(VENV)/docs.stamp
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/doctrees docs build/docs
	@echo "Open build/docs/index.html."

# hostile files and options, more than the suite tries; then guided by coverage where atheris can be installed
fuzz: $(VENV)/dev.stamp
	$(BIN)/python tests/fuzz/run.py --cases 10000
	-$(PIP) atheris
	if $(BIN)/python -c "import atheris" 2>/dev/null; then for target in rule schema csv model ledger; do \
	  $(BIN)/python tests/fuzz/atheris_targets.py $$target -max_total_time=60 || exit 1; done; fi

# an attack on the claim of every method; about half an hour
audit: $(VENV)/dev.stamp
	for method in auto $$($(BIN)/python -c "from fairveil.methods.registry import METHODS; print(*METHODS)"); do \
	  $(BIN)/fairveil audit $$method --epsilon 4 --repeats 2000 --json || exit 1; done

speed: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/speed.py --json

# methods beside the optimum that is not private, on public data: a few minutes on two cores
bench-quick: $(VENV)/demo.stamp
	$(BIN)/fairveil bench benchmarks/grids/quick.toml --out build/bench-quick

# kill real processes before every change to the disk; needs strace
kills: $(VENV)/dev.stamp
	$(BIN)/python tests/kills.py

$(VENV)/demo.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[dev,torch,ray]"
	touch $@

$(VENV)/docs.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) fairveil-demo fairveil-examples build dist docs/auto
