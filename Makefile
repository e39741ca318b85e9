# Everything a fresh checkout needs: git, make and python3-venv. Only `.venv` is written to (`bench`: `.venv-peers` too).
#
#   make venv         .venv with `tm` in it
#   make demo-quick   kill -9 a run and its server, resume both, compare every loss (no torch, under a minute)
#   make demo         the same with PyTorch DDP
#   make test         the test suite
#   make nightly      2,000 simulated histories, all planted bugs, every failpoint, a disk that fails at each call (hours)
#   make test-extras  the tests with MLflow, Lightning, Transformers, an S3 server and the like (installs some GB)
#   make fuzz         ten minutes of hostile requests, lines, patterns and archives against a server of its own
#   make lint         ruff, mypy --strict, import-linter
#   make bench        the figures in docs/benchmarks.md
#   make docs         docs/reference, generated from the code
#   make site         the documentation as a web site, in build/site
#   make pins         whether constraints.txt holds on every supported Python (installs nothing)
#   make lock         deploy/requirements.lock: the core's dependencies with their digests

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -c constraints.txt
STAMPS := $(VENV)/.stamps
# For two cores: one more, as tests wait for processes and programs. Long files come before `unit`, whose short ones fill the end.
SPREAD := -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: venv demo demo-quick test nightly fuzz test-extras lint bench docs site pins lock
.DEFAULT_GOAL := venv

venv: $(STAMPS)/base
	@echo "tm is ready: $(BIN)/tm --help"

demo-quick: $(STAMPS)/base
	$(BIN)/python examples/demo/demo.py --quick

demo: $(STAMPS)/demo
	$(BIN)/python examples/demo/demo.py --full

test: $(STAMPS)/dev $(STAMPS)/demo
	$(BIN)/python -m pytest $(SPREAD) --durations 12

nightly: $(STAMPS)/dev pins
	TRAINMASTER_NIGHTLY=1 $(BIN)/python -m pytest --timeout=14400 $(SPREAD) tests/e2e
	TRAINMASTER_NIGHTLY=1 TRAINMASTER_HISTORIES=2000 $(BIN)/python -m pytest --timeout=14400 -n 2 --dist loadgroup tests/sim tests/unit tests/arch

test-extras: $(STAMPS)/extras
	$(BIN)/python -m pytest -n 2 --dist loadgroup tests/extras

MINUTES ?= 10
fuzz: $(STAMPS)/dev
	$(BIN)/python tests/fuzzing.py --minutes $(MINUTES)

lint: $(STAMPS)/dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(STAMPS)/demo $(STAMPS)/peers
	$(BIN)/python benchmarks/run.py

docs: $(STAMPS)/base
	$(BIN)/python docs/generate.py

site: $(STAMPS)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -q

pins: $(STAMPS)/dev
	$(BIN)/python deploy/pins.py

lock: $(STAMPS)/base
	$(BIN)/python deploy/lock.py

$(STAMPS)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Trainmaster needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)."; \
	  echo "Name another one: make venv PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	  echo "'$(PYTHON)' comes without venv; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

$(STAMPS)/base: $(STAMPS)/python pyproject.toml constraints.txt
	$(INSTALL) -e .
	@touch $@

$(STAMPS)/demo: $(STAMPS)/base
	$(INSTALL) -e '.[demo]'
	@touch $@

$(STAMPS)/peers: $(STAMPS)/python benchmarks/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install -r benchmarks/peers.txt
	@touch $@

$(STAMPS)/dev: $(STAMPS)/base
	$(INSTALL) -e '.[dev]'
	@touch $@

$(STAMPS)/docs: $(STAMPS)/base
	$(INSTALL) -e '.[docs]'
	@touch $@

$(STAMPS)/extras: $(STAMPS)/dev $(STAMPS)/demo
	$(INSTALL) -e '.[extras-test]'
	@touch $@
