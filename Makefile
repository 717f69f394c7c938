# Every target is one thing to do; `make` alone lists them.
VENV    ?= .venv
PYTHON  ?= python3
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
WORKERS ?= auto
CODE    := src tests benchmarks examples docs

.DEFAULT_GOAL := help
.PHONY: help setup postgres demo test check fmt lint types imports browser unit fuzz mutate conformance faults evidence results bench docs clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -m venv --help >/dev/null 2>&1 || (apt-get update -q && apt-get install -y -q python3-venv)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(STAMP) ## make the virtual environment and install with the tested versions

demo: $(STAMP) ## share this machine among trainings and functions, and print what that gains
	$(BIN)/interlane demo

test: check unit ## everything that CI runs

check: lint types imports ## style, types and the direction of imports

fmt: $(STAMP) ## format the source
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

lint: $(STAMP)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

postgres: # the live machine is tested against a real one
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || (apt-get update -q && apt-get install -y -q postgresql)

browser: # pages are opened in a real one
	@command -v chromium >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1 \
	  || (apt-get update -q && apt-get install -y -q --no-install-recommends chromium) \
	  || echo 'No Chromium could be installed; tests that open a page will be skipped.' >&2

unit: $(STAMP) postgres browser
	$(BIN)/python -m pytest -n $(WORKERS)

ifndef SEED
SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
endif
fuzz: $(STAMP) ## draw new cases for the property tests, more of them; SEED=N draws the same again
	@echo 'New cases are drawn from seed $(SEED); make fuzz SEED=$(SEED) draws them again.'
	$(BIN)/python -m pytest -n $(WORKERS) -m hypothesis --hypothesis-profile=fuzz \
	  --hypothesis-seed=$(SEED) $(ONLY)

mutate: $(STAMP) ## plant faults in MODULE=interlane.policy.order and list those that no test notices
	$(BIN)/python -m interlane.testing.mutate $(MODULE) \
	  $(or $(TESTS),tests/$(word 2,$(subst ., ,$(MODULE)))) --most $(or $(MOST),1000000)

conformance: $(STAMP) ## play a thousand scripts on the engine that pretends
	INTERLANE_SCRIPTS=1000 $(BIN)/python -m pytest tests/live/test_conformance.py -n $(WORKERS)
	@echo 'The engine that pretends has kept the contract in 1000 scripts.'

faults: $(STAMP) ## let all go wrong in 500 simulated lives of 2,000 events; SEEDS=N for more
	$(BIN)/python -m interlane.testing.faults --seeds $(or $(SEEDS),500)

results: $(STAMP) ## run every result, store what they gave and make README's table anew (an hour of CPU)
	-$(BIN)/interlane reproduce --all --report docs/results
	$(BIN)/python docs/generate.py

bench: $(STAMP) ## measure speed in CPU seconds; JSON on standard output
	$(BIN)/python -m benchmarks.run

evidence: $(STAMP) ## change what was published and plant faults: every entry must notice (half an hour)
	INTERLANE_SLOW=1 $(BIN)/python -m pytest tests/reproduce/test_evidence.py -n $(WORKERS)

docs: $(STAMP) ## check that the examples in the documentation still print what they say
	$(BIN)/python -m pytest tests/docs

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
