# Every target sets up what it needs; `make` alone lists them.
.DEFAULT_GOAL := help
BIN := .venv/bin
# Java home found by set-up; empty without Java, which only Spark needs.
WITH_JAVA = JAVA_HOME="$$(cat .venv/java_home)"
QUICK := not slow and not spark and not interop
export PYTHON SYSTEM_PACKAGES

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-12s %s\n", $$1, $$2 }'
	@echo "Variables: ARGS=... for pytest or the command; PYTHON=... to choose the interpreter; SYSTEM_PACKAGES=no."

.PHONY: setup
setup: ## create .venv from pyproject.toml and constraints.txt; immediate if it is current
	@tools/setup

.PHONY: demo
demo: setup ## run the tour: servers, orders, console, Spark, killed brokers, access control; under two minutes
	@$(WITH_JAVA) $(BIN)/orbitlog demo $(ARGS)

.PHONY: up
up: setup ## run a name server and a broker in one process until interrupted
	@$(BIN)/orbitlog up $(ARGS)

# One worker more than there are cores, at least three: many tests wait for sockets, timers or a JVM.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n < 2 ? 3 : n + 1)))
.PHONY: test
test: setup ## run the whole test suite
	@$(WITH_JAVA) $(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

.PHONY: interop
interop: setup ## run the tests against Apache RocketMQ brokers, which Maven downloads (docs/interop.md)
	@$(WITH_JAVA) $(BIN)/python -m pytest -m interop -o faulthandler_timeout=0 $(if $(findstring tests/,$(ARGS)),,tests/interop) $(ARGS)

.PHONY: check
check: lint unit ## run lint and the fast tests: before each commit

.PHONY: lint
lint: setup ## check format, lint, types, import direction and prose; change nothing
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/python tools/prose.py

.PHONY: unit
unit: setup ## run the fast tests alone
	@$(BIN)/python -m pytest -n 2 -q -m "$(QUICK)" $(ARGS)

# What the core does without the extra `fast`; the rest of the suite needs it.
.PHONY: core
core: setup ## install the core alone, and run the tests of formats, store, jobs and doctor without the extra `fast`
	@$(BIN)/python -m pytest -q tests/test_clean_install.py $(ARGS)
	@$(BIN)/python -m pytest -q -n 2 -p tests.support.without_fast -m "$(QUICK)" tests/contract tests/unit/doctor tests/unit/jobs \
		tests/unit/store tests/unit/storefiles $(ARGS)

# Length of the run, as a multiple of the short run in the suite.
ORBITLOG_FAULTS ?= 20
.PHONY: faults
faults: setup ## run the fault tests for long: power cuts, kills, flipped bits, full disks (docs/durability.md)
	@ORBITLOG_FAULTS=$(ORBITLOG_FAULTS) $(BIN)/python -m pytest -n 2 -q -o faulthandler_timeout=0 tests/faults $(ARGS)

# Steps of the simulation, and its first seed.
ORBITLOG_FAILOVER_STEPS ?= 10000000
ORBITLOG_FAILOVER_SEED ?= 0
# Acknowledged sends for each failover of real processes.
ORBITLOG_FAILOVER_MESSAGES ?= 10000
.PHONY: failover
failover: setup ## fail over real processes under load, then simulate failovers for ten million steps (docs/replication.md)
	@ORBITLOG_FAILOVER_STEPS=$(ORBITLOG_FAILOVER_STEPS) ORBITLOG_FAILOVER_SEED=$(ORBITLOG_FAILOVER_SEED) \
		ORBITLOG_FAILOVER_MESSAGES=$(ORBITLOG_FAILOVER_MESSAGES) \
		$(BIN)/python -m pytest -q -s -o faulthandler_timeout=0 tests/failover $(ARGS)

ORBITLOG_SOAK_SECONDS ?= 600
.PHONY: soak
soak: setup ## run a mixed load for ten minutes; memory and descriptors must stay flat
	@ORBITLOG_SOAK_SECONDS=$(ORBITLOG_SOAK_SECONDS) $(BIN)/python -m pytest -q -o faulthandler_timeout=0 tests/soak $(ARGS)

# Length of the mixed attack, and a multiple of the mutated requests in the suite.
ORBITLOG_ATTACK_SECONDS ?= 600
ORBITLOG_ATTACK ?= 400
.PHONY: attack
attack: setup ## attack a broker for ten minutes beside honest clients, then send 17 million mutated requests
	@ORBITLOG_ATTACK_SECONDS=$(ORBITLOG_ATTACK_SECONDS) \
		$(BIN)/python -m pytest -q -o faulthandler_timeout=0 tests/attacks/test_mixed_attack.py $(ARGS)
	@ORBITLOG_ATTACK=$(ORBITLOG_ATTACK) $(BIN)/python -m pytest -q -rP -n 2 --dist worksteal -o faulthandler_timeout=0 \
		--ignore tests/attacks/test_mixed_attack.py tests/attacks $(ARGS)

.PHONY: remedies
remedies: setup ## remove each remedy against an attack: its test must fail then; four minutes
	@ORBITLOG_REMEDIES=all $(BIN)/python -m pytest -q -rP -n 2 --dist worksteal -o faulthandler_timeout=0 \
		tests/attacks/test_remedies.py $(ARGS)

# Number of drivers and workers to kill.
ORBITLOG_KILLS ?= 100
.PHONY: cluster
cluster: setup ## run the jobs on a Spark cluster on loopback while drivers and workers are killed (docs/spark.md)
	@ORBITLOG_KILLS=$(ORBITLOG_KILLS) $(WITH_JAVA) $(BIN)/python -m pytest -q -s -o faulthandler_timeout=0 $(if $(findstring tests/,$(ARGS)),,tests/spark) $(ARGS)

.PHONY: objectstores
objectstores: setup ## export to a local S3 server and an SQL catalog, also with s3a; installs moto and SQLAlchemy into .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'moto[server]>=5.1' 'sqlalchemy>=2.0'
	@$(WITH_JAVA) $(BIN)/python -m pytest -q -rs -o faulthandler_timeout=0 \
		tests/integration/pipeline/test_object_stores.py tests/integration/pipeline/test_s3a.py $(ARGS)

.PHONY: rules
rules: setup ## check rules and dashboard of deploy/ with a real Prometheus (Debian's package, unpacked below .venv)
	@tools/find_prometheus --install >/dev/null
	@$(BIN)/python -m pytest -q -rs tests/test_alert_rules.py tests/test_board.py tests/integration/observe/test_prometheus.py $(ARGS)

.PHONY: chart
chart: setup ## render the Helm chart and validate it for several Kubernetes versions; builds helm with Go if it is missing
	@tools/find_helm --install >/dev/null
	@ORBITLOG_DEPLOY_TOOLS="$$(tools/extra_environment deploy)" $(BIN)/python -m pytest -q -rs -m "interop or not interop" \
		tests/deploy/test_chart.py tests/deploy/test_chart_schemas.py \
		tests/deploy/test_deployed_processes.py $(ARGS)

.PHONY: image
image: setup ## build both container images twice, scan them, run the slim one with runc; needs root (docs/containers.md)
	@$(BIN)/python tools/image.py $(IMAGES)
	@tools/find_compose --install >/dev/null
	@ORBITLOG_DEPLOY_TOOLS="$$(tools/extra_environment deploy)" $(WITH_JAVA) $(BIN)/python -m pytest -q -rs -m "interop or not interop" \
		-o faulthandler_timeout=0 tests/deploy/test_image.py tests/deploy/test_compose.py tests/deploy/test_deployed_processes.py $(ARGS)

.PHONY: site
site: setup ## build the documentation as a site in build/site, with every warning as an error, and test it
	@NO_MKDOCS_2_WARNING=1 "$$(tools/extra_environment site)/mkdocs" build --quiet
	@ORBITLOG_SITE_TOOLS="$$(tools/extra_environment site)" $(BIN)/python -m pytest -q -rs -m interop tests/deploy/test_site.py $(ARGS)

.PHONY: newcomer
newcomer: setup ## run every quick start in an empty account, as it is printed; needs ports 9876 and 10911
	@$(WITH_JAVA) $(BIN)/python tools/newcomer.py $(ARGS)

.PHONY: format
format: setup ## format the code and apply the linter's fixes
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: bench
bench: setup ## run the benchmarks (docs/benchmarks.md)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks $(ARGS)

.PHONY: compare
compare: setup ## compare Orbitlog with Apache's broker under the official Java client (docs/benchmarks.md)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.compare $(ARGS)

.PHONY: docs
docs: setup ## regenerate the generated parts of docs/ and README.md
	@$(BIN)/python tools/generate_docs.py
	@$(BIN)/python tools/generate_man.py

.PHONY: sizes
sizes: setup ## measure size and installation of the core and each extra; writes the table of docs/install.md
	@$(BIN)/python tools/measure_sizes.py $(ARGS)

.PHONY: man
man: setup ## regenerate the man pages, which the wheel installs (docs/install.md)
	@$(BIN)/python tools/generate_man.py

.PHONY: coverage
coverage: setup ## measure lines and branches that the tests of each room run (ARGS="wire"); fails below tools/coverage_floors.json
	@$(BIN)/python tools/room_coverage.py --markers "$(QUICK)" $(ARGS)

.PHONY: release-check
release-check: setup ## build sdist and wheel, and check them on each Python that is installed (docs/releasing.md)
	@$(BIN)/python tools/release_check.py --tools "$$(tools/extra_environment release)" $(ARGS)

.PHONY: api
api: setup ## accept the exported names of the package (tests/public_api.txt)
	@$(BIN)/python -m pytest -q tests/test_public_api.py --accept-public-api

.PHONY: lock
lock: setup ## resolve all dependencies into constraints.txt
	@$(BIN)/python tools/lock.py

.PHONY: clean
clean: ## remove .venv and all other build products
	@rm -rf .venv .setup.lock .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	@find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
