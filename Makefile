# `make help` lists the targets. Needed: make, Python 3.11 or newer, a package registry that pip reaches.

SHELL := /bin/sh
.SUFFIXES:
.DEFAULT_GOAL := help
# Where this is set, each of the many processes that are started compiles a thousand modules anew: two seconds each.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
PY := $(VENV)/bin/python
MANAGE := $(PY) manage.py
STAMP := $(VENV)/.installed
ARGS ?=
PICTURES := clean_in_light and not dark-narrow and (home or paused-queue or policy)  # those that the docs show
# Most tests wait for a database or a clock; a file shares what it sets up; tests/conftest.py orders the files.
IN_PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: help setup up test test-all test-old lint format screenshots chaos bench bench-peers bench-regress bench-scale bench-horizon bench-http bench-latency bench-parked bench-scheduler bench-pages lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: $(STAMP) ## Make .venv with everything pinned in requirements.lock (and nothing else)

$(STAMP): requirements.lock
	@python=; \
	for candidate in $(PYTHON) python3 python3.13 python3.12 python3.11 python; do \
		if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "make setup: no Python 3.11 or newer found; install one, or name it: make setup PYTHON=/path/to/python" >&2; exit 1; \
	fi; \
	if ! $$python -c 'import venv, ensurepip' >/dev/null 2>&1; then \
		echo "make setup: $$python has no venv module; install it (Debian: apt-get install python3-venv)" >&2; exit 1; \
	fi; \
	echo "Installing into $(VENV) (about a minute the first time) ..."; \
	$$python -m venv --clear $(VENV) || exit 1; \
	if ! $(PY) -m pip install -qq --disable-pip-version-check --no-input --no-compile --require-hashes -r requirements.lock; then \
		echo "make setup: pip could not install requirements.lock (see above); is a package registry reachable?" >&2; exit 1; \
	fi; \
	touch $(STAMP)

up: setup ## Start the whole platform with demo data in the foreground (Ctrl-C stops; state in .data/); flags: ARGS="--port 9000"
	@exec $(MANAGE) up $(ARGS)

test: setup ## Run the test suite (starts and removes its own PostgreSQL)
	$(PY) -m pytest -m "not slow" $(IN_PARALLEL) $(ARGS)

test-old: setup ## Run the suite on the oldest PostgreSQL of this machine, if one is older than the embedded one
	@bin=$$(ls -d /usr/lib/postgresql/1[5-7]/bin 2>/dev/null | head -n 1); \
	if [ -z "$$bin" ]; then echo "No PostgreSQL 15 to 17 on this machine: the suite ran on the embedded one only."; exit 0; fi; \
	echo "The suite on $$bin"; JOBSPLATFORM_PG_BIN=$$bin $(PY) -m pytest -m "not slow" $(IN_PARALLEL) $(ARGS)

test-all: setup ## Run everything, the minutes-long tests and the old server too
	$(PY) -m pytest $(ARGS)
	@$(MAKE) --no-print-directory test-old

lint: setup ## Formatting, lint, types, missing migrations
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy .
	$(PY) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run

format: setup ## Format the code and apply safe fixes
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

screenshots: setup ## Photograph the admin for the docs (needs Chromium; into docs/pictures)
	JOBSPLATFORM_PICTURES=docs/pictures $(PY) -m pytest tests/browser -q -k "$(PICTURES)"

chaos: setup ## Kill processes and the database at random and check that nothing is lost (minutes)
	$(PY) -m pytest -m chaos $(ARGS)

bench: setup ## Measure this machine in minutes (starts its own server); ARGS="--jobs 100000"
	$(PY) -m benchmarks.alone $(ARGS)

bench-peers: setup ## Measure ours beside nine other queues, into docs/performance.md (35 minutes; installs them in .data/bench)
	@mkdir -p .data
	$(PY) -m benchmarks.peers --write --json .data/bench-peers.json $(ARGS)

bench-regress: setup ## Compare ours with the SQL floor and with the stored ratios; exit 1 when it became slower
	$(PY) -m benchmarks.regress $(ARGS)

bench-scale: setup ## What a job costs by batch, payload, processes, shards and tenants; the capacity worksheet (20 minutes)
	@mkdir -p .data
	$(PY) -m benchmarks.scale --write --json .data/bench-scale.json $(ARGS)
	$(PY) -m benchmarks.worksheet --write .data/bench-scale.json

bench-horizon: setup ## Old snapshot, pg_dump, growth, backlogs, tenants, ten million done (55 minutes); shorter: ARGS="--held 60 --windows 6"
	$(PY) -m benchmarks.horizon --write $(or $(ARGS),--held 600 --windows 10)

bench-http: setup ## Jobs/s over HTTP, a hundred a call and one, and each call's latency at half of that, into docs/performance.md
	$(PY) -m benchmarks.over_http --write $(ARGS)

bench-latency: setup ## Measure how soon urgent work starts, over HTTP and in a worker (starts its own server)
	$(PY) -m benchmarks.latency $(ARGS)

bench-parked: setup ## Measure two thousand parked consumers on one web process (starts its own server)
	$(PY) -m benchmarks.parked $(ARGS)

bench-scheduler: setup ## Measure claims: latency by tenants and backlog, P0 beside bulk; with BEFORE=checkout two checkouts
	$(PY) -m benchmarks.claim_latency $(ARGS)
	$(PY) -m benchmarks.urgent
	$(if $(BEFORE),$(PY) -m benchmarks.paired $(BEFORE) .)

bench-pages: setup ## Measure the admin's lists over a long past (starts its own server); ARGS="--jobs 10000000 --dead 1000000"
	$(PY) -m benchmarks.pages $(ARGS)

lock: ## Pin the newest allowed versions again (needs uv)
	@command -v uv >/dev/null || { echo "make lock: needs uv (pip install uv)" >&2; exit 1; }
	uv pip compile --universal --python-version 3.11 --group dev pyproject.toml --generate-hashes --upgrade --quiet \
		--no-emit-index-url --no-emit-find-links --no-header --no-annotate --output-file requirements.lock

clean: ## Remove .venv and caches (not .data/, which holds your jobs)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
