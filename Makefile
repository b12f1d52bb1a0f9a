# Everything starts here; `make help` lists what there is. ARGS="..." is passed on to the command behind a target,
# PYTHON=... chooses the interpreter .venv is made with.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Goals run one after the other, also under -j: two of them must not install at the same time.
.NOTPARALLEL:

# A Spark or a Python set up for something else must not leak into ours.
unexport SPARK_HOME SPARK_CONF_DIR SPARK_REMOTE PYSPARK_SUBMIT_ARGS PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON
unexport PYTHONHOME PYTHONPATH

BIN := .venv/bin
ARGS ?=

# Runs a command with JAVA_HOME naming the Java that preflight found, whatever it was before.
with_java = home=$$(bash scripts/preflight.sh java) && JAVA_HOME="$$home" exec

.PHONY: help setup demo test soak lint format bench lock clean distclean java venv

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1@\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS=@ read -r target what; do printf '%-18s%s\n' "$$target" "$$what"; done

setup: java venv ## create .venv with the locked versions; find, or as root on Debian/Ubuntu install, Python and Java

demo: setup ## a three-way stream join that adapts, on an embedded Spark, watched live and checked against DuckDB
	@$(with_java) $(BIN)/anabranch demo $(ARGS)

test: setup ## run the tests, in two processes with a Spark each
	@# In the order of the tree: by number of tests, files with few tests that take minutes would come last.
	@$(with_java) $(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

soak: setup ## random plans, data, crashes and adaptations against DuckDB, for 10 minutes (ARGS="--minutes 30", ARGS=--help)
	@$(with_java) $(BIN)/python -m tests.soak $(ARGS)

bench: setup ## measure throughput next to Spark's own stream-stream joins
	@$(with_java) $(BIN)/anabranch bench throughput $(ARGS)

lint: venv ## what CI checks besides the tests: ruff, mypy --strict, import-linter, house rules
	$(BIN)/ruff check src tests scripts
	$(BIN)/ruff format --check src tests scripts
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/house_rules.py

format: venv ## format the code and fix what ruff can fix
	$(BIN)/ruff format src tests scripts
	$(BIN)/ruff check --fix src tests scripts

lock: venv ## write requirements.lock anew after a change of dependencies (ARGS=--upgrade: newest versions)
	@bash scripts/lock.sh $(ARGS)

clean: ## remove caches and build output
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse metastore_db derby.log
	@find src tests scripts -type d -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv as well
	@rm -rf .venv

java:
	@bash scripts/preflight.sh java >/dev/null

venv:
	@bash scripts/setup.sh
