# `make demo` and `make test` each do everything from a fresh clone, in a virtual environment of
# their own; the second call finds it ready.

PYTHON ?= python3
PYTEST_ARGS ?= -n 2
DEMO_ARGS ?=
BENCH_ARGS ?= engines

VENV := .venv
RUN := $(VENV)/bin/python -m
READY := $(VENV)/.ready
READY_FOR_DEMO := $(VENV)/.ready-for-demo
NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	echo "cocd needs Python 3.10 or newer and '$(PYTHON)' is not: name one with PYTHON=..." >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-6s %s\n", $$1, $$2}' Makefile
	@echo "Options: PYTHON=python3.12  PYTEST_ARGS='-k cli -x'  DEMO_ARGS='--seed 1'  BENCH_ARGS=..."

demo: $(READY_FOR_DEMO) ## install, then train a small network on handwritten digits with and without gradients
	$(VENV)/bin/python examples/digits.py $(DEMO_ARGS)

# Two workers on two cores: more threads in each of them would only get in each other's way.
test: lint ## install, lint, check the types and run the tests
	OMP_NUM_THREADS=1 $(RUN) pytest $(PYTEST_ARGS)

lint: $(READY) ## install, then ruff and mypy only
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy

docs: $(READY) ## install, then build the site into site/; a dead link or reference fails
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict --quiet

bench: $(READY) ## install, then run the benchmarks
	$(VENV)/bin/python benchmarks $(BENCH_ARGS)

# A stamp is written last, so an installation that was cut short is done again. The demo needs a
# few packages only; what it installs is kept when the others join.
$(READY): pyproject.toml paper/pyproject.toml constraints.txt
	@$(NEW_ENOUGH)
	$(PYTHON) -m venv $(VENV)
	$(RUN) pip install --quiet -c constraints.txt -e '.[dev]' -e ./paper
	@touch $@ $(READY_FOR_DEMO)

$(READY_FOR_DEMO): pyproject.toml constraints.txt
	@$(NEW_ENOUGH)
	$(PYTHON) -m venv $(VENV)
	$(RUN) pip install --quiet -c constraints.txt -e '.[demo,fast]'
	@touch $@

clean: ## remove the environment, the caches and the results of runs
	rm -rf $(VENV) runs build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests paper benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
