# Everything a newcomer runs. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
FLOWGRAPH := $(BIN)/flowgraph

# The root's folders `ir/`, `kernels/`, ... must not shadow other distributions of these names, so
# Python is kept from putting the root on its path; benchmarks and tests, which are not installed,
# ask for it by name.
export PYTHONSAFEPATH = 1
FROM_ROOT := PYTHONPATH="$(CURDIR)" $(BIN)/python

.DEFAULT_GOAL := help
.PHONY: help setup test demo demo-vlm learn bench fuzz soak lint

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## make .venv and install this checkout in it, editable

# Touched last: an interrupted set-up is taken up again, a finished one is not.
$(STAMP): setup.py pyproject.toml constraints/cpu.txt tools/setup.sh
	PYTHON=$(PYTHON) VENV=$(VENV) sh tools/setup.sh
	@touch $@

test: setup ## all tests (under 10 minutes on 2 cores)
	$(FROM_ROOT) -m pytest -n 2 --dist loadfile --no-loadscope-reorder

demo: setup ## train two cooperating agents, live, and draw the report
	$(FLOWGRAPH) run examples/marl_arithmetic.py

demo-vlm: setup ## train a vision-language model on handwritten digits
	$(FLOWGRAPH) run examples/vlm_digits.py

learn: setup ## both examples over 3 seeds each; writes docs/results.md (long)
	$(FROM_ROOT) -m benchmarks.learn

bench: setup ## performance figures, as ratios
	$(FROM_ROOT) -m benchmarks

fuzz: setup ## 100,000 mutants of plan files and IR texts (long)
	$(FROM_ROOT) -m tests.fuzz --count 100000

soak: setup ## cases left out of `test`; fault schedules, real models with losses: SECONDS (600) each
	$(FROM_ROOT) -m pytest -n 2 --dist loadfile -m soak
	$(FROM_ROOT) -m tests.runtime.simulate --soak $(or $(SECONDS),600)
	$(FROM_ROOT) -m tests.runtime.orchestrator --seconds $(or $(SECONDS),600)

lint: setup ## linters, strict types, layering
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --config pyproject.toml
