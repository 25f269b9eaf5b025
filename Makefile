# The front door.  A fresh machine needs python3 (3.11 or later, with venv) and make; the rest is installed
# into .venv, in the versions of constraints.txt.  Working on what runs in browsers (js/) needs node 18
# or later with npm, and so do all but make run.
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
# Tests to run at the same time as all others, in one process a word; commas join the folders of a word:
# make test BESIDE='tests/e2e/browser tests/cli,tests/jupyter_ext'
BESIDE ?=

EXAMPLES := build/examples
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

JS_INSTALLED := js/node_modules/.installed
JS_BUILT := js/node_modules/.built
# Folders too, so that a file that went away counts as a change.
JS_SOURCES := $(shell find js/packages/*/src js/packages/*/build.mjs js/packages/*/tsconfig*.json 2>/dev/null)

COMMA := ,
# Tests that run make themselves are not part of this run's jobs.
PYTEST := env -u MAKEFLAGS -u MFLAGS $(BIN)/python -m pytest

.PHONY: help run test js-test lint format types docs capabilities openapi bench js bundle constraints clean have-node
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
	cd $(EXAMPLES) && PATH="$(CURDIR)/$(BIN):$$PATH" jupyter lab --SandboxPool.size=1 $(AS_ROOT) $(LAB_ARGS) sales.ipynb

# With make -j the first three run at the same time.
test: lint types js-test
ifeq ($(BESIDE),)
	$(PYTEST) $(PYTEST_ARGS)
else
	@# The shell would have programs beside it ignore Ctrl-C, and what those start as well.
	@mkdir -p build; rm -f build/beside-*.log; \
	number=0; pieces=; failed=0; \
	for piece in $(BESIDE); do \
	   number=$$((number + 1)); \
	   env --default-signal=INT,QUIT $(PYTEST) $$(echo $$piece | tr , ' ') \
	      -p no:cacheprovider $(PYTEST_ARGS) >build/beside-$$number.log 2>&1 & pieces="$$pieces $$!"; \
	done; \
	$(PYTEST) $(patsubst %,--ignore=%,$(subst $(COMMA), ,$(BESIDE))) $(PYTEST_ARGS) || failed=1; \
	for piece in $$pieces; do wait $$piece || failed=1; done; \
	cat build/beside-*.log; \
	exit $$failed
endif

js-test: js
	cd js && npm test --silent

lint: $(VENV)/.dev $(JS_INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell README.md CONTRIBUTING.md CHANGELOG.md docs sandbox_kernel jupyter_ext container tests
	$(BIN)/lint-imports
	cd js && npm run lint --silent

format: $(VENV)/.dev $(JS_INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	cd js && npm run format --silent

types: $(VENV)/.dev $(JS_INSTALLED)
	$(BIN)/mypy
	cd js && npm run types --silent

js: $(JS_BUILT)

# What runs in a notebook's page is kept built in the repository, so that neither make run nor an
# installation needs node.  A test compares it with its sources.
bundle: $(JS_INSTALLED)
	cd js && npm run bundle --silent -w packages/widget -w packages/labextension

docs: $(VENV)/.dev
	$(BIN)/python -m pytest tests/docs $(PYTEST_ARGS)

# The page of what works on which engine over which transport; needs bubblewrap and a Docker daemon.
capabilities: $(VENV)/.dev
	WRITE_CAPABILITIES=1 $(BIN)/python -m pytest tests/contract/test_matrix.py $(PYTEST_ARGS)

# The description of the REST routes that stands in docs; a test compares it.
openapi: $(VENV)/.dev
	WRITE_OPENAPI=1 $(BIN)/python -m pytest tests/jupyter_ext/test_openapi.py -k docs $(PYTEST_ARGS)

bench: $(VENV)/.dev
	$(BIN)/python tests/benchmarks/kernel.py

constraints: $(VENV)/.dev
	@mkdir -p build
	@{ sed -n '/^#/p' constraints.txt; \
	   $(BIN)/python -m pip freeze --exclude-editable --exclude pip --exclude setuptools --exclude wheel; \
	 } > build/constraints.txt && mv build/constraints.txt constraints.txt

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf $(VENV) js/node_modules js/packages/*/dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	 || { echo "Python 3.11 or later is needed; $(PYTHON) is older. Name another: make run PYTHON=python3.13"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	 || { rm -rf $(VENV); echo "Python's venv module is missing. On Debian and Ubuntu: apt install python3-venv"; exit 1; }

$(VENV)/.examples: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV); the first time takes a minute or two."
	$(PIP_INSTALL) --editable '.[examples]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt tests/support/preview-apps.txt | $(BIN)/python
	@echo "Installing into $(VENV); the first time takes a minute or two."
	$(PIP_INSTALL) --editable '.[test,dev]'
	$(PIP_INSTALL) --no-deps --upgrade --target $(VENV)/preview-apps --requirement tests/support/preview-apps.txt
	@touch $@ $(VENV)/.examples

have-node:
	@node -e 'process.exit(+(parseInt(process.versions.node) < 18))' 2>/dev/null && command -v npm >/dev/null \
	 || { echo "Node.js 18 or later with npm is needed for js/. On Debian and Ubuntu: apt install nodejs npm"; exit 1; }

$(JS_INSTALLED): js/package-lock.json js/package.json $(wildcard js/packages/*/package.json) | have-node
	cd js && npm ci --silent
	@touch $@

$(JS_BUILT): $(JS_INSTALLED) $(JS_SOURCES)
	cd js && npm run build --silent
	@touch $@
