# The few words of this project; each does all its own set-up.
# `make` alone prints them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := words
.PHONY: words demo test unit on-cluster check cluster cluster-matrix takeovers siege chaos soak fuzz \
	crash-points bench tables pythons lock clean image image-push pinned pins audit wheel sbom chart chart-push \
	release-version publish

words:
	@echo "make demo      gangs start whole, share, lend and never starve, on an embedded cluster, in a minute"
	@echo "make test      everything: checks, unit tests, tests on the real kube-scheduler"
	@echo "make check     format, lint, types and layers only"
	@echo "make cluster   a real control plane with the extender, to play with (Ctrl-C ends it)"
	@echo "make chaos     everything at once, by chance, on the real thing (SECONDS= SEED=)"
	@echo "make fuzz      strangers' bytes at every edge, for long (EDGES= SEED= COUNT= SECONDS=)"
	@echo "make crash-points  a fault at every call, one after the other (SITES= FAULTS= LIMIT= SEED=)"
	@echo "make bench     the budgets, measured"
	@echo "make tables    the tables of the manual, written anew from the code"
	@echo "make pythons   the unit tests on every Python from 3.11 to 3.14 that is here"
	@echo "make image     the container image (needs a Docker engine)"
	@echo "make audit     known advisories against everything that is locked"

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

test: check unit on-cluster

# The two halves of it, for machines that do one each. Whole files go to a worker, and each worker
# has a control plane of its own; those wait more than they work, so there may be more than cores.
# What takes minutes in a few tests comes first (tests/conftest.py), not what has the most tests.
PLANES := 3
unit: $(READY)
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder --ignore tests/cluster

# What is built for the first time is built here, where one sees that it moves.
on-cluster: $(READY)
	@$(BIN)/python -m tests.cluster build
	@$(BIN)/python -m pytest --numprocesses $(PLANES) --dist loadfile tests/cluster

check: $(READY)
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > $(VENV)/layers.txt 2>&1 || { cat $(VENV)/layers.txt; exit 1; }
	@echo "check: clean"

cluster: $(READY)
	@$(BIN)/python -m tests.cluster up

# The promises on every minor of kube-scheduler that tests/cluster/modules pins (about three minutes
# each to build, once), and the rights on each API server there, told as tables; MINORS="1.28 1.37"
# is only these.
MINORS :=
cluster-matrix: $(READY)
	@$(BIN)/python -m tests.cluster matrix $(MINORS)

# Leaders that fall, ten times in each way, with gangs arriving all the time (forty minutes).
takeovers: $(READY)
	@nice $(BIN)/python -m tests.cluster takeovers --lease own
	@nice $(BIN)/python -m tests.cluster takeovers --lease scheduler

# Every attack for a minute beside gangs that arrive at 20 pods a second (an hour);
# ATTACK=load is what is too much of everything, ATTACK=labels those with that in their names. On a machine
# whose host takes its processors away PATIENCE=60 waits for better moments, for so many minutes in all.
ATTACK   :=
PATIENCE :=
siege: $(READY)
	@$(BIN)/python -m tests.cluster siege $(if $(ATTACK),--attack "$(ATTACK)") $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(PATIENCE),--patience $(PATIENCE))

# Gangs, nodes, queues, programs and clocks, all at once and by chance, for ten minutes; the verdict is read from
# a record taken outside, and the exit code tells. SECONDS= is another length, SEED= the same turns again.
chaos: $(READY)
	@$(BIN)/python -m tests.cluster chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

# The invariants of the holds in a hundred thousand stories (a quarter of an hour on two idle cores), and
# those of the whole system in some thousand.
soak: $(READY)
	@nice $(BIN)/python -m tests.holds.soak
	@nice $(BIN)/python -m tests.system.soak

# What it finds is a file in tests/fuzz/corpus, and the exit code tells. A minute for each edge, unless
# COUNT= or SECONDS= says otherwise; SEED= repeats a run; EDGES="watch hooks" is only these.
EDGES   :=
SEED    :=
COUNT   :=
SECONDS :=
fuzz: $(READY)
	@nice $(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) \
		$(if $(SECONDS),--seconds $(SECONDS)) $(EDGES)

# Every call between us, kube-apiserver and kube-scheduler, spoilt in every way on real ones; the table
# says which, and the exit code whether a promise broke. SITES="bind hook" and FAULTS="409 kill" are only
# those whose names contain one of these, LIMIT= so many by chance, SEED= which; PLANTED=1 takes checks of
# ours out, one after the other, and fails unless each is seen.
SITES   :=
FAULTS  :=
LIMIT   :=
LANES   :=
PLANTED :=
crash-points: $(READY)
	@$(BIN)/python -m tests.cluster build
	@$(BIN)/python -m tests.cluster.crash $(if $(SITES),--sites $(SITES)) \
		$(if $(FAULTS),--faults $(FAULTS)) $(if $(LIMIT),--limit $(LIMIT)) \
		$(if $(SEED),--seed $(SEED)) $(if $(LANES),--lanes $(LANES)) $(if $(PLANTED),--planted)

bench: $(READY)
	@$(BIN)/python -m tests.bench

# The tables of the manual, from the code they speak of.
tables: $(READY)
	@$(BIN)/python -m tests.tables

# PYTHONS="/opt/python3.14/bin/python3.14 ..." names some that would not be found.
pythons: $(READY)
	@$(BIN)/python -m release.pythons $(PYTHONS)

# One version for wheel, image and chart; one date, that of the commit, for what they hold.
VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
EPOCH    = $(shell git log -1 --format=%ct)
IMAGE   := gang-extender
BUILDX   = docker buildx build --build-arg SOURCE_DATE_EPOCH=$(EPOCH) \
	--label org.opencontainers.image.version=$(VERSION) --tag $(IMAGE):$(VERSION)

image:
	$(BUILDX) --tag $(IMAGE):dev --load .

# For both architectures, with its parts (SPDX, the base included) and its origin beside it. Who lists
# the parts sees all of them; BuildKit by itself would take whatever bears a tag.
image-push: pinned
	$(BUILDX) --platform linux/amd64,linux/arm64 --provenance=mode=max --push \
		--attest type=sbom,generator=docker/buildkit-syft-scanner:1.12.0@sha256:ae4f3b554449e7e25548e7d8ccc029d17357348e30c6e3df01b92bc93654d6a9 .

# Nothing is published that takes an image or an action of others by a tag alone. Needs no more than
# a Python, so that nothing is installed where the credentials are.
pinned:
	@$(PYTHON) -m release.pins

# What the tags mean today (needs a network and Docker): digests are written anew, a moved tag of an
# action is said.
pins:
	@$(PYTHON) -m release.renew

# Known advisories against everything that is locked: 0 none, 1 some, 2 could not look (make itself
# ends with 2 for either). ADVISORIES=list.zip, or a folder of them, is for machines without a network.
ADVISORIES :=
audit: $(READY)
	@$(BIN)/python -m release.audit $(if $(ADVISORIES),--advisories $(ADVISORIES))

wheel: $(READY)
	SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python -m hatchling build --target wheel --directory dist

# The parts of the wheel's environment, installed from the lock into an empty one.
sbom: $(READY) wheel
	rm -rf build/environment && $(BIN)/python -m venv --without-pip build/environment
	$(BIN)/python -m pip --python build/environment/bin/python install --quiet --require-hashes \
		-r requirements.lock
	$(BIN)/python -m pip --python build/environment/bin/python install --quiet --no-deps \
		--no-index dist/gang_extender-$(VERSION)-*.whl
	SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python -m release.sbom build/environment \
		> dist/gang-extender-$(VERSION).sbom.cdx.json

HELM   := helm
CHARTS := oci://localhost/charts
chart:
	$(HELM) package manifests/chart --destination dist

chart-push: pinned chart
	$(HELM) push dist/gang-extender-$(VERSION).tgz $(CHARTS)

# A tag that says another version than the tree releases nothing.
release-version:
	@test "$(TAG)" = "v$(VERSION)" || { echo "the tag is $(TAG), the tree is v$(VERSION)"; exit 1; }
	@grep -q '^## $(VERSION) ' CHANGELOG.md || { echo "CHANGELOG.md has no section $(VERSION)"; exit 1; }
	@awk '/^## /{ours = $$2 == "$(VERSION)"} ours && /^- /{told = 1} END{exit !told}' CHANGELOG.md \
		|| { echo "section $(VERSION) of CHANGELOG.md is empty"; exit 1; }

publish: release-version pinned
	gh release create $(TAG) --verify-tag --title $(TAG) \
		--notes "See CHANGELOG.md, section $(VERSION)." dist/*

# Written by a developer after a change of dependencies; installed from by everyone.
LOCK := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url \
	--no-header --python-version 3.11
lock:
	$(LOCK) pyproject.toml --output-file requirements.lock
	$(LOCK) pyproject.toml --group dev --output-file requirements-dev.lock
	$(LOCK) --group build --constraints requirements-dev.lock --output-file requirements-build.lock

clean:
	rm -rf $(VENV) $(VENV)-3.* build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
