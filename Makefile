# Two commands matter: `make demo` and `make test`. Each sets up what it needs in .venv.
# `make test PYTHON=python3.13 VENV=.venv-3.13` uses another Python, TESTS="tests/server -x" runs
# some of the tests, with any options of pytest.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 4
TESTS ?= tests
BIN := $(VENV)/bin
# Python compiles what it imports; pip would compile everything.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# pytest rewrites every test file when it imports it: each of its processes does that again if it may not
# keep the result.
unexport PYTHONDONTWRITEBYTECODE
DOCS_VENV ?= .venv-docs
PYTEST := $(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal

.PHONY: demo test compile-tests test-all test-lowest coverage setup system assets page pictures docs \
	reference check count conformance interop moving install-check openapi-check matrix fuzz bench bench-gateway bench-backend \
	bench-inspector \
	bench-check soak clean

demo: $(VENV)/.package
	@$(BIN)/python examples/demo.py

test: system page $(VENV)/.tools
	@$(BIN)/python -m tests.node
	$(PYTEST) $(TESTS)

# Compile the tests, which several test processes would otherwise each do at the same time.
compile-tests: $(VENV)/.tools
	@$(BIN)/python -m pytest --collect-only --quiet $(TESTS) > $(VENV)/tests.txt

# Every Python from 3.11 on that is installed, each in its own virtual environment.
test-all:
	$(PYTHON) scripts/pythons.py --each $(MAKE) test

# The lowest versions that pyproject.toml allows, in a fresh virtual environment.
test-lowest:
	rm -rf .venv-lowest
	mkdir .venv-lowest
	$(PYTHON) scripts/lowest.py > .venv-lowest/constraints.txt
	PIP_CONSTRAINT=$(CURDIR)/.venv-lowest/constraints.txt $(MAKE) test VENV=.venv-lowest

# Browser, npm and Redis, with sudo if need be.
setup:
	$(PYTHON) scripts/system_packages.py

# The same, but only if it needs no password: in containers and on CI machines.
system:
	@$(PYTHON) scripts/system_packages.py --root

# What is missing of the libraries of the inspector's page, from npm, checked by their hashes.
assets:
	$(PYTHON) hatch_build.py

# The same, but without npm or its registry it only warns, and tests of the page are skipped.
page: system
	@$(PYTHON) hatch_build.py --optional

# The pictures in docs/pictures: drawings, and screenshots that tests take.
pictures: page $(VENV)/.tools
	$(BIN)/python -m scripts.pictures
	DOVETAIL_PICTURES=1 $(BIN)/python -m pytest tests/inspector/page/test_dev.py \
		tests/inspector/page/test_compare.py tests/inspector/page/test_tools.py tests/auth/test_end_to_end.py

# The documentation site, in site/. It fails on a dead link, and on anything loaded from another host.
docs: $(DOCS_VENV)/.docs
	$(DOCS_VENV)/bin/python scripts/docs_site.py

# The pages of docs/reference that repeat what the code says.
reference: $(VENV)/.tools
	$(BIN)/python -m scripts.reference

# Which lines of the package the tests run, in subprocesses too. COVERAGE_CORE=sysmon makes it faster
# on Python 3.12 and later.
coverage: system page $(VENV)/.tools
	@$(BIN)/python -m tests.node
	$(BIN)/python -m coverage erase
	$(PYTEST) --cov --cov-report= -m "not bare_interpreter" $(TESTS)
	$(BIN)/python -m coverage report --skip-covered

check: $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Files, tokens, long functions and duplicate class names.
count:
	@$(PYTHON) scripts/count.py

conformance: $(VENV)/.package
	$(BIN)/python -m tests.conformance.run

interop: $(VENV)/.tools
	$(BIN)/python -m tests.interop.run

# Which published servers and examples of other libraries run unedited; it installs them from PyPI.
moving: $(VENV)/.package
	$(BIN)/python -m tests.moving

# Entries of `dovetail install` start as hosts start them, from every kind of environment.
install-check: $(VENV)/.tools
	$(BIN)/python -m tests.host_configs.bare_start

# Every operation of three large APIs, against a stub that checks requests; it needs npm.
openapi-check: $(VENV)/.tools
	$(BIN)/python -m tests.openapi.check

# Everything that `make test` does only in some revisions, over some transports or in some tests.
matrix: $(VENV)/.tools
	MATRIX=all $(PYTEST) tests/behaviour tests/client/test_relay.py tests/gateway/test_matrix.py \
		tests/inspector/page

fuzz: $(VENV)/.package
	$(BIN)/python -m tests.fuzz

# Dovetail beside the official SDK, FastMCP and a floor. The page also shows the ratios of Python 3.13:
# `make bench PYTHON=python3.13 VENV=.venv-3.13`.
bench: $(VENV)/.package
	$(BIN)/python -m bench.run

# Dovetail's gateway beside others, which need npm.
bench-gateway: $(VENV)/.package
	$(BIN)/python -m bench.gateway

# A server on a shared backend beside FastMCP with Docket, on one Redis.
bench-backend: system $(VENV)/.package
	$(BIN)/python -m bench.backend

# Dovetail's inspector beside the official one, which needs npm; both need a browser.
bench-inspector: system assets $(VENV)/.package
	$(BIN)/python -m bench.inspector

bench-check: $(VENV)/.package
	$(BIN)/python -m bench.check

soak: system $(VENV)/.package
	$(BIN)/python -m tests.soak
	$(BIN)/python -m tests.soak.tasks

$(VENV)/.package: pyproject.toml
	@$(PYTHON) scripts/system_packages.py --root venv
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[all]'
	@touch $@

$(VENV)/.tools: $(VENV)/.package requirements-dev.txt
	$(PIP) --requirement requirements-dev.txt
	@touch $@

$(DOCS_VENV)/.docs: requirements-docs.txt
	@$(PYTHON) scripts/system_packages.py --root venv
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

clean:
	rm -rf .venv .venv-* .cache site .bench .conformance .interop .moving .node dist build .pytest_cache .mypy_cache \
		.ruff_cache .hypothesis .fuzz .coverage
