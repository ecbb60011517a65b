# Everything a newcomer runs. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
FLOWGRAPH := $(BIN)/flowgraph
export PYTHONSAFEPATH = 1

.DEFAULT_GOAL := help
.PHONY: help setup test demo demo-vlm learn bench lint

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## make .venv and install this checkout in it, editable

$(STAMP): setup.py pyproject.toml constraints/cpu.txt tools/setup.sh
	PYTHON=$(PYTHON) VENV=$(VENV) sh tools/setup.sh
	@touch $@

test: setup ## all tests (under 10 minutes on 2 cores)
	$(BIN)/python -m pytest

demo: setup ## train two cooperating agents, live, and draw the report
	$(FLOWGRAPH) run examples/marl_arithmetic.py

demo-vlm: setup ## train a vision-language model on handwritten digits
	$(FLOWGRAPH) run examples/vlm_digits.py

learn: setup ## both examples over 3 seeds each; writes docs/results.md (long)
	$(BIN)/python -m benchmarks.learn

bench: setup ## performance figures, as ratios
	$(BIN)/python -m benchmarks

lint: setup ## linters, strict types, layering
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --config pyproject.toml
