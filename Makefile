# Two commands matter: `make demo` and `make test`. Each sets up what it needs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check conformance bench clean

demo: $(VENV)/.package
	@$(BIN)/python examples/demo.py

test: $(VENV)/.tools
	$(BIN)/python -m pytest

check: $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

conformance: $(VENV)/.package
	$(BIN)/python -m tests.conformance.run

bench: $(VENV)/.package
	$(BIN)/python bench/run.py

$(VENV)/.package: pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[auth]'
	@touch $@

$(VENV)/.tools: $(VENV)/.package requirements-dev.txt
	$(PIP) --requirement requirements-dev.txt
	@touch $@

clean:
	rm -rf $(VENV) .venv-bench .conformance .node dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
