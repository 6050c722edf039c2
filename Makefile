# Everything a contributor does, one target each.  `make` alone prints this list.
# Nothing has to be installed beforehand but Python 3.11 to 3.13 and make.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV   := .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/ready
SITE   := $(VENV)/ready-for-docs
ARGS   ?=
JOBS   ?= 3
PAPERS := tests/papers papers

# Before whatever starts a JVM: settle which Java.  Fails here, with advice, if there is none.
WITH_JAVA = JAVA_HOME="$$(scripts/find-java)" || exit 1; export JAVA_HOME;

.PHONY: help setup demo test test-papers test-all check lint fmt spark fast golden bench papers docs clean

help: ## print this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv and install the tested versions (again only when they change)
	@:

$(READY): pyproject.toml constraints.txt
	@scripts/make-venv $(VENV)
	@echo "setup: installing Penstock and the versions of constraints.txt (a few minutes the first time)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(PY) -m compileall -q penstock  # as pip does with what it copies
	@touch $@
	@echo "setup: done"

demo: $(READY) ## see it work: a dozen queries on sensor streams, about a minute
	@$(WITH_JAVA) $(VENV)/bin/penstock demo $(ARGS)

test: lint ## what must hold for a commit: format, lint, types, imports, docs, tests (ARGS="-k name" to choose)
	@$(WITH_JAVA) $(PY) -m pytest -n $(JOBS) --dist loadfile $(addprefix --ignore=,$(PAPERS)) $(ARGS)

test-papers: $(READY) ## the tests of the figures of the papers
	@$(WITH_JAVA) $(PY) -m pytest -n $(JOBS) --dist loadfile $(PAPERS) $(ARGS)

test-all: test test-papers ## every test

check: test ## the same: what to run before a commit

lint: $(READY) ## what holds without running anything: format, lint, types, imports, generated documents
	@echo "lint: format";  $(PY) -m ruff format --check --quiet .
	@echo "lint: code";    $(PY) -m ruff check --quiet .
	@echo "lint: types";   $(PY) -m mypy --strict
	@echo "lint: imports"; $(VENV)/bin/lint-imports
	@echo "lint: docs";    $(PY) scripts/check-docs; $(PY) scripts/journal-docs --check; $(PY) scripts/status-docs --check; $(PY) scripts/error-docs --check

fmt: $(READY) ## format the code and mend what ruff can mend
	@$(PY) -m ruff format --quiet .
	@$(PY) -m ruff check --fix --quiet .

spark: $(READY) ## only the tests that start a JVM
	@$(WITH_JAVA) $(PY) -m pytest -n $(JOBS) --dist loadfile -m spark $(ARGS)

fast: $(READY) ## only the tests that need no JVM: seconds
	@$(PY) -m pytest -n $(JOBS) --dist loadfile -m "not spark" $(ARGS)

golden: $(READY) ## rewrite the golden files from what the code says now; read the diff
	@PENSTOCK_GOLDEN=rewrite $(PY) -m pytest tests/golden $(ARGS)
	@git --no-pager diff --stat -- tests/golden

bench: $(READY) ## measure, side by side with other engines (ARGS="--help" for the choices)
	@$(WITH_JAVA) $(VENV)/bin/penstock bench $(ARGS)

papers: $(READY) ## reproduce figures of the papers (ARGS="list", a figure's name, or "all")
	@$(WITH_JAVA) $(VENV)/bin/penstock lab $(or $(ARGS),list)

docs: $(READY) $(SITE) ## write the generated pages, check links and paths, and build the site into site/
	@$(PY) scripts/journal-docs
	@$(PY) scripts/status-docs
	@$(PY) scripts/error-docs
	@$(PY) scripts/check-docs
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "docs: site/index.html"

$(SITE): pyproject.toml constraints.txt | $(READY)
	@echo "docs: installing mkdocs"
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

clean: ## remove caches and what runs left behind; keeps .venv
	@rm -rf site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist \
	        spark-warehouse metastore_db derby.log demo-out
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
