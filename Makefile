# Two commands matter: `make demo` and `make test`. Each sets up what it needs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check conformance interop fuzz bench bench-check soak clean

demo: $(VENV)/.package
	@$(BIN)/python examples/demo.py

test: $(VENV)/.tools
	$(BIN)/python -m tests

check: $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

conformance: $(VENV)/.package
	$(BIN)/python -m tests.conformance.run

interop: $(VENV)/.tools
	$(BIN)/python -m tests.interop.run

fuzz: $(VENV)/.package
	$(BIN)/python -m tests.fuzz

bench: $(VENV)/.package
	$(BIN)/python -m bench.run

bench-check: $(VENV)/.package
	$(BIN)/python -m bench.check

soak: $(VENV)/.package
	$(BIN)/python -m tests.soak

$(VENV)/.package: pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[auth]'
	@touch $@

$(VENV)/.tools: $(VENV)/.package requirements-dev.txt
	$(PIP) --requirement requirements-dev.txt
	@touch $@

clean:
	rm -rf $(VENV) .venv-bench .conformance .interop .node dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz
