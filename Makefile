# One word for each job; every job sets itself up in .venv first, and does not do so twice.
# What a machine must have: Python 3.10-3.13 with venv, make, a C++20 compiler.

PYTHON ?= python3
VENV ?= .venv
BUILD ?= build/make
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
PYTEST_ARGS ?=
ARGS ?=

ifeq ($(origin CXX),default)
  CXX :=
endif

BIN := $(abspath $(VENV))/bin
RUN := PYTHONPATH=python:. $(BIN)/python
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CMAKE := $(if $(CXX),CXX=$(CXX)) $(BIN)/cmake
CONFIGURE = $(CMAKE) -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja \
	-DPython_EXECUTABLE=$(BIN)/python -Dpybind11_DIR=$$($(BIN)/python -m pybind11 --cmakedir)

.DELETE_ON_ERROR:
.PHONY: help train test lint bench sanitize clean distclean build

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' Makefile | expand -t 16

# ---- set-up: a stamp for each step ---------------------------------------------------------------

$(VENV)/.needle-created:
	@sh .ci/preflight.sh "$(PYTHON)" "$(CXX)"
	@echo "needle: making the virtual environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.needle-%: pyproject.toml $(VENV)/.needle-created
	@echo "needle: installing packages ($*)"
	@$(BIN)/python .ci/requirements.py build $* > $@.txt
	@$(PIP) install --requirement $@.txt
	@touch $@

$(BUILD)/.configured-$(notdir $(VENV)): CMakeLists.txt $(VENV)/.needle-train
	@sh .ci/preflight.sh "$(PYTHON)" "$(CXX)"
	@rm -rf $(BUILD) && mkdir -p $(BUILD)
	@$(CONFIGURE) -B $(BUILD) -DCMAKE_BUILD_TYPE=Release -DNEEDLE_BUILD_TESTS=ON > $@.log 2>&1 \
		|| { cat $@.log; exit 1; }
	@touch $@

build: $(BUILD)/.configured-$(notdir $(VENV))  ## the C++ extension, what changed of it
	@$(CMAKE) --build $(BUILD) -j $(JOBS) -- --quiet

# ---- jobs ----------------------------------------------------------------------------------------

train: $(VENV)/.needle-train build  ## LeNet-5 on real handwritten digits; more with ARGS="--help"
	@$(RUN) apps/train.py $(ARGS)

test: $(VENV)/.needle-test build  ## every test
	$(BIN)/ctest --test-dir $(BUILD) --output-on-failure
	$(RUN) -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.needle-dev  ## ruff, mypy and clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	find src tests/cpp -name '*.cc' -o -name '*.h' | xargs $(BIN)/clang-format --dry-run -Werror

clean:  ## what was built; the virtual environment stays (distclean removes it too)
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f python/needle/backend_ndarray/*.so
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
