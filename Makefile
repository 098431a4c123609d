# The few words of this project; each does all its own set-up.
# `make` alone prints them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := words
.PHONY: words demo test check cluster cluster-matrix takeovers soak bench tables image lock clean

words:
	@echo "make demo      a gang held and then started, on an embedded cluster, in a minute"
	@echo "make test      everything: checks, unit tests, tests on the real kube-scheduler"
	@echo "make check     format, lint, types and layers only"
	@echo "make cluster   a real control plane with the extender, to play with (Ctrl-C ends it)"
	@echo "make bench     the budgets, measured"
	@echo "make tables    the tables of the manual, written anew from the code"
	@echo "make image     the container image (needs a Docker engine)"

# Nothing is installed twice: the stamp is older than what it was made from only after a change.
$(READY): requirements-dev.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the locked dependencies into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY)
	@$(BIN)/gang-extender demo

test: check
	@$(BIN)/python -m pytest

check: $(READY)
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > $(VENV)/layers.txt 2>&1 || { cat $(VENV)/layers.txt; exit 1; }
	@echo "check: clean"

cluster: $(READY)
	@$(BIN)/python -m tests.cluster up

# The promises on every minor of kube-scheduler that tests/cluster/modules pins (about three minutes
# each to build, once), told as a table; MINORS="1.28 1.37" is only these.
MINORS :=
cluster-matrix: $(READY)
	@$(BIN)/python -m tests.cluster matrix $(MINORS)

# Leaders that fall, ten times in each way, with gangs arriving all the time (forty minutes).
takeovers: $(READY)
	@nice $(BIN)/python -m tests.cluster takeovers --lease own
	@nice $(BIN)/python -m tests.cluster takeovers --lease scheduler

# The invariants of the holds in a hundred thousand stories (a quarter of an hour on two idle cores), and
# those of the whole system in some thousand.
soak: $(READY)
	@nice $(BIN)/python -m tests.holds.soak
	@nice $(BIN)/python -m tests.system.soak

bench: $(READY)
	@$(BIN)/python -m tests.bench

# The tables of the manual, from the code they speak of.
tables: $(READY)
	@$(BIN)/python -m tests.tables

image:
	docker build --tag gang-extender:dev .

# Written by a developer after a change of dependencies; installed from by everyone.
LOCK := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url \
	--no-header --python-version 3.11 pyproject.toml
lock:
	$(LOCK) --output-file requirements.lock
	$(LOCK) --group dev --output-file requirements-dev.lock

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
