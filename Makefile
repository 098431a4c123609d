# Every target sets up what it needs. `make` alone prints this list.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUN    := $(VENV)/.runtime
DEV    := $(VENV)/.dev
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo cluster test check unit e2e nightly bench lock

help:
	@echo "make demo      gangs start whole, share, lend and never starve, on an embedded cluster, in 30 s"
	@echo "make cluster   a real control plane with the extender to play with (Ctrl-C ends it)"
	@echo "make test      what must hold before a change lands: check, unit, e2e"
	@echo "make check     format, lint, types and layers"
	@echo "make unit      unit tests and the whole system in virtual time"
	@echo "make e2e       tests on the real etcd, kube-apiserver and kube-scheduler"
	@echo "make nightly   everything that takes hours; ONLY=chaos is one part, ONLY=list names the parts"
	@echo "make bench     the budgets, measured"
	@echo "make lock      the lock files, after a change of dependencies"

# Each stamp is newer than the files it was made from, so nothing is installed twice.
$(RUN): requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the locked dependencies into $(VENV) ..."
	@$(PIP) --require-hashes -r requirements.lock
	@touch $@

$(DEV): requirements-dev.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the locked dependencies for development into $(VENV) ..."
	@$(PIP) --require-hashes -r requirements-dev.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $(RUN) $@

# From the checkout: the demo needs nothing of the development dependencies.
demo: $(RUN)
	@$(BIN)/python -m extender demo

cluster: $(DEV)
	@$(BIN)/python -m tests.cluster up

# The first line says how long it takes.
test:
	@$(PYTHON) -m tests.cluster.binaries
	@$(MAKE) --no-print-directory check unit e2e

check: $(DEV)
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > $(VENV)/layers.txt 2>&1 || { cat $(VENV)/layers.txt; exit 1; }
	@echo "check: clean"

unit: $(DEV)
	@$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

# A file stays on one worker, and each worker has its own control plane. Workers wait more than they
# compute, so there are more of them than cores.
PLANES := 3
e2e: $(DEV)
	@$(BIN)/python -m tests.cluster build --landing
	@$(BIN)/python -m pytest tests/cluster --numprocesses $(PLANES) --dist loadfile -p no:randomly

# ONLY="chaos siege" runs these parts, MINORS="1.28 1.37" these minors of the matrix; ARGS= goes to
# the command of the part, as in ONLY=chaos ARGS="--seconds 600 --seed 17".
ONLY   :=
MINORS :=
ARGS   :=
nightly: $(DEV)
	@$(BIN)/python -m tests.nightly $(ONLY) $(if $(MINORS),--minors $(MINORS)) $(if $(ARGS),-- $(ARGS))

bench: $(DEV)
	@$(BIN)/python -m tests.bench

COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url \
	--no-header --python-version 3.11
lock: $(DEV)
	$(COMPILE) pyproject.toml --output-file requirements.lock
	$(COMPILE) pyproject.toml --group dev --output-file requirements-dev.lock
	$(COMPILE) --group build --constraints requirements-dev.lock --output-file requirements-build.lock
	$(COMPILE) --group release --constraints requirements-dev.lock --output-file requirements-release.lock
