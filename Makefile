# Every target sets up what it needs; `make` alone lists them.
.DEFAULT_GOAL := help
BIN := .venv/bin
# What set-up found; empty where the machine has no Java, which only Spark minds.
WITH_JAVA = JAVA_HOME="$$(cat .venv/java_home)"
QUICK := not slow and not spark and not interop
export PYTHON SYSTEM_PACKAGES

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-12s %s\n", $$1, $$2 }'
	@echo "Variables: ARGS=... for pytest or the command; PYTHON=... to choose the interpreter; SYSTEM_PACKAGES=no."

.PHONY: setup
setup: ## make .venv from pyproject.toml and constraints.txt (nothing to do: a moment)
	@tools/setup

.PHONY: demo
demo: setup ## the tour: servers, orders, Spark, a killed broker, files made again; about a minute
	@$(WITH_JAVA) $(BIN)/orbitlog demo $(ARGS)

.PHONY: up
up: setup ## serve: a name server and a broker in one process, until interrupted
	@$(BIN)/orbitlog up $(ARGS)

.PHONY: test
test: setup ## run the whole test suite
	@$(WITH_JAVA) $(BIN)/python -m pytest -n 2 $(ARGS)

.PHONY: interop
interop: setup ## run the tests against real Apache RocketMQ brokers, fetched by Maven (docs/interop.md)
	@$(WITH_JAVA) $(BIN)/python -m pytest -m interop tests/interop $(ARGS)

.PHONY: check
check: lint unit ## format, lint, types, import direction and the quick tests: before each commit

.PHONY: lint
lint: setup ## format, lint, types and import direction; changes nothing
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo

.PHONY: unit
unit: setup ## run the quick tests alone
	@$(BIN)/python -m pytest -n 2 -q -m "$(QUICK)" $(ARGS)

# How many times as long as the suite looks.
ORBITLOG_FAULTS ?= 20
.PHONY: faults
faults: setup ## cut the power, kill, flip bits and fill disks for long (docs/durability.md)
	@ORBITLOG_FAULTS=$(ORBITLOG_FAULTS) $(BIN)/python -m pytest -n 2 -q -o faulthandler_timeout=0 tests/faults $(ARGS)

ORBITLOG_SOAK_SECONDS ?= 600
.PHONY: soak
soak: setup ## serve everyday load for ten minutes: memory and descriptors must stay flat
	@ORBITLOG_SOAK_SECONDS=$(ORBITLOG_SOAK_SECONDS) $(BIN)/python -m pytest -q -o faulthandler_timeout=0 tests/soak $(ARGS)

# How often drivers and workers are killed.
ORBITLOG_KILLS ?= 100
.PHONY: cluster
cluster: setup ## run the jobs on a real Spark cluster on loopback, and kill drivers and workers for long (docs/spark.md)
	@ORBITLOG_KILLS=$(ORBITLOG_KILLS) $(WITH_JAVA) $(BIN)/python -m pytest -q -s -o faulthandler_timeout=0 tests/spark $(ARGS)

.PHONY: format
format: setup ## format the code and mend what the linter can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: bench
bench: setup ## run the benchmarks (docs/benchmarks.md)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks $(ARGS)

.PHONY: compare
compare: setup ## measure both brokers, ours and Apache's, under the official Java client (docs/benchmarks.md)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.compare $(ARGS)

.PHONY: docs
docs: setup ## write the generated parts of docs/ and README.md anew
	@$(BIN)/python tools/generate_docs.py

.PHONY: api
api: setup ## accept the names that the package exports now (tests/public_api.txt)
	@$(BIN)/python -m pytest -q tests/test_public_api.py --accept-public-api

.PHONY: lock
lock: setup ## resolve every dependency anew into constraints.txt
	@$(BIN)/python tools/lock.py

.PHONY: clean
clean: ## remove .venv and everything else that is made
	@rm -rf .venv .setup.lock .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	@find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
