# Commands for contributors; `make` alone lists them. Works with GNU make on Debian and macOS.
VENV := .venv
PYTHON_IN := $(VENV)/bin/python
READY := $(VENV)/.installed
# Two of the workers mostly wait for real processes (the groups of tests/conftest.py), so three fit on two cores.
WORKERS := 3
# Tests start Python hundreds of times; compiled modules save a third of the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install up test test-fast soak check fmt bench mutants lock clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

install: $(READY) ## Create .venv with every package pinned by hash

$(READY): requirements/dev.txt pyproject.toml tools/venv.sh
	@sh tools/venv.sh $(VENV) && touch $@

up: $(READY) ## Start a cluster with simulated Macs; ARGS="--macs 1" passes flags to `bramley up`
	@exec $(VENV)/bin/bramley up $(ARGS)

test: check ## Run make check, then every tier of tests; TIERS=unit,process selects tiers, CI=true forbids skips
	@$(PYTHON_IN) -m tools.prepare
	@$(PYTHON_IN) -m pytest -n $(WORKERS)

test-fast: $(READY) ## Run the tests that need only Python, without those marked long, in about a minute
	@TIERS=unit,meta,scenarios HYPOTHESIS_PROFILE=fast TMPDIR=$$($(PYTHON_IN) -m tools.memory_folder) \
		$(PYTHON_IN) -m pytest -n $(WORKERS) -m 'not long' -o tmp_path_retention_policy=failed tests/unit tests/meta tests/scenarios

soak: $(READY) ## Run thousands of seeded scenarios and long rolls; SEEDS=100 runs fewer
	@$(PYTHON_IN) -m tools.prepare
	@$(PYTHON_IN) -m pytest -n $(WORKERS) -m soak

check: $(READY) ## Check lint, format, lengths, types, layers and generated files
	@$(PYTHON_IN) -m tools.check

fmt: $(READY) ## Format the code and apply ruff's fixes
	@$(VENV)/bin/ruff check --fix --quiet . ; $(VENV)/bin/ruff format .

bench: $(READY) ## Run the benchmarks and write bench/RESULTS.md and the chart of the docs
	@$(PYTHON_IN) -m bench all

mutants: $(READY) ## Apply every known mutant and check that its test fails
	@$(PYTHON_IN) -m tools.mutants

lock: $(READY) ## Pin the newest allowed packages by hash into requirements/
	@sh tools/lock.sh $(VENV)

clean: ## Remove .venv and caches, but no data folders
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
