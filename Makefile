# Everything a person needs: `make demo` to see it work, `make test` before a commit. `make help` lists the rest.

SHELL := /bin/bash
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
PANDASTACK := $(TARGET_DIR)/release/pandastack
VENV := .build/venv
# Template builds of the tests and benchmarks; kept, because a build takes minutes.
export PANDASTACK_TEST_DATA ?= $(CURDIR)/.build/data
export PANDASTACK_BIN ?= $(abspath $(PANDASTACK))

.PHONY: help demo stop test bench build lint deps template venv recipes-venv bench-venv clean

help: ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

demo: ## From a bare Debian 12 machine to an agent that draws a chart in a sandbox.
	@scripts/demo.sh

stop: ## End the server that `make demo` started, and its sandboxes.
	@scripts/stop.sh

test: ## Set up what is needed and run every test.
	@scripts/test.sh

bench: deps build template bench-venv ## Measure the latencies and their yardsticks: table and .build/bench.json.
	$(VENV)/bin/python benches/bench.py --data-dir $(PANDASTACK_TEST_DATA) --out .build/bench.json

# The agent runs inside a sandbox's own root file system, so it must not need that system's C library. The flag is given to the agent
# alone, so that it shares every dependency with the program.
build: ## Build the program and its agent.
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust with rustup, then run this again" >&2; exit 1; }
	cargo build --release --locked -p pandastack-cli
	cargo rustc --release --locked -p pandastack-agent --bin pandastack-agent -- -C target-feature=+crt-static

lint: venv ## Check the format and the lints.
	$(VENV)/bin/ruff format --check --quiet .
	$(VENV)/bin/ruff check --quiet .
	cargo fmt --all --check
	cargo clippy --release --locked --workspace --all-targets -- -D warnings

deps: ## Install what is missing from Debian's packages (root or sudo).
	@scripts/install-deps.sh

template: ## Bake the template that tests and benchmarks use.
	$(PANDASTACK) template build code-interpreter --data-dir $(PANDASTACK_TEST_DATA)

venv: $(VENV)/.tests

recipes-venv: $(VENV)/.recipes

bench-venv: $(VENV)/.bench

# The requirements files name every package there is to install.
PIP_INSTALL := $(VENV)/bin/pip install -q --disable-pip-version-check --no-deps

$(VENV)/bin/python:
	python3 -m venv $(VENV)

$(VENV)/.recipes: recipes/requirements.txt | $(VENV)/bin/python
	$(PIP_INSTALL) -r recipes/requirements.txt
	@touch $@

$(VENV)/.tests: tests/requirements.txt | $(VENV)/bin/python
	$(PIP_INSTALL) -r tests/requirements.txt
	@touch $@

$(VENV)/.bench: benches/requirements.txt | $(VENV)/bin/python
	$(PIP_INSTALL) -r benches/requirements.txt
	@touch $@

clean: ## Remove what was built, the baked test template too.
	cargo clean
	rm -rf .build
