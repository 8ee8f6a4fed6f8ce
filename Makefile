# One place for every command. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install s3-server jobs-server demo lab test lint floors types unit kinds prop-long preemptions chaos evidence integration front wheel e2e kube-build kube-up kube-down bench gpu-check compiled wheel-compiled clean

BIN := .venv/bin
STAMP := .venv/.installed
SOURCES := pyproject.toml labextension/package.json labextension/package-lock.json labextension/tsconfig.json labextension/widget.mjs \
  $(shell find labextension/schema labextension/src jupyter_gpufair/kernelspecs jupyter_gpufair/etc -type f 2>/dev/null)

# The newest Python that works. A name on PATH proves nothing (version managers leave empty shims), so each is run.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
  if $$p -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$p; break; fi; done)
CHROMIUM ?= /usr/bin/chromium
PYTEST := $(BIN)/pytest
WORKERS ?= 2
SERVER_WORKERS ?= 3
CLUSTER_WORKERS ?= 4

help:  ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

install: $(STAMP)  ## Set up .venv with everything; does nothing when nothing changed

# The old bundle goes first: the build's own check for staleness looks at src/ only, not at package.json.
$(STAMP): $(SOURCES)
	@[[ -n "$(PYTHON)" ]] || { echo "No Python >= 3.11 with venv found on PATH; set PYTHON=..." >&2; exit 1; }
	@command -v npm >/dev/null || { echo "Building the front end from a checkout needs Node >= 20 with npm (a wheel does not)." >&2; exit 1; }
	[[ -x $(BIN)/python ]] || $(PYTHON) -m venv .venv
	rm -rf jupyter_gpufair/labextension scheduler/gpufair/service/static labextension/lib
	$(BIN)/python -m pip install -e '.[test,demo]'
	@touch $@

demo: install  ## The whole story, headless, with checks and figures (GPUFAIR_DEMO_JSON=FILE keeps them)
	$(BIN)/gpufair demo

lab: install  ## JupyterLab on the demo's set-up
	$(BIN)/gpufair lab

# Fast checks first; the browser comes last.
test: install  ## Everything that CI checks
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory floors
	$(MAKE) --no-print-directory types
	$(MAKE) --no-print-directory unit
	$(MAKE) --no-print-directory kinds
	$(MAKE) --no-print-directory integration
	$(MAKE) --no-print-directory front
	$(MAKE) --no-print-directory wheel
	$(MAKE) --no-print-directory e2e

lint: install  ## Ruff
	$(BIN)/ruff check .

floors: install  ## Which package may import which
	$(BIN)/lint-imports

types: install  ## Mypy, strict
	$(BIN)/mypy

unit: install  ## Unit and property tests
	$(PYTEST) -n $(WORKERS) tests/unit tests/property

kinds: install  ## Which objects can be saved, on the other Pythons at hand (FULL=1: with all libraries)
	./.ci/kinds $(BIN)/python

prop-long: install  ## A million events in random worlds (EVENTS=, SEED=, JOBS=; WORLD=n runs one again)
	$(BIN)/python -m tests.long

preemptions: install  ## Preempt and kill running notebooks at random moments (ARGS='--count 1000 --seed 1'): half an hour for 1,000
	$(BIN)/python -m tests.preemptions $(ARGS)

chaos: install  ## Kill -9 of service, agents, supervisors, kernels and programs under load (KILLS=500, SEED=, ARGS='--postgresql --json')
	$(BIN)/python -m tests.chaos --kills $(or $(KILLS),500) $(if $(SEED),--seed $(SEED)) $(ARGS)

evidence: install  ## Play the worlds that the policy's defaults are judged by: hours (ARGS='steady-256 --seeds 1')
	$(BIN)/python -m tests.evidence $(ARGS)

# In an environment of its own: its boto wants an older python-dateutil than our kubernetes.
S3_SERVER := .venv-s3/bin/moto_server
s3-server: $(S3_SERVER)  ## Set up the S3 server that the tests of object stores run

$(S3_SERVER): | install
	$(BIN)/python -m venv .venv-s3
	.venv-s3/bin/python -m pip install -q 'moto[s3]>=5' 'flask>=2.2' 'flask-cors>=4'

# In a folder of its own: installed, its extension would be on in every server of the tests.
JOBS := .venv-jobs/jupyter_scheduler/__init__.py
jobs-server: $(JOBS)  ## Set up the jupyter-scheduler that the tests of its jobs run

$(JOBS): | install
	$(BIN)/python -m pip install -q --no-deps --target .venv-jobs 'jupyter-scheduler==2.12.1' 'croniter==1.4.1' 'pytz==2024.2'

# These wait more than they work, those of clusters most.
integration: install s3-server jobs-server  ## Real servers, real kernels
	$(PYTEST) -n $(SERVER_WORKERS) --dist loadfile tests/integration --ignore=tests/integration/kubernetes
	$(PYTEST) -n $(CLUSTER_WORKERS) tests/integration/kubernetes

# Outside of the checkout: ${XDG_CACHE_HOME:-~/.cache}/gpufair-kube.
kube-build:  ## Compile a real Kubernetes API server for the tests, once (ten minutes; Debian)
	./.ci/kube-build

kube-up: install kube-build  ## Start a real control plane on loopback; prints the kubeconfig for GPUFAIR_TEST_KUBECONFIG
	@$(BIN)/python -m tests.kube.control_plane up

kube-down: install  ## End it
	@$(BIN)/python -m tests.kube.control_plane down

front: install  ## The front end: types, its own tests, and whether JupyterLab finds it
	cd labextension && npm test
	./.ci/listed $(BIN)

wheel: install  ## Build the wheel, install it where there is no Node, look whether all is found
	GPUFAIR_CHROMIUM=$(CHROMIUM) ./.ci/wheel $(BIN)/python

e2e: install  ## Tests in a real Chromium, where there is one
	@if [[ -x $(CHROMIUM) ]]; then \
	  GPUFAIR_CHROMIUM=$(CHROMIUM) $(PYTEST) -n $(WORKERS) --dist loadfile tests/e2e; \
	else \
	  echo "LEFT OUT: the browser tests (tests/e2e), because there is no $(CHROMIUM)."; \
	  echo "          On Debian: apt-get install chromium fonts-dejavu-core; elsewhere set CHROMIUM=..."; \
	  [[ "$${GPUFAIR_REQUIRE_ALL:-}" != 1 ]]; \
	fi

bench: install  ## Measure; CASE=prefix picks cases, BENCH_JSON=FILE keeps the figures
	$(BIN)/python -m tests.bench

gpu-check: install  ## On a machine with a GPU: what only a real one can show, in four minutes (RESULT=FILE; docs/gpu.md)
	$(BIN)/python -m tests.gpu_check $(if $(RESULT),--json $(RESULT))

compiled: install  ## The core in half the CPU time, in build/compiled (needs a C compiler; put it first on PYTHONPATH)
	$(BIN)/python scheduler/compile_core.py build/compiled

wheel-compiled: install  ## A wheel with the compiled core in dist/, for this platform and Python
	GPUFAIR_COMPILED=1 $(BIN)/python -m build --wheel --outdir dist .

clean:  ## Remove what was built, and .venv
	rm -rf .venv .venv-kinds .venv-s3 build dist demo-output jupyter_gpufair/labextension scheduler/gpufair/service/static labextension/lib labextension/node_modules
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage
