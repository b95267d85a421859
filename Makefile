# Two commands do everything: `make demo` and `make test`. Each makes the virtual environment first.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FRAMEWORKS := .venv-frameworks
CODE := sweep trainer templates studies tests benchmarks
# Tests wait more than they compute, so more run side by side than a small machine has cores; JOBS=0
# runs one after the other. Frameworks need more memory each; on a cluster each has a whole Slurm.
JOBS ?= 4
FRAMEWORK_JOBS ?= 4
CLUSTER_JOBS ?= 2
# A test or demo starts hundreds of Pythons: each would compile sweep anew, for a third of a second.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder
# Folders without a unit test: tests/conftest.py says so too.
WHOLLY_REAL := e2e cluster chaos frameworks

.PHONY: help reference demo test test-cluster test-frameworks test-declared test-all check bench cluster lint format types unit clean

help:
	@echo "make demo      a real search on this machine: 30 trainings, ranked, the best run again"
	@echo "make test      the tests in their short form, a dozen on a real cluster (12 minutes)"
	@echo "make test-cluster  all tests on a real Slurm cluster on this machine (as root)"
	@echo "make test-frameworks  Lightning, transformers, Keras, … installed, and each one for real"
	@echo "make test-declared  the main job with the lowest declared versions of all packages, and the newest"
	@echo "make test-all  every long form too; goes on where it was interrupted; test-report.json"
	@echo "make check     lint, types and unit tests (2 minutes)"
	@echo "make reference  the tables of docs/study-file.md made anew"
	@echo "make bench     the benchmarks"
	@echo "make cluster   a shell on a real Slurm cluster on this machine (as root)"

$(VENV)/.ready: requirements.lock setup.cfg pyproject.toml .ci/venv
	@.ci/venv "$(PYTHON)" "$(VENV)"
	@touch $@

demo: $(VENV)/.ready
	@$(BIN)/python -m studies.demo

test: $(VENV)/.ready
	@$(BIN)/python -m tests.needs
	$(PYTEST) --ignore=tests/frameworks tests -m "not cluster"

test-cluster: $(VENV)/.ready
	@$(BIN)/python -m tests.needs
	$(PYTEST) -n $(CLUSTER_JOBS) tests/cluster $(SELECT)

# In an environment of their own: what the frameworks bring must not reach the lock file.
test-frameworks: $(FRAMEWORKS)/.ready
	@$(FRAMEWORKS)/bin/python -m tests.needs
	$(FRAMEWORKS)/bin/python -m pytest -n $(FRAMEWORK_JOBS) --dist load tests/frameworks $(SELECT)

$(FRAMEWORKS)/.ready: $(VENV)/.ready requirements-frameworks.txt .ci/venv-frameworks
	@.ci/venv-frameworks "$(VENV)" "$(FRAMEWORKS)"
	@touch $@

# What setup.cfg declares: the main job with the lowest versions of all packages, and the newest.
test-declared: $(VENV)/.ready
	@.ci/declared "$(VENV)"

test-all: $(VENV)/.ready
	@$(BIN)/python -m tests.needs
	$(PYTEST) tests --long --resume

# Side by side: the types take one core, and a minute where nothing is cached yet.
check: $(VENV)/.ready
	@$(MAKE) --no-print-directory -j 3 --output-sync=target lint types unit

lint: $(VENV)/.ready
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

format: $(VENV)/.ready
	$(BIN)/ruff check --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)

types: $(VENV)/.ready
	$(BIN)/mypy

reference: $(VENV)/.ready
	@$(BIN)/python -m tests.reference

unit: $(VENV)/.ready
	$(PYTEST) $(WHOLLY_REAL:%=--ignore=tests/%) tests -m "not real" -q

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks

cluster: $(VENV)/.ready
	$(BIN)/python -m tests.cluster shell

clean:
	rm -rf $(VENV) $(FRAMEWORKS) .venv-lowest .venv-newest build dist *.egg-info demo-runs
