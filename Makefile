# Every target is one thing to do; `make` alone lists them.
VENV    ?= .venv
PYTHON  ?= python3
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
WORKERS ?= auto
KUBE_WORKERS ?= 0
CODE    := src tests benchmarks examples docs deploy

.DEFAULT_GOAL := help
.PHONY: help setup kubelets postgres demo test test-kube kube check fmt lint types imports browser unit fuzz mutate conformance faults evidence results bench docs clean kills slurm planted attacks changelog pictures dist

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -m venv --help >/dev/null 2>&1 || (apt-get update -q && apt-get install -y -q python3-venv)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(STAMP) ## make the virtual environment, install with the tested versions, compile the hot loops
	$(BIN)/interlane compile

demo: setup ## share this machine among trainings and functions, and print what that gains
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

slurm: # its engine is tested on a real one, which takes root
	@command -v slurmctld >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1 || [ "$$(id -u)" != 0 ] \
	  || (apt-get update -q && apt-get install -y -q --no-install-recommends slurm-wlm munge slurm-wlm-basic-plugins) \
	  || echo 'Slurm could not be installed; tests of its engine will be skipped.' >&2

unit: setup postgres browser slurm
	$(BIN)/python -m pytest -n $(WORKERS) --ignore=tests/kube

kube: ## build a real Kubernetes into the user's cache, once (Debian 12, root, five minutes)
	tools/build-kube

kubelets: # containers for real kubelets; without them their tests are skipped and say so
	@command -v containerd >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1 || [ "$$(id -u)" != 0 ] \
	  || (apt-get update -q && apt-get install -y -q --no-install-recommends \
	      $$($(PYTHON) -c 'exec(open("src/interlane/testing/kube_packages.py").read()); print(PACKAGES)')) \
	  || echo 'kube: containerd could not be installed; real kubelets will not be tested.' >&2

test-kube: setup kubelets ## test against a real Kubernetes; where none can be built, say what was not tested
	@tools/build-kube || echo 'kube: Kubernetes was not tested here; the engine, its faults and its nodes were not run.' >&2
	@if tools/build-kube --check; then $(BIN)/python -m pytest tests/kube -n $(KUBE_WORKERS) --durations=8; fi

ifndef SEED
SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
endif
fuzz: setup ## draw new cases for the property tests, more of them; SEED=N draws the same again
	@echo 'New cases are drawn from seed $(SEED); make fuzz SEED=$(SEED) draws them again.'
	$(BIN)/python -m pytest -n $(WORKERS) -m hypothesis --hypothesis-profile=fuzz \
	  --hypothesis-seed=$(SEED) $(ONLY)

mutate: $(STAMP) ## plant faults in MODULE=interlane.policy.order and list those that no test notices
	$(BIN)/python -m interlane.testing.mutate $(MODULE) \
	  $(or $(TESTS),tests/$(word 2,$(subst ., ,$(MODULE)))) --most $(or $(MOST),1000000)

conformance: setup ## play a thousand scripts on the engine that pretends
	INTERLANE_SCRIPTS=1000 $(BIN)/python -m pytest tests/live/test_conformance.py -n $(WORKERS)
	@echo 'The engine that pretends has kept the contract in 1000 scripts.'

faults: $(STAMP) ## let all go wrong in 500 simulated lives of 2,000 events; SEEDS=N for more
	$(BIN)/python -m interlane.testing.faults --seeds $(or $(SEEDS),500)

planted: $(STAMP) ## plant known bugs, one at a time: tests and fault scripts must notice each
	$(BIN)/python -m interlane.testing.planted $(if $(ONLY),--only $(ONLY))

kills: $(STAMP) postgres ## kill servers, shims, daemons and replicas at random moments; KILLS=N, 1000 unless given
	$(BIN)/python -m interlane.testing.kills --kills $(or $(KILLS),1000)

attacks: $(STAMP) ## attack a server in every way at once: what it costs somebody else, and memory
	$(BIN)/python -m benchmarks.attacks

results: setup ## run results that are missing or whose code changed, and make README's table anew; ANEW=1 runs all
	-$(BIN)/interlane reproduce --all --report docs/results $(if $(ANEW),,--resume)
	$(BIN)/python docs/generate.py

bench: setup ## measure speed in CPU seconds; JSON on standard output
	$(BIN)/python -m benchmarks.run

evidence: setup ## change what was published and plant faults: every entry must notice (half an hour)
	INTERLANE_SLOW=1 $(BIN)/python -m pytest tests/reproduce/test_evidence.py -n $(WORKERS) --timeout 3600

docs: setup ## build the documentation into build/site and check that pages print what they say
	PYTHONPATH=docs NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python -m pytest tests/docs

changelog: $(STAMP) ## make CHANGELOG.md of the fragments in changes/
	$(BIN)/python docs/changelog.py

pictures: setup browser ## take the pictures of the documentation anew
	INTERLANE_PICTURES=docs/pictures $(BIN)/python -m pytest tests/pages/test_pictures.py

dist: $(STAMP) ## build wheel and sdist into dist/
	$(BIN)/python -m build --outdir dist

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
