# What a contributor types; `make` alone lists it. Works with the make of Debian and of macOS.
VENV := .venv
PYTHON_IN := $(VENV)/bin/python
READY := $(VENV)/.installed
LANES := 3
# Tests start Python hundreds of times: it should not compile everything anew each time, even where somebody asked for no files.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install up test test-fast check fmt bench mutants lock clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

install: $(READY) ## Make .venv with every package pinned by hash

$(READY): requirements/dev.txt pyproject.toml tools/venv.sh
	@sh tools/venv.sh $(VENV) && touch $@

up: $(READY) ## Serve Kubernetes on this machine; ARGS="--listen 127.0.0.1:7443" reaches `bramley up`
	@exec $(VENV)/bin/bramley up $(ARGS)

test: check ## Run make check, then every tier of tests; TIERS=unit,process chooses, CI=true forbids gaps
	@$(PYTHON_IN) -m tools.prepare
	@$(PYTHON_IN) -m pytest -n $(LANES)

test-fast: $(READY) ## Run what needs nothing but Python, without the longest proofs, in about a minute
	@TIERS=unit,meta,scenarios HYPOTHESIS_PROFILE=fast TMPDIR=$$($(PYTHON_IN) -m tools.memory_folder) \
		$(PYTHON_IN) -m pytest -n $(LANES) -m 'not long' -o tmp_path_retention_policy=failed tests/unit tests/meta tests/scenarios

check: $(READY) ## Lint, format, lengths, types, layers, and that the maps are true
	@$(PYTHON_IN) -m tools.check

fmt: $(READY) ## Format and repair what ruff can repair
	@$(VENV)/bin/ruff check --fix --quiet . ; $(VENV)/bin/ruff format .

bench: $(READY) ## Measure against the rivals in one run and write bench/RESULTS.md
	@$(PYTHON_IN) -m bench all

mutants: $(READY) ## Break the code in every known way and see a test notice
	@$(PYTHON_IN) -m tools.mutants

lock: $(READY) ## Pin the newest allowed packages by hash into requirements/
	@sh tools/lock.sh $(VENV)

clean: ## Remove .venv and caches; data folders stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
