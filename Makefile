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

# Jobs and tests start Python hundreds of times, each twice as fast where bytecode is kept.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(abspath $(VENV))/bin
RUN := PYTHONPATH=python:. $(BIN)/python
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
CMAKE := $(if $(CXX),CXX="$(CXX)") $(BIN)/cmake
CONFIGURE_CPP = $(CMAKE) -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja
CONFIGURE = $(CONFIGURE_CPP) \
	-DPython_EXECUTABLE=$(BIN)/python -Dpybind11_DIR=$$($(BIN)/python -m pybind11 --cmakedir)

.DELETE_ON_ERROR:
.PHONY: help train test test-torch test-course test-cuda train-cuda test-s3 test-browser soak lint bench ladder ladder-cuda bench-against bench-smoke bench-data bench-cuda sanitize docs notebook clean distclean build build-tests

help:  ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*  ## /\1\t/p' Makefile | expand -t 16

# ---- set-up: a stamp for each step ---------------------------------------------------------------

ifeq ($(PACKAGES),present)  # what VENV has serves: for a machine that reaches no package index
$(VENV)/.needle-%:
	@touch $@
else
$(VENV)/.needle-created:
	@sh .ci/preflight.sh "$(PYTHON)" "$(CXX)"
	@echo "needle: making the virtual environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --no-compile --upgrade pip  # Python 3.11's takes twice as long to resolve
	@touch $@

$(VENV)/.needle-%: pyproject.toml $(VENV)/.needle-created
	@echo "needle: installing packages into $(VENV) ($*)"
	@$(BIN)/python .ci/requirements.py build $* > $@.txt
	@$(PIP) install --no-compile --requirement $@.txt
	@touch $@
endif

$(VENV)/.needle-dev $(VENV)/.needle-test: | $(VENV)/.needle-train  # one pip at a time, also under -j

$(BUILD)/.configured-$(notdir $(VENV)): CMakeLists.txt $(VENV)/.needle-train
	@sh .ci/preflight.sh "$(BIN)/python" "$(CXX)" $(PACKAGES)
	@rm -rf $(BUILD) && mkdir -p $(BUILD)
	@$(CONFIGURE) -B $(BUILD) -DCMAKE_BUILD_TYPE=Release -DNEEDLE_BUILD_TESTS=ON > $@.log 2>&1 \
		|| { cat $@.log; exit 1; }
	@touch $@

# The first build shows its progress on a terminal; later ones speak only when something is wrong.
$(BUILD)/.compiled: $(BUILD)/.configured-$(notdir $(VENV))
	@echo "needle: compiling the C++ kernels, once; one to three minutes on two cores"
	@[ -t 1 ] || quiet=--quiet; NINJA_STATUS="needle: compiling [%f/%t] " \
		$(CMAKE) --build $(BUILD) -j $(JOBS) -- $$quiet
	@touch $@

build: $(BUILD)/.compiled  ## the C++ extension, what changed of it
	@$(CMAKE) --build $(BUILD) -j $(JOBS) -- --quiet

# ---- jobs ----------------------------------------------------------------------------------------

train: $(VENV)/.needle-train build  ## LeNet-5 on real handwritten digits; more with ARGS="--help"
	@$(RUN) apps/train.py $(ARGS)

# Tests of kernels go through the instruction sets that this machine has by themselves (fixtures
# kernels and isa). What needs no compiled code runs in plain NumPy mode too; the main run is last.
KERNEL_TESTS := tests/conformance tests/backends tests/native tests/data/test_native_kernels.py
NUMPY_TESTS := $(shell cat .ci/numpy_tests)
EMULATOR_TESTS := $(addprefix tests/cuda_on_cpu/test_,backend.py images.py graphs.py loads.py)
PYTEST := -m pytest -n $(JOBS) --dist worksteal

build-tests: build  ## what tests need beside it: the emulated CUDA backend and, if it changed, CUDA's
	@echo "needle: compiling the CUDA kernels for the CPU and, if they changed and nvcc is, for every GPU"
	@$(CMAKE) --build $(BUILD) -j $(JOBS) --target $$($(RUN) -m tests.cuda_on_cpu.resources target) -- --quiet

test: $(VENV)/.needle-test build-tests  ## every test, on every instruction set and in NumPy mode
	@$(MAKE) -s --no-print-directory $(VENV)/.needle-stores \
		|| echo "needle: OpenStack Swift cannot be installed here; the tests with it are skipped"
	@echo "needle: the C++ tests"
	@$(BIN)/ctest --test-dir $(BUILD) --output-on-failure --progress
	@echo "needle: what needs no compiled code, NEEDLE_BACKEND=np"
	@NEEDLE_BACKEND=np $(RUN) $(PYTEST) -q $(NUMPY_TESTS)
	@echo "needle: every test"
	@$(RUN) $(PYTEST) $(PYTEST_ARGS)

test-torch: $(VENV)/.needle-peers test  ## test with PyTorch installed, to compare with

# Half an hour on two cores, most of it starts of Python; PART=2 for one part.
PART ?= all
test-course: $(VENV)/.needle-test  ## the course's proof: each exercise emptied, and solved
	@$(RUN) -m apps.course prove $(PART)

# A GPU is asked for first: the tests would run on the emulated one. The checkers are CUDA's own.
HAVE_GPU := $(RUN) -c "import needle; why = needle.cuda().why(); exit(why and 'needle: ' + why)"
CHECKER := compute-sanitizer --error-exitcode 1

test-cuda: $(VENV)/.needle-test build  ## conformance, gradients, training and memory on this machine's GPU
	@$(HAVE_GPU)
	NEEDLE_CUDA_SYNC=1 $(RUN) -m needle.testing.conformance cuda
	$(RUN) -m pytest -q tests/gpu
	NEEDLE_TEST_DEVICES=cuda $(RUN) -m pytest -q tests/ops tests/init tests/accelerated tests/optim
	if command -v compute-sanitizer > /dev/null; then for tool in memcheck racecheck; do \
		PYTHONPATH=python:. $(CHECKER) --tool $$tool $(BIN)/python -m needle.testing.conformance cuda \
		|| exit 1; done; fi

bench-cuda: $(VENV)/.needle-train build  ## speed on this machine's GPU, beside PyTorch's on it where installed
	@$(HAVE_GPU)
	for precision in float32 tf32 bf16; do \
		$(RUN) -m apps.bench.cuda --precision $$precision $(ARGS) || exit 1; done
	$(RUN) apps/profile_layers.py --model lenet5 --devices cpu_numpy,cpu,cuda \
		--batch-sizes 1,16,128,1024 --picture apps/bench/cuda/lenet5.png \
		> apps/bench/cuda/LENET5.md || { cat apps/bench/cuda/LENET5.md; exit 1; }

# CIFAR-10's files are looked for in DATA, and brought there if they are not. Time and curve are in
# runs/: report.html, run.json, epochs.csv. RECIPE=resnet18-cifar10 is the one of 200 epochs;
# ARGS=--resume goes on.
DATA ?= data
RECIPE ?= resnet18-cifar10-short

train-cuda: $(VENV)/.needle-train build  ## ResNet-18 on CIFAR-10 on this machine's GPU, to 94 % or more
	@$(HAVE_GPU)
	$(RUN) apps/train.py --recipe $(RECIPE) --device cuda --precision bf16 --workers 2 --goal 0.94 \
		--data-dir $(DATA) --download --out runs/$(RECIPE)-cuda $(ARGS)

# Swift's are in make test too. Ceph is tried where Debian's radosgw, ceph-mon, ceph-osd and
# ceph-common are installed.
test-s3: $(VENV)/.needle-test $(VENV)/.needle-stores build  ## data sets in real object stores on loopback: Swift, Ceph
	@$(RUN) -m pytest -m "s3 or not s3" tests/s3 $(PYTEST_ARGS)

test-browser: $(VENV)/.needle-test $(VENV)/.needle-browser build  ## the page of apps/predict.py in headless Chromium
	@$(RUN) -m pytest -m browser tests/browser $(PYTEST_ARGS)

# One at a time: they measure times and count processes. test leaves them out (tests/conftest.py).
soak: $(VENV)/.needle-test build  ## repeated faults and long runs of the loader; half an hour
	@$(RUN) -m pytest -m soak $(PYTEST_ARGS)

# gcc on Linux. The module goes to a place of its own: python/ keeps the one without sanitizers.
ADDRESS := build/address
THREAD := build/thread
SITE := $(ADDRESS)/site
LIBRARY = $$($(or $(CXX),g++) -print-file-name=$(1))
UNDER_ADDRESS = ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	LD_PRELOAD="$(call LIBRARY,libasan.so) $(call LIBRARY,libstdc++.so)"

sanitize: $(VENV)/.needle-test build  ## the C++ under address, undefined and thread sanitizers
	$(CONFIGURE) -B $(ADDRESS) -DNEEDLE_SANITIZE=address,undefined -DNEEDLE_BUILD_TESTS=ON \
		-DSKBUILD=ON --log-level=WARNING
	$(CMAKE) --build $(ADDRESS) -j $(JOBS) -- --quiet
	$(BIN)/ctest --test-dir $(ADDRESS) --output-on-failure
	rm -rf $(SITE) && mkdir -p $(SITE) && cp -R python/needle $(SITE)/
	rm -f $(SITE)/needle/backend_ndarray/*.so && $(CMAKE) --install $(ADDRESS) --prefix $(SITE)
	$(UNDER_ADDRESS) $(BIN)/python -m pytest -q -p no:cacheprovider -p no:xdist \
		-o pythonpath="$(SITE) ." $(KERNEL_TESTS)
	$(CMAKE) --build $(ADDRESS) -j $(JOBS) --target cuda_on_cpu -- --quiet
	$(UNDER_ADDRESS) PYTHONPATH="$(ADDRESS)/emulated:$(SITE):." $(BIN)/python -m pytest -q \
		-p no:cacheprovider -p no:xdist -o pythonpath="$(ADDRESS)/emulated $(SITE) . tests/data" $(EMULATOR_TESTS)
	$(CONFIGURE_CPP) -B $(THREAD) -DNEEDLE_SANITIZE=thread -DNEEDLE_BUILD_TESTS=ON \
		-DNEEDLE_BUILD_PYTHON=OFF --log-level=WARNING
	$(CMAKE) --build $(THREAD) -j $(JOBS) -- --quiet
	$(BIN)/ctest --test-dir $(THREAD) --output-on-failure

bench: $(VENV)/.needle-train build  ## a first impression of speed, on the screen
	$(RUN) -m apps.bench $(ARGS)

LADDERS := gemm_ladder conv_ladder

ladder: $(VENV)/.needle-train build  ## matrix product and convolution from plain loops to our kernels, each step timed
	for name in $(LADDERS); do $(RUN) -m apps.bench.$$name --out $(BUILD)/$$name.png \
		--program $(BUILD)/apps/bench/$$name/$$name $(ARGS) || exit 1; done

ladder-cuda: $(VENV)/.needle-train build  ## the same on this machine's GPU, up to tensor cores
	@$(HAVE_GPU)
	$(CMAKE) --build $(BUILD) -j $(JOBS) --target gemm_ladder_cuda conv_ladder_cuda -- --quiet
	$(RUN) -m apps.bench.gemm_ladder --n 4096 --program $(BUILD)/src/cuda/gemm_ladder_cuda $(ARGS)
	$(RUN) -m apps.bench.conv_ladder --channels 1024 --program $(BUILD)/src/cuda/conv_ladder_cuda $(ARGS)

bench-against: $(VENV)/.needle-train build  ## the comparison with PyTorch; apps/bench/RESULTS.md
	$(RUN) -m apps.bench.against --page apps/bench $(ARGS)

# Numbers of this run mean nothing; it fails where something of ours does.
bench-smoke: $(VENV)/.needle-train build  ## every benchmark on tiny work: does it run?
	$(RUN) -m apps.bench --rounds 1
	$(RUN) -m apps.bench.against --quick --threads 1 --out $(BUILD)/bench-smoke

bench-data: $(VENV)/.needle-train $(VENV)/.needle-images build  ## times the data module beside others; apps/bench/data/
	$(RUN) -m apps.bench.data --page apps/bench/data $(ARGS)

# Links within the site are checked (-W), and the notebook is run; its outputs are shown.
docs: $(VENV)/.needle-docs build  ## the documentation site in build/docs
	@PYTHONPATH="$(CURDIR)/python:$(CURDIR)" $(BIN)/python -m sphinx -c docs -W --keep-going -q . build/docs
	@echo "needle: the site begins at build/docs/index.html"

notebook: $(VENV)/.needle-docs  ## hw_notebook.ipynb from its source, hw_notebook.py
	@$(RUN) -m apps.notebook

lint: $(VENV)/.needle-dev  ## ruff, mypy and clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	find src tests/cpp tests/cuda_on_cpu apps examples -name '*.cc' -o -name '*.h' -o -name '*.cu' \
		| xargs $(BIN)/clang-format --dry-run -Werror

clean:  ## what was built; the virtual environment stays (distclean removes it too)
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f python/needle/backend_ndarray/*.so tests/cuda_on_cpu/*.so
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
