# make demo   try it          make test   check it          make help   what else there is
PYTHON ?= python3
VENV   := .venv
PIP    := $(VENV)/bin/python -m pip --quiet --disable-pip-version-check
SOURCES := pyproject.toml CMakeLists.txt README.md $(shell find src -name '*.py' -o -name '*.pyi' -o -name '*.cpp' -o -name '*.hpp' -o -path '*/page/*')
NATIVE := $(wildcard src/onnxmem/_native/*.[ch]pp tests/native/*.[ch]pp)
COMPILED = $(firstword $(shell ls -td build/*/compile_commands.json 2>/dev/null))

.PHONY: demo test run-tests check tidy coverage campaign dist docs help clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      install into $(VENV) and run the demonstration"
	@echo "make test      install what the tests need and run them all"
	@echo "make check     lint, format and types only"
	@echo "make tidy      clang-tidy on the native code"
	@echo "make coverage  run the tests and say which branches they leave out"
	@echo "make campaign  search for what breaks it, NAME=files: docs/reliability.md"
	@echo "make dist      build and check the sdist and the wheels, into dist"
	@echo "make docs      build the reference of the library into build/docs"
	@echo "make clean     remove $(VENV), builds and caches"

demo: $(VENV)/installed
	$(VENV)/bin/onnxmem demo

# Both at once: types are checked by one process, and tests often wait for others.
test: $(VENV)/installed-tests
	@$(MAKE) --no-print-directory --jobs=2 check run-tests

run-tests: $(VENV)/installed-tests
	$(VENV)/bin/python -m pytest -n 3 --dist worksteal

# Warnings are errors for those who work on it; whoever only installs it may have a compiler that nobody has tried.
test run-tests check tidy coverage: BUILD := --config-settings=cmake.define.ONNXMEM_WERROR=ON

check: $(VENV)/installed-tests
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run -Werror $(NATIVE)

tidy: $(VENV)/installed-tests
	$(PIP) install --group tidy
	$(VENV)/bin/clang-tidy --quiet -p $(dir $(COMPILED)) $(wildcard src/onnxmem/_native/*.cpp)
	$(VENV)/bin/clang-tidy --quiet $(wildcard tests/native/*.cpp) -- -std=c++20 -Isrc/onnxmem/_native

coverage: $(VENV)/installed-tests
	$(PIP) install --group coverage
	$(VENV)/bin/coverage erase
	-$(VENV)/bin/coverage run -m pytest -n 3 --dist worksteal
	$(VENV)/bin/coverage combine --quiet
	$(VENV)/bin/coverage report

campaign: $(VENV)/installed-tests
	$(VENV)/bin/python -m campaigns.$(or $(NAME),files) $(ARGUMENTS)

dist: $(VENV)/created
	$(PIP) install --group dist
	$(VENV)/bin/python -m scripts.dist

docs: $(VENV)/installed-tests
	$(PIP) install --group docs
	$(VENV)/bin/python -m scripts.cli_reference
	$(VENV)/bin/python -m scripts.api_reference
	$(VENV)/bin/python -m pdoc --no-show-source --output-directory build/docs onnxmem
	@echo "build/docs/index.html"

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*

# Each stamp stands for one step; a second run finds them newer than their sources and does nothing.
$(VENV)/created:
	@$(PYTHON) scripts/preflight.py
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	$(PIP) install "scikit-build-core>=0.11" "nanobind>=2.5" "cmake>=3.18" ninja
	@touch $@

$(VENV)/installed: $(VENV)/created $(SOURCES)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PIP) install --no-build-isolation $(BUILD) ".[report]"
	@touch $@

$(VENV)/installed-tests: $(VENV)/installed
	$(PIP) install --group test
	@$(VENV)/bin/python -m scripts.browser
	@touch $@
