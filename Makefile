# Every target sets up what it needs: `make run` and `make test` work in a fresh clone with Python 3.11+ and make.
# Written for GNU make 3.81, which macOS ships, and any later one.

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
LOCK := requirements.lock
# The providers' SDKs, Ray, Inspect AI and LiteLLM bring many packages: they have an environment of their own, with all that
# .venv has, and .venv stays as it is locked.
OTHERS := .venv-others
OTHERS_LOCK := requirements-others.lock
COMPILE = -m uv pip compile pyproject.toml --universal --python-version 3.11 --upgrade --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --quiet

# One process per core; tests of one file share what they made. The files begin in the order that tests/conftest.py gives
# them, the longest first, and not by the number of their tests.
IN_PARALLEL = -n $(shell getconf _NPROCESSORS_ONLN) --dist loadfile --no-loadscope-reorder
# All tests but those that a target of their own calls.
ALL_TESTS = -m "not soak and not real and not ray"

# Tests sync tens of thousands of small files, and no test can tell whether the disk has them: what survives a process
# survives in memory too. If there is room they write to memory; `make soak` writes to the disk.
IN_MEMORY := $(shell free=$$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }'); \
	if [ -w /dev/shm ] && [ "$${free:-0}" -gt 4000000 ]; then echo TMPDIR=/dev/shm; fi)

# Where the golden files and the reference's data are, for `make conform`. Empty: beside the project in `../shared`, or else
# the sample of golden numbers in `tests/conform/sample`.
GOLDENS ?=
DATA ?=

# The first of these that starts and is new enough; `make PYTHON=/path/to/python` overrides it.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3.14 python3; do \
	if $$name -c "$(NEW_ENOUGH)" >/dev/null 2>&1; then echo $$name; break; fi; done)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Modules are compiled when they are first imported: most of what is installed here never is.
# A lock names every package, so pip needs to resolve nothing: older ones ask for hashes of releases that nobody locked.
INSTALL := -m pip install --quiet --no-compile

# Modules are compiled once and kept, also where the environment says otherwise: each test process would compile all of
# them, and each `evalkit` that a test starts.
export PYTHONDONTWRITEBYTECODE :=

# How many seeds `make sim` plays; ALWAYS=agents: in each of them agents are code (names: tests/sim/scenario.py).
SEEDS ?= 1000
# Whether `make ray` also kills actors and their driver, twenty times each.
KILLS ?=
# Whether `make wheel` tries the wheel alone, with the Python of .venv.
ONE ?=

.PHONY: help run setup test test-all check bench conform soak sim mutants sdks ray docs lock wheel

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s  %s\n", $$1, $$2 }' Makefile

run: $(READY) ## play the quickstart sweep against a simulated provider: no key, about a minute
	@echo "Playing runs/quickstart.toml against a simulated provider: about a minute on two idle cores."
	$(VENV)/bin/evalkit run runs/quickstart.toml

test: $(READY) ## every promise once: some minutes
	$(IN_MEMORY) $(PY) -m pytest $(IN_PARALLEL)

test-all: $(READY) ## the exhaustive tests too: each damage, each point to die at, each hostile input in each dialect
	$(IN_MEMORY) $(PY) -m pytest $(IN_PARALLEL) $(ALL_TESTS)

check: $(READY) ## format, lint, types, and the tests of `make test`
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
ifndef WITHOUT_TESTS
	$(IN_MEMORY) $(PY) -m pytest $(IN_PARALLEL)
endif

bench: $(READY) ## throughput relative to a bare HTTP client, measured in the same run
	$(PY) -m bench

conform: $(READY) ## compare with golden files, or a sample of them: make conform GOLDENS=dir DATA=dir
	$(PY) -m tests.conform "$(GOLDENS)" --data "$(DATA)"

soak: $(READY) ## kill and resume, many times in a row; faults, limits, kills and budgets at once (minutes)
	$(PY) -m pytest -s -m soak

sim: $(READY) ## whole runs in virtual time, with a simulated network and disk: make sim SEEDS=10000
	$(PY) -m tests.sim --seeds $(SEEDS) $(if $(ALWAYS),--always $(ALWAYS))

mutants: $(READY) ## remove one mechanism at a time from a copy, and check that the simulation notices
	$(PY) -m tests.sim.mutants

# A client of an SDK that is freed at the end of all tests leaves its socket to Python.
THEIR_SOCKETS := -W ignore::pytest.PytestUnraisableExceptionWarning

sdks: $(OTHERS)/.ready ## test with the providers' own SDKs, LiteLLM and Inspect's reader of logs, installed in .venv-others
	$(OTHERS)/bin/python -m pytest -p no:cacheprovider $(THEIR_SOCKETS) tests/sdks

$(OTHERS)/.ready: pyproject.toml $(OTHERS_LOCK) | $(READY)
	$(PY) -m venv $(OTHERS)
	$(OTHERS)/bin/python $(INSTALL) --no-deps --require-hashes -r $(OTHERS_LOCK)
	$(OTHERS)/bin/python $(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

ray: $(OTHERS)/.ready ## play runs on a real Ray cluster of this machine, installed in .venv-others; KILLS=yes: forty kills too (minutes)
	$(IN_MEMORY) $(OTHERS)/bin/python -m pytest -p no:cacheprovider -m "ray$(if $(KILLS),, and not soak)" tests/ray

docs: $(READY) ## build the documentation site in build/docs, strictly; write the generated pages
	$(PY) -m docs.tools.cli_page
	$(PY) -m docs.tools.schemas
	$(PY) -m docs.tools.environment_page
	$(PY) -m docs.tools.checked_table
	$(PY) -m sphinx --fail-on-warning --keep-going --quiet -b html -c docs . build/docs
	@echo "Open build/docs/index.html, or serve it: $(PY) -m http.server --directory build/docs"

lock: $(READY) ## resolve the dependencies again into the locks
	$(PY) $(COMPILE) --group dev --group docs --output-file $(LOCK)
	$(PY) $(COMPILE) --group dev --group others --extra inspect --extra ray --output-file $(OTHERS_LOCK)

wheel: $(READY) ## build both distributions into dist/, install them with every Python that is here, and try them; ONE=yes: the wheel, once
	$(PY) -m tests.installed $(if $(ONE),--one)

setup: $(READY) ## only create .venv and install into it

# The file is written last, so that an interrupted set-up is done again; it is older than its sources when they change.
$(READY): pyproject.toml $(LOCK)
	@if [ -z "$(PYTHON)" ]; then \
		echo "evalkit needs Python 3.11 or newer, and found none as python3.11 to python3.14 or python3." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 2; fi
	@$(PYTHON) -c "$(NEW_ENOUGH)" || { echo "$(PYTHON) does not start, or is older than Python 3.11." >&2; exit 2; }
	@echo "Setting up $(VENV), once: $$(grep -c '^[a-z0-9].*==' $(LOCK)) packages are downloaded and installed (1 to 3 minutes)."
	@$(PYTHON) -m venv $(VENV) || { \
		echo "$(PYTHON) could not create $(VENV); on Debian and Ubuntu, install its venv package first." >&2; exit 2; }
	$(PY) $(INSTALL) --no-deps --require-hashes -r $(LOCK)
	$(PY) $(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $(READY)
