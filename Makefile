# `make demo` and `make test` set up what they need in .venv; nothing else is required but Python 3.11 or later.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint bench clean browser

demo: $(VENV)/.installed
	@$(BIN)/understudy demo

test: $(VENV)/.installed-test browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto

# The report's tests open it in Chromium. Where there is none and none can be installed, they are skipped and say so.
browser:
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
		command -v $$name >/dev/null 2>&1 && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		echo "Installing Chromium for the report's tests"; \
		DEBIAN_FRONTEND=noninteractive timeout 180 sh -c 'apt-get update -qq; \
			apt-get install -y -qq --no-install-recommends chromium' >/dev/null 2>&1 || true; fi

lint: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The peers of the benchmarks need an older Gymnasium, so they live in an environment of their own.
bench: $(VENV)/.installed .venv-bench/.installed
	$(BIN)/python benchmarks/bc.py
	$(BIN)/python benchmarks/startup.py
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

clean:
	rm -rf $(VENV) out .mypy_cache .pytest_cache .ruff_cache .hypothesis
