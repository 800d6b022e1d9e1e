# The newcomer's two commands are `make train` and `make test`; both make the environment they need.
# PYTHON=... chooses another interpreter (3.11 or 3.12), EXPERIMENT=... another preset or file to train.

EXPERIMENT ?= wildfire
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Two processes, a file's tests in one of them: much of a test is waiting for Ray.
BESIDE := -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help train test test-slow lint reference bench clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

train: $(VENV)/.ready  ## train wildfire, or EXPERIMENT=cartpole, to its goal
	@$(BIN)/rayfish train $(EXPERIMENT) $(ARGS)
ifneq (,$(filter wildfire%,$(EXPERIMENT)))
	@$(BIN)/rayfish evaluate last --baselines --episodes 64
	@$(BIN)/rayfish view last
endif
	@echo "  source $(BIN)/activate   puts the rayfish command on your path"

test: $(VENV)/.ready-dev lint  ## lint, types and the fast tests
	@$(BIN)/python -m pytest -m "not slow" $(BESIDE) $(ARGS)

test-slow: $(VENV)/.ready-dev  ## learning, kill-and-resume, fresh clone
	@$(BIN)/python -m pytest -m "slow and not alone" $(BESIDE) --no-loadscope-reorder $(ARGS)
	@$(BIN)/python -m pytest -m "slow and alone" $(ARGS)

lint: $(VENV)/.ready-dev  ## ruff, mypy and the import contract
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache

reference: $(VENV)/.ready-dev  ## rebuild the key table and the reference page from the installed Ray
	@$(BIN)/python -m rayfish.algorithm.signatures
	@$(BIN)/python -m rayfish.algorithm.reference > docs/reference.md

bench: $(VENV)/.ready-bench  ## the numbers the README claims
	@$(BIN)/python benchmarks/overhead.py
	@$(BIN)/python benchmarks/startup.py
	@$(BIN)/python benchmarks/off_policy.py
	@$(BIN)/python benchmarks/gradients.py
	@$(BIN)/python benchmarks/speed.py --equal
	@$(BIN)/python benchmarks/speed.py $(ARGS)

clean:  ## remove the environment and build products (runs are kept)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' || \
	  { echo "Rayfish needs Python 3.11 or 3.12; found $$($(PYTHON) --version 2>&1). Try: make PYTHON=/path/to/python3.11 train"; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing python3-venv, which Debian ships apart from Python" && apt-get update -qq && \
	    apt-get install -y -qq --no-install-recommends python3-venv >/dev/null && $(PYTHON) -m venv $(VENV); \
	  else \
	    echo "Python cannot make virtual environments here. Try: sudo apt-get install python3-venv"; exit 1; \
	  fi; }

$(VENV)/.ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing Rayfish and its dependencies (a few minutes the first time)"
	@$(PIP) -e .
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	@$(PIP) -e '.[dev]'
	@$(PIP) pyrothermel 2>/dev/null || echo "no C++ compiler: the tests against the USFS Behave engine will be skipped"
	@touch $@

$(VENV)/.ready-bench: $(VENV)/.ready-dev
	@$(PIP) -e '.[bench]'
	@touch $@
