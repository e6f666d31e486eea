# Each command sets up what it needs in .venv; nothing else is required but Python 3.11 or later.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-all check try lint tables docs docs-serve bench soak clean

demo: $(VENV)/.installed
	@$(BIN)/understudy demo

# The linter, the type checker, the import contracts, and the tests of behaviour.
test: check
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"

# Everything, with the slow tests: browser, Ray, kill and resume, examples and commands from end to end.
test-all: check
	$(BIN)/python -m pytest -n auto --dist loadfile

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

# The quick loop while writing an algorithm: make try NAME=dagger
try: $(VENV)/.installed-test
	@test -n "$(NAME)" || { echo "usage: make try NAME=dagger"; exit 2; }
	@file=$$(ls src/understudy/algorithms/*/$(NAME).py) && $(BIN)/ruff check $$file && $(BIN)/ruff format --check $$file && $(BIN)/mypy $$file
	$(BIN)/python -m pytest -n auto tests/algorithms/test_protocol.py -m "not slow" -k "$(NAME)"

lint: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Write the generated parts of README.md and docs again: the taxonomy, the games and settings of the algorithms, the
# tables of docs/results and over all algorithms, the logo.
tables: $(VENV)/.installed
	$(BIN)/python tools/taxonomy.py
	$(BIN)/python tools/algorithm_pages.py
	$(BIN)/python tools/logo.py
	$(BIN)/python tools/tables.py

# The documentation site, in out/site/html. Every warning is an error, such as a link that leads nowhere.
docs: $(VENV)/.installed-docs
	$(BIN)/python tools/docs_site.py

# The same, shown on http://localhost:8000.
docs-serve: $(VENV)/.installed-docs
	$(BIN)/python tools/docs_site.py --serve

# 40 minutes of mixed work with random kills, damaged files, full disks and hung environments; ends with a table.
soak: $(VENV)/.installed
	$(BIN)/python tools/soak.py --out out/soak.csv

# The peers of the benchmarks need an older Gymnasium, so they live in an environment of their own.
bench: $(VENV)/.installed .venv-bench/.installed
	$(BIN)/python benchmarks/bc.py
	$(BIN)/python benchmarks/loading.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/deploy.py
	$(BIN)/python benchmarks/off_q.py
	$(BIN)/python benchmarks/on_q.py
	$(BIN)/python benchmarks/sac.py
	$(BIN)/python benchmarks/study.py
	$(BIN)/python benchmarks/tabular.py

.venv-bench/.installed:
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet torch==2.13.0
	.venv-bench/bin/python -m pip install --quiet imitation==1.0.1
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "understudy needs Python 3.11 or later, this is %d.%d: run make PYTHON=python3.11" % v[:2])'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing understudy into $(VENV) (a minute or two the first time)"
	@$(PIP) --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@echo "Installing the test tools into $(VENV)"
	@$(PIP) --constraint constraints.txt --editable '.[test]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "Installing Sphinx into $(VENV)"
	@$(PIP) --constraint constraints.txt --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) out .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
