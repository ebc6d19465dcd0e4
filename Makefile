# Every target sets up what it needs: `make run` and `make test` work in a fresh clone with Python 3.11+ and make.
# Written for GNU make 3.81, which macOS ships, and any later one.

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
LOCK := requirements.lock
# The official SDKs bring many packages, so they have an environment of their own, and .venv stays as it is locked.
SDKS := .venv-sdks
SDKS_LOCK := requirements-sdks.lock
# Inspect AI wants another version of OpenAI's package than LiteLLM does, so it is measured in an environment of its own.
PEERS := .venv-peers
PEERS_LOCK := bench/peers.lock
# Model servers that nobody here wrote, and what builds them; tests talk to them from .venv.
REAL := .venv-real
REAL_LOCK := tests/real/servers.lock
# Ray is large, and starts processes that outlive a test: it has an environment of its own, with all that .venv has.
RAY := .venv-ray
RAY_LOCK := requirements-ray.lock
COMPILE = -m uv pip compile pyproject.toml --universal --python-version 3.11 --upgrade --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --quiet

# One process per core; tests of one file share what they made. The files begin in the order that tests/conftest.py gives
# them, the longest first, and not by the number of their tests.
IN_PARALLEL = -n $(shell getconf _NPROCESSORS_ONLN) --dist loadfile --no-loadscope-reorder
# All tests but those that a target of their own calls.
ALL_TESTS = -m "not soak and not real and not ray"

# Tests sync tens of thousands of small files, and no test can tell whether the disk has them: what survives a process
# survives in memory too. If there is room they write to memory; `make soak` and `make chaos` write to the disk.
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
# Which doors `make doors` tries; empty: all of them.
DOORS ?=
# Whether `make installed` tries the wheel alone, with the Python of .venv.
ONE ?=

.PHONY: help run test test-all check cover format bench bench-peers large conform soak chaos sim mutants sdks doors real ray docs lock wheel installed setup clean

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

# Compiled loops run as plain Python, so that their lines are seen; tests of compiling itself are skipped.
cover: $(READY) ## which lines all tests reach, without compiled kernels: a table, and build/cover/index.html
	NUMBA_DISABLE_JIT=1 $(IN_MEMORY) $(PY) -m pytest $(IN_PARALLEL) $(ALL_TESTS) --cov --cov-report=term:skip-covered \
		--cov-report=html:build/cover

format: $(READY) ## rewrite the code as `make check` wants it
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: $(READY) ## throughput relative to a bare HTTP client, measured in the same run
	$(PY) -m bench

bench-peers: $(READY) $(PEERS)/.ready ## evalkit beside Inspect AI: the same conversations, also after kill -9 (minutes)
	$(PY) -m bench.peers --inspect $(PEERS)/bin/python

$(PEERS)/.ready: $(PEERS_LOCK) | $(READY)
	$(PY) -m venv $(PEERS)
	$(PEERS)/bin/python $(INSTALL) --no-deps --require-hashes -r $(PEERS_LOCK)
	@touch $@

large: $(READY) ## runs of a million instances, steps and episodes: time and memory to start and to resume, CPU per step
	$(PY) -m bench.start
	$(PY) -m bench.finding
	$(PY) -m bench.finding 1000000 1
	$(PY) -m bench.growth

conform: $(READY) ## compare with golden files, or a sample of them: make conform GOLDENS=dir DATA=dir
	$(PY) -m tests.conform "$(GOLDENS)" --data "$(DATA)"

soak: $(READY) ## kill and resume, many times in a row (minutes)
	$(PY) -m pytest -m soak

chaos: $(READY) ## faults, limits, kills and budgets at once, against the simulated provider's bill (minutes)
	$(PY) -m pytest -s -m soak tests/soak/test_chaos.py

sim: $(READY) ## whole runs in virtual time, with a simulated network and disk: make sim SEEDS=10000
	$(PY) -m tests.sim --seeds $(SEEDS) $(if $(ALWAYS),--always $(ALWAYS))

mutants: $(READY) ## remove one mechanism at a time from a copy, and check that the simulation notices
	$(PY) -m tests.sim.mutants

sdks: $(SDKS)/.ready ## test with the providers' own SDKs, LiteLLM and readers of exports, installed in .venv-sdks
	$(SDKS)/bin/python -m pytest -p no:cacheprovider tests/sdks

$(SDKS)/.ready: pyproject.toml $(SDKS_LOCK) | $(READY)
	$(PY) -m venv $(SDKS)
	$(SDKS)/bin/python $(INSTALL) --no-deps --require-hashes -r $(SDKS_LOCK)
	$(SDKS)/bin/python $(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

doors: $(READY) ## try each door with its library, each in an environment that is then removed: make doors DOORS=gym
	$(PY) -m tests.doors $(DOORS)

real: $(READY) ## play with real model servers in .venv-real: llama.cpp's, compiled once (10 minutes of CPU), and LiteLLM's proxy
	@$(MAKE) --no-print-directory $(REAL)/.ready || echo "NOT INSTALLED: the servers (no network?); what needs them is skipped."
	$(PY) -m tests.real.building
	$(PY) -m pytest -m real tests/real

$(REAL)/.ready: $(REAL_LOCK) | $(READY)
	$(PY) -m venv $(REAL)
	$(REAL)/bin/python $(INSTALL) --no-deps --require-hashes -r $(REAL_LOCK)
	@touch $@

ray: $(RAY)/.ready ## play runs on a real Ray cluster of this machine, installed in .venv-ray; KILLS=yes: forty kills too (minutes)
	$(IN_MEMORY) $(RAY)/bin/python -m pytest -p no:cacheprovider -m "ray$(if $(KILLS),, and not soak)" tests/ray

$(RAY)/.ready: pyproject.toml $(RAY_LOCK) | $(READY)
	$(PY) -m venv $(RAY)
	$(RAY)/bin/python $(INSTALL) --no-deps --require-hashes -r $(RAY_LOCK)
	$(RAY)/bin/python $(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

docs: $(READY) ## build the documentation site in build/docs, strictly; write the generated pages
	$(PY) -m docs.tools.cli_page
	$(PY) -m docs.tools.environment_page
	$(PY) -m docs.tools.checked_table
	$(PY) -m sphinx --fail-on-warning --keep-going --quiet -b html -c docs . build/docs
	@echo "Open build/docs/index.html, or serve it: $(PY) -m http.server --directory build/docs"

lock: $(READY) ## resolve the dependencies again into the locks
	$(PY) $(COMPILE) --extra dev --extra docs --output-file $(LOCK)
	$(PY) $(COMPILE) --extra sdks --extra inspect --output-file $(SDKS_LOCK)
	$(PY) $(COMPILE) --extra dev --extra ray --output-file $(RAY_LOCK)
	$(PY) $(subst pyproject.toml,bench/peers.in,$(COMPILE)) --output-file $(PEERS_LOCK)
	$(PY) $(subst pyproject.toml,tests/real/servers.in,$(COMPILE)) --output-file $(REAL_LOCK)

wheel: $(READY) ## build the wheel and the source distribution into dist/
	$(PY) -m hatchling build -t wheel -t sdist -d dist

installed: $(READY) ## install both in new environments and try them, with every Python from 3.11 that is here; ONE=yes: the wheel, once
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

clean: ## remove .venv, caches and built files; runs stay
	rm -rf $(VENV) $(SDKS) $(PEERS) $(REAL) $(RAY) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
