# Everything a person does here. `make help` lists it. All of it runs in .venv, which the first target to need it makes.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
SEEDS  ?= 200
CLUSTER_SEEDS ?= 2000
JOBS   ?= 4
MINUTES ?= 30
SECURE_MINUTES ?= 10
FLAKES ?= 5
FRAMES ?= 1000000
HOURS ?= 2
PROGRAMS ?= 2000
ROUNDS ?= 5000

# The tiers of the tests: each test is in one of them. What needs a Spark session has the marker `spark`, in whatever folder it is.
FAST   := contract differential golden lint property sql unit
BROKER := faults hostile interop scenarios security simulation soak streams
SPARK  := faults interop spark sql streams
PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

# Hundreds of processes start in the tests: each would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test fast broker spark collected durations quick again check rules faces format sim faults hostile security soak interop answers cases oracle values bench bench-quick packages sbom screenshots docs clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(READY) ## a virtual environment with Odradek, its extras and its tools

$(READY): pyproject.toml setup.py requirements/dev.txt requirements/pipeline.txt requirements/kerberos.txt requirements/ksql.txt $(wildcard src/odradek/records/_fast*.p*) $(wildcard src/odradek/runtime/_sync_threads.p*)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Odradek needs Python 3.11 or newer; '$(PYTHON)' is `$(PYTHON) --version`. Try: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements/dev.txt -r requirements/pipeline.txt
	@! command -v krb5-config >/dev/null || $(BIN)/python -m pip install --quiet -r requirements/kerberos.txt || \
	  echo "Kerberos' package is not there: its tests say absent"
	@$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps -r requirements/ksql.txt || \
	  echo "ksql is not there: its test says absent"
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[arrow,spark]'
	@touch $@

demo: $(READY) ## 336,776 flights through a broker and a Spark pipeline that is killed once: table, chart, archive, checked totals
	@$(BIN)/python examples/flights/demo.py

test: $(READY) ## every test that CI runs, JOBS=4 at a time: some of them wait
	-@$(BIN)/python -m odradek.spark.engine.class_archive_writer # so that the many JVMs of the tests start faster
	$(PYTEST) --durations 60

fast: $(READY) ## the tier of tests without a JVM: units, properties, contracts, lints
	$(PYTEST) -m "not spark" $(addprefix tests/,$(FAST))

broker: $(READY) ## the tier of tests with brokers: scenarios, simulator, other clients, security, faults
	$(PYTEST) -m "not spark" $(addprefix tests/,$(BROKER))

spark: $(READY) ## the tier of tests that need Spark: connector, streams, SQL
	$(PYTEST) -m spark $(addprefix tests/,$(SPARK))

collected: $(READY) ## every test can be collected: one process compiles what JOBS processes would compile each
	@listed=$$($(BIN)/python -m pytest -q -n 0 --collect-only 2>&1) || { echo "$$listed" | grep -v :: ; exit 1; }

durations: $(READY) ## keep how long files took in the last `make test`: the next run deals them out by it
	@$(BIN)/python -m tests.durations

quick: $(READY) ## units and properties of what changed since the last commit, or SINCE=main: the fast loop
	@$(BIN)/python -m tools.quick $(SINCE)

again: $(READY) ## what failed in the last `make test`, one by one, if that is no more than FLAKES=5; each is still a fault to mend
	@$(BIN)/python -m tests.again --most $(FLAKES)
	$(BIN)/python -m pytest -q -n 0 --last-failed --last-failed-no-failures none

check: rules collected ## format, lint, types, imports; every test can be collected

rules: $(READY) ## what `make check` does without collecting the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m tests.lint
	$(BIN)/python -m tools.sync_faces --check
	$(BIN)/python -m tools.requirement_files
	$(BIN)/mypy
	@if $(BIN)/pyright --version >/dev/null 2>&1; then $(BIN)/pyright; \
	  else echo "pyright is absent: it needs Node.js, and fetches itself when it runs first"; fi
	$(BIN)/lint-imports --no-cache

faces: $(READY) ## write the synchronous faces of the client from the asynchronous ones
	$(BIN)/python -m tools.sync_faces

format: $(READY) ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

sim: $(READY) ## broker and cluster on simulated clock, network, disk: SEEDS=200, CLUSTER_SEEDS=2000, and the bank of planted bugs
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)
	$(BIN)/python -m tests.simulation --scenario cluster --seeds $(CLUSTER_SEEDS) --once
	for seed in 28 40 43 61; do $(BIN)/python -m tests.simulation --scenario storage --seed $$seed --every-point || exit 1; done
	for seed in 4 25 30; do $(BIN)/python -m tests.simulation --scenario follower --seed $$seed --every-point || exit 1; done
	$(BIN)/python -m tests.simulation --mutants

faults: $(READY) ## three real brokers, killed, cut off, starved for MINUTES=30; a Spark query's sink; power cuts; rot: what was lost?
	-$(BIN)/python -m odradek.testing.zookeeper_jars
	$(BIN)/python -m tests.faults --minutes $(MINUTES) --faults 200 --everything --json artifacts/faults.json
	$(BIN)/python -m tests.faults --minutes $(SECURE_MINUTES) --everything --secure --json artifacts/faults-secure.json
	$(BIN)/python -m tests.faults.sink --kills 200 --plain-kills 400 --json artifacts/sink-faults.json
	$(BIN)/python -m tests.faults.power --cuts 300
	$(BIN)/python -m tests.faults.corruption

hostile: $(READY) ## greedy, broken and malicious clients, full disks, FRAMES=1000000 generated frames: who else notices? a table
	$(BIN)/python -m tests.hostile --frames $(FRAMES) --json artifacts/hostile.json

security: $(READY) ## the 48 checks of security, and which of them hold: a table
	$(BIN)/python -m tests.security

soak: $(READY) ## three brokers at work, with unrest and strangers, for HOURS=2: what is lost, and what grows? a table, a picture
	$(BIN)/python -m tests.soak --hours $(HOURS)

interop: $(READY) ## unmodified third-party clients, in five languages, against one broker
	$(BIN)/python -m tests.interop.languages.prepare
	-$(BIN)/python -m odradek.testing.zookeeper_jars
	$(BIN)/python -m tests.interop.languages.applications
	$(BIN)/python -m tests.streams.oracle.kafka
	$(BIN)/python -m pytest -q -m interop
	$(BIN)/python -m pytest -q -m interop --secured $(addprefix tests/interop/,admin data groups own_client transactions)
	$(BIN)/python -m pytest -q tests/interop/sink/test_driver.py tests/interop/own_client/test_prepared_transactions.py tests/interop/command/test_pipeline.py --server kafka
	$(BIN)/python -m tests.spark.with_kafka tests/spark/test_exactly_once.py

answers: $(READY) ## record Apache Kafka's answers again, which make test compares ours with
	$(BIN)/python -m tests.differential.record

cases: $(READY) ## every case of tests/sql/cases that writes, on a SQL server with its engine; make test runs one of each shape
	$(BIN)/python -m pytest -q -n 0 tests/sql/test_cases_on_server.py --every-case

oracle: $(READY) ## random programs of streams and tables through Kafka Streams' test driver and through ours: PROGRAMS=2000
	$(BIN)/python -m tests.streams.oracle --direct --programs $$(( 5 * $(PROGRAMS) ))
	$(BIN)/python -m tests.streams.oracle --programs $(PROGRAMS)

values: $(READY) ## generated values row by row and as columns, conditions and OVER in Python and in Spark: ROUNDS=5000, and 0 differences
	ODRADEK_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -q -n 0 tests/property/values tests/spark/sql/test_sql_evaluators.py tests/spark/sql/test_sql_over.py tests/spark/sql/test_sql_casts.py tests/spark/streams/test_streams_formats.py

bench: $(READY) ## beside Apache Kafka, in one run: ratios with their spread, what moved since the published ones, a chart
	$(BIN)/python -m benchmarks.run
	-$(BIN)/python -m benchmarks.spark.connector
	-$(BIN)/python -m benchmarks.streams --quick

bench-quick: $(READY) ## the rows of the hot path beside Apache Kafka, in less than five minutes: better, worse or the same as published
	$(BIN)/python -m benchmarks.run --hot --out benchmarks/results/hot

packages: $(READY) ## build wheel and source archive, and try both in clean environments: PYTHONS="--python /path/to/python3.12 ..."
	$(BIN)/python -m tools.try_packages $(PYTHONS)

sbom: $(READY) ## what the pinned requirements install, as CycloneDX: dist/sbom.cdx.json
	$(BIN)/python -m tools.sbom dist/sbom.cdx.json

screenshots: $(READY) ## the pictures of docs/console.md and docs/incidents.md, in Debian's Chromium
	$(BIN)/python -m tests.interop.console.screenshots
	$(BIN)/python -m tests.interop.console.incident_pictures

docs: $(READY) ## the pages that are generated from the code
	$(BIN)/python -m odradek.config.document > docs/configuration.md
	$(BIN)/python -m odradek.sql.functions.document > docs/sql-functions.md
	$(BIN)/python -m tests.sql.parity > docs/sql-statements.md
	$(BIN)/python -m tools.option_pages

clean: ## what was built, but not the virtual environment
	rm -rf build dist demo-output benchmarks/results .pytest_cache .mypy_cache .ruff_cache .hypothesis
