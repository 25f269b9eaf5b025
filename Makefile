# The front door.  A fresh machine needs python3 (3.11 or later, with venv) and make; the rest is installed
# into .venv, in the versions of constraints.txt.
#
#   make run    JupyterLab with the example notebook on "Python 3 (sandbox)"
#   make test   everything that must pass: lint, types, layers, tests

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# More arguments for JupyterLab and pytest: make run LAB_ARGS=--no-browser, make test PYTEST_ARGS='-k folder'
LAB_ARGS ?=
PYTEST_ARGS ?=

EXAMPLES := build/examples
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.PHONY: help run test lint format types docs bench constraints clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

# The examples are copied, so that saving in JupyterLab leaves the clone as it is.
run: $(VENV)/.examples
	@mkdir -p $(EXAMPLES)
	@for file in docs/examples/*; do \
	   test -e $(EXAMPLES)/$${file##*/} || cp $$file $(EXAMPLES)/; \
	 done
	$(BIN)/jupyter sandbox doctor
	cd $(EXAMPLES) && PATH="$(CURDIR)/$(BIN):$$PATH" jupyter lab $(AS_ROOT) $(LAB_ARGS) sales.ipynb

test: lint types
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell README.md CONTRIBUTING.md CHANGELOG.md docs sandbox_kernel jupyter_ext container tests
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev
	$(BIN)/mypy

docs: $(VENV)/.dev
	$(BIN)/python -m pytest tests/docs $(PYTEST_ARGS)

bench: $(VENV)/.dev
	$(BIN)/python tests/benchmarks/kernel.py

constraints: $(VENV)/.dev
	@mkdir -p build
	@{ sed -n '/^#/p' constraints.txt; \
	   $(BIN)/python -m pip freeze --exclude-editable --exclude pip --exclude setuptools --exclude wheel; \
	 } > build/constraints.txt && mv build/constraints.txt constraints.txt

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	 || { echo "Python 3.11 or later is needed; $(PYTHON) is older. Name another: make run PYTHON=python3.13"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	 || { rm -rf $(VENV); echo "Python's venv module is missing. On Debian and Ubuntu: apt install python3-venv"; exit 1; }

$(VENV)/.examples: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV); the first time takes a minute or two."
	$(PIP_INSTALL) --editable '.[examples]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV); the first time takes a minute or two."
	$(PIP_INSTALL) --editable '.[test,dev]'
	@touch $@ $(VENV)/.examples
