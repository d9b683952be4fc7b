# `make demo` and `make test` each do all of their own set-up on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed: privmix alone, which is all that the demo needs, or what developers need as well.
DEMO := $(VENV)/.demo
DEV := $(VENV)/.dev
DOCS := $(VENV)/.docs
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
JOBS ?= 2

.PHONY: demo test test-change test-all docs package lint format fuzz bench setup clean

setup: $(DEV)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e .
	@touch $@

# pip would compile one file after the other. Some packages carry files that are no Python: they are left out.
$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --no-compile -e '.[dev]'
	@$(BIN)/python -m compileall -qq -j $(JOBS) $(VENV)/lib || true
	@touch $(DEMO) $(DOCS) $@

$(DOCS): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[docs]'
	@touch $(DEMO) $@

demo: $(DEMO)
	$(BIN)/privmix demo --out demo-output --overwrite

# One thread a worker: threads of several workers on few cores spend their time waiting for each other. Processes that
# tests start read the package's byte code, also where a machine would not have it written. tests/conftest.py orders the
# files.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=40

# One of each kind; what every design, page and reader has to pass in all its forms is in test-all.
test: $(DEV)
	$(PYTEST) -m "not thorough"

# The thorough tests near to a change, and one of four parts of the others: tests/selection.py.
test-change: $(DEV)
	files=$$($(BIN)/python -m tests.selection) && $(PYTEST) -m thorough $$files

test-all: $(DEV)
	$(PYTEST)

# The site of docs/, into docs/_build/html: a warning is an error. Its gallery runs every example anew that has changed.
docs: $(DOCS)
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -j $(JOBS) docs docs/_build/html
	PYTHONPATH=docs $(BIN)/python -m _site.check docs/_build/html

# An archive and a wheel in dist/; tests/test_package.py tries what they install.
package: $(DEV)
	$(BIN)/python -m build --no-isolation

# Mutated data, releases, models and records, for SECONDS; what is not handled is kept in fuzz-failures. One SEED, one
# sequence of inputs.
SECONDS ?= 600
SEED ?= $(shell date +%s%N)
fuzz: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Every table and figure under benchmarks/results; hours on two cores. One script at a time: see benchmarks/README.md.
bench: $(DEV)
	$(INSTALL) -e '.[bench]'
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) build dist demo-output docs/_build docs/generated
