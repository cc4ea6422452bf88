# Everything here works in .venv/, which the first target that needs it makes.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
PYTHON ?= python3
PROCESSES ?= 6
# The system's Python may be too old; .venv/ has one that is not.
STACK = $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m deploy.local

.PHONY: help venv demo test soak lint up down status bench chaos truth faults mutation screenshots house no-scripts

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: .venv/.synced ## make .venv/ with the locked dependencies

# `git clean -x -e .venv` removes the console's scripts. Then the next target fetches them again.
NO_SCRIPTS = $(if $(wildcard admin/static/vendor/*),,no-scripts)

.venv/.synced: pyproject.toml uv.lock deploy/local/bootstrap.sh $(NO_SCRIPTS)
	@deploy/local/bootstrap.sh

# PySpark is half a gigabyte: only what needs it waits for it.
.venv/.synced-spark: .venv/.synced
	@WITH_SPARK=1 deploy/local/bootstrap.sh

demo: .venv/.synced ## send a few thousand notifications, kill a worker, lose nothing (no server needed)
	@$(BIN)/hongyan demo

# The stack and the jars of Spark come before pytest, so that a first download counts against no test's time limit.
# Without it tests of real services skip with the reason, unless HONGYAN_REQUIRE_STACK=1.
# With ARGS the tests share the stack of `make up`; all of them have one of their own. ARGS leave the browser's
# tests out, unless they name one. See tests/run_all.sh.
OTHERS = $(if $(findstring tests/browser,$(ARGS)),,--ignore tests/browser)
define TEST
$(if $(ARGS),@$(STACK) up || [ -z "$$HONGYAN_REQUIRE_STACK" ])
@$(BIN)/python -m hongyan.spark.jars > /dev/null || [ -z "$$HONGYAN_REQUIRE_STACK" ]
@PROCESSES=$(PROCESSES) $(if $(ARGS),$(BIN)/pytest -n $(PROCESSES) --dist loadgroup $(OTHERS) $(1) $(ARGS),tests/run_all.sh $(1))
endef

# Tests start hundreds of processes; each would compile our code anew where bytecode is not written.
test soak: export PYTHONDONTWRITEBYTECODE :=
test: .venv/.synced-spark ## run every test but the soak, on servers started for it (ARGS="-n 0 FILE": on those of `make up`)
	$(call TEST)

# `@pytest.mark.soak` marks them (decision 284).
soak: .venv/.synced-spark ## run the long tests that `make test` leaves out
	$(call TEST,--soak only)

lint: .venv/.synced-spark ## style, types and import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

up: .venv/.synced ## start the local stack: Kafka, PostgreSQL, Redis, a simulated provider (BROKERS=3 for three brokers)
	@$(STACK) up --with-simulator

down: ## stop the local stack; its data stays in .stack/
	@$(STACK) down

status: ## show what of the local stack runs, and where
	@$(STACK) status

bench: .venv/.synced-spark ## measure the worker on the local stack
	@$(BIN)/hongyan bench worker --json

chaos: .venv/.synced-spark ## kill workers, recoveries and servers, then prove that nothing was lost (SEED=7 MESSAGES=50000)
	@SEED="$(SEED)" MESSAGES="$(MESSAGES)" HONGYAN_REQUIRE_STACK=1 $(BIN)/pytest tests/chaos -m chaos --timeout=5400 -s $(ARGS)

truth: .venv/.synced-spark ## lose records in every way, and see the Spark jobs find exactly these (SEED=7 MESSAGES=200000)
	@SEED="$(SEED)" MESSAGES="$(MESSAGES)" KILLS="$(KILLS)" HONGYAN_REQUIRE_STACK=1 $(BIN)/pytest tests/spark_jobs/truth -m chaos --timeout=7200 -s $(ARGS)

faults: .venv/.synced ## every adapter against a provider that fails every fifth call (SEED=7 MESSAGES=500 ONLY=smtp,twilio)
	@SEED="$(SEED)" MESSAGES="$(MESSAGES)" ONLY="$(ONLY)" WORKERS="$(WORKERS)" SWITCHED="$(SWITCHED)" HONGYAN_REQUIRE_STACK=1 $(BIN)/python -m tests.chaos.faults

mutation: .venv/.synced-spark ## switch each guard off in a copy, and see its test fail (ARGS="lease": those)
	@$(STACK) up
	@$(BIN)/python -m tests.chaos.mutations $(ARGS)

screenshots: .venv/.synced ## run the demo, and write the pictures of its console's pages to docs/images/
	@SCREENSHOTS=1 $(BIN)/pytest -q -n 0 tests/browser/test_screenshots.py

house: .venv/.synced ## print how the source tree does: names, folders, imports, prose (ARGS=all names every place)
	@$(BIN)/python -m tests.house.report $(ARGS)
