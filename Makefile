# Every target makes its own virtual environment in .venv; only Python 3.11+ and make are needed.
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
SOURCES := jaxrbd tests $(wildcard examples benchmarks docs)

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-viewer lint format docs bench bench-quick clean

help:
	@echo "make demo         simulate, optimise and plot an embedded robot (demo.png)"
	@echo "make test         tests on a representative set of robots"
	@echo "make test-all     tests on every robot"
	@echo "make test-viewer  the viewer's pages in a headless Chromium, which is installed where it may be"
	@echo "make lint         ruff and mypy;  make format  rewrites the files"
	@echo "make docs         these pages as a site: build/site/index.html"
	@echo "make bench-quick  one-minute benchmark;  make bench  the full one, against peers"
	@echo "make clean        remove .venv, caches and build products"

demo: $(VENV)/.plot
	$(BIN)/jaxrbd demo --out demo.png

test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-all: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --all-robots $(ARGS)

test-viewer: $(VENV)/.test
	@command -v chromium >/dev/null || apt-get install -y --no-install-recommends chromium || \
	  { apt-get update && apt-get install -y --no-install-recommends chromium; } || \
	  { echo "make test-viewer needs Chromium: install it (Debian: apt-get install chromium)"; exit 1; }
	$(BIN)/python -m pytest --browser --all-robots tests/test_viewer.py tests/test_viewer_pages.py $(ARGS)

lint: $(VENV)/.lint
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

format: $(VENV)/.lint
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --clean --config-file docs/mkdocs.yml
	@echo "open build/site/index.html"

bench: $(VENV)/.bench
	$(BIN)/jaxrbd bench $(ARGS)

bench-quick: $(VENV)/.bench
	$(BIN)/jaxrbd bench --quick $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis demo.png
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- set-up: one stamp per set of extras, renewed when pyproject.toml changes ------------------------

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "jaxrbd needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.plot: pyproject.toml | $(VENV)/.created
	$(PIP) -e '.[plot]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.created
	$(PIP) -e '.[test,plot]'
	@touch $@

$(VENV)/.lint: pyproject.toml | $(VENV)/.created
	$(PIP) -e '.[lint]'
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.created
	$(PIP) -e '.[docs]'
	@touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/.created
	$(PIP) -e '.[bench]'
	@touch $@
