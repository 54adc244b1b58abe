# make demo   try it          make test   check it          make help   what else there is
PYTHON ?= python3
VENV   := .venv
PIP    := $(VENV)/bin/python -m pip --quiet --disable-pip-version-check
SOURCES := pyproject.toml CMakeLists.txt README.md $(shell find src -name '*.py' -o -name '*.pyi' -o -name '*.cpp' -o -name '*.hpp' -o -path '*/page/*')

.PHONY: demo test check help clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   install into $(VENV) and run the demonstration"
	@echo "make test   install what the tests need and run them all"
	@echo "make check  lint and types only"
	@echo "make clean  remove $(VENV), builds and caches"

demo: $(VENV)/installed
	$(VENV)/bin/onnxmem demo

test: check
	$(VENV)/bin/python -m pytest -n 2

check: $(VENV)/installed-tests
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Each stamp stands for one step; a second run finds them newer than their sources and does nothing.
$(VENV)/created:
	@$(PYTHON) scripts/preflight.py
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	$(PIP) install "scikit-build-core>=0.11" "nanobind>=2.5" "cmake>=3.18" ninja
	@touch $@

$(VENV)/installed: $(VENV)/created $(SOURCES)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PIP) install --no-build-isolation ".[report]"
	@touch $@

$(VENV)/installed-tests: $(VENV)/installed
	$(PIP) install --group test
	@touch $@
