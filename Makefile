# One target for each job. Each job first sets up what it needs in .venv, once.
# The machine needs Python 3.10 or later with venv, make and a C++20 compiler.

PYTHON ?= python3
VENV ?= .venv
BUILD ?= build/make
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
WERROR ?= OFF
NEEDLE_CUDA ?= auto
PYTEST_ARGS ?=
ARGS ?=

ifeq ($(origin CXX),default)
  CXX :=
endif

# Jobs and tests start Python hundreds of times, which takes half as long with cached bytecode.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(abspath $(VENV))/bin
# PYTHONPATH names this tree, even if VENV belongs to another one.
RUN := PYTHONPATH=python:. $(BIN)/python
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
CMAKE := $(if $(CXX),CXX="$(CXX)") $(BIN)/cmake
CONFIGURE_CPP = $(CMAKE) -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja -DNEEDLE_WERROR=$(WERROR) \
	-DNEEDLE_CUDA=$(NEEDLE_CUDA)
CONFIGURE = $(CONFIGURE_CPP) \
	-DPython_EXECUTABLE=$(BIN)/python -Dpybind11_DIR=$$($(BIN)/python -m pybind11 --cmakedir)

# If a checkout was moved or copied, its build folder would compile the sources at the old path.
ELSEWHERE := $(shell place=$$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' $(BUILD)/CMakeCache.txt 2>&-); \
	[ -z "$$place" ] || [ "$$place" -ef . ] || echo "$$place")
ifneq ($(and $(ELSEWHERE),$(filter-out help clean distclean,$(MAKECMDGOALS))),)
  $(error needle: $(BUILD) was made for the sources in $(ELSEWHERE); run make clean first, or \
	make distclean if $(VENV) came from there too)
endif

.DELETE_ON_ERROR:
.PHONY: help train check test test-all test-torch test-course test-cuda test-webgpu sanitize-cuda train-cuda test-s3 test-browser soak fuzz lint bench ladder ladder-cuda bench-against bench-smoke bench-data bench-cuda bench-cuda-lenet5 sanitize docs notebook wheel clean distclean build build-tests

help:  ## this list of targets
	@sed -n 's/^\([a-z0-9-]*\):.*  ## /\1\t/p' Makefile | expand -t 16

# ---- set-up: a stamp for each step ---------------------------------------------------------------

ifeq ($(PACKAGES),present)  # use what VENV has: for a machine without access to a package index
$(VENV)/.needle-%:
	@touch $@
else
$(VENV)/.needle-created:
	@sh tools/preflight.sh "$(PYTHON)" "$(CXX)"
	@echo "needle: making the virtual environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --no-compile --upgrade pip  # Python 3.11's takes twice as long to resolve
	@touch $@

$(VENV)/.needle-%: pyproject.toml $(VENV)/.needle-created
	@echo "needle: installing packages into $(VENV) ($*)"
	@$(BIN)/python tools/requirements.py build $* > $@.txt
	@$(PIP) install --no-compile --requirement $@.txt
	@touch $@
endif

$(VENV)/.needle-dev $(VENV)/.needle-test $(VENV)/.needle-bfloat16: | $(VENV)/.needle-train  # one pip at a time, also under -j

# Afterwards .venv/bin/python imports needle from python/ without PYTHONPATH, which still wins. A VENV
# outside this folder may belong to another tree: it is left as it is.
SOURCE_PATH := $(if $(filter $(CURDIR)/%,$(BIN)),$(BUILD)/.importable-$(notdir $(VENV)))

$(SOURCE_PATH): $(BUILD)/.configured-$(notdir $(VENV))
	@$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > $@
	@echo "$(CURDIR)/python" > "$$(cat $@)/needle-source.pth"

$(BUILD)/.configured-$(notdir $(VENV)): CMakeLists.txt $(VENV)/.needle-train
	@sh tools/preflight.sh "$(BIN)/python" "$(CXX)" $(PACKAGES)
	@rm -rf $(BUILD) && mkdir -p $(BUILD)
	@$(CONFIGURE) -B $(BUILD) -DCMAKE_BUILD_TYPE=Release -DNEEDLE_BUILD_TESTS=ON \
		-DNEEDLE_ONLY_ISA=native > $@.log 2>&1 || { cat $@.log; exit 1; }
	@touch $@

# The first build shows its progress on a terminal; later ones print errors only.
$(BUILD)/.compiled: $(BUILD)/.configured-$(notdir $(VENV))
	@echo "needle: compiling the C++ kernels, once; one to three minutes on two cores"
	@[ -t 1 ] || quiet=--quiet; NINJA_STATUS="needle: compiling [%f/%t] " \
		$(CMAKE) --build $(BUILD) -j $(JOBS) --target library -- $$quiet
	@touch $@

build: $(BUILD)/.compiled $(SOURCE_PATH)  ## the C++ extension for this processor: compile what changed
	@$(CMAKE) --build $(BUILD) -j $(JOBS) --target library -- --quiet

# ---- jobs ----------------------------------------------------------------------------------------

train: $(VENV)/.needle-train build  ## LeNet-5 on real handwritten digits; more with ARGS="--help"
	@$(RUN) apps/train.py $(ARGS)

# tests/conftest.py says which tests belong to which suite, and which also run in NumPy mode.
KERNEL_TESTS := tests/conformance tests/backends tests/native \
	$(addprefix tests/data/test_,native_kernels.py decode_region.py)
EMULATOR_TESTS := $(addprefix tests/cuda_on_cpu/test_,backend.py images.py graphs.py loads.py)
PYTEST := -m pytest -n $(JOBS) --dist worksteal

check: lint $(VENV)/.needle-test build  ## lint, types and the tests that find most mistakes: two minutes
	@$(RUN) $(PYTEST) -q --suite check $(PYTEST_ARGS)

test: $(VENV)/.needle-test build  ## every promise once: eight minutes, set-up included
	@echo "needle: the C++ tests"
	@$(CMAKE) --build $(BUILD) -j $(JOBS) -- --quiet
	@$(BIN)/ctest --test-dir $(BUILD) --no-tests=error --output-on-failure --progress
	@echo "needle: the tests in NumPy mode, without compiled code"
	@NEEDLE_BACKEND=np $(RUN) $(PYTEST) -q
	@echo "needle: the tests with compiled code"
	@$(RUN) $(PYTEST) $(PYTEST_ARGS)

build-tests: build  ## all instruction sets, the emulated CUDA backend and, with nvcc and new sources, CUDA's
	@echo "needle: compiling the kernels of the other instruction sets, and CUDA's for the CPU"
	@$(CMAKE) -DNEEDLE_ONLY_ISA= $(BUILD) > /dev/null
	@$(CMAKE) --build $(BUILD) -j $(JOBS) --target all $$($(RUN) -m tests.cuda_on_cpu.resources target) -- --quiet

test-all: test build-tests  ## make test, then slow tests, all instruction sets, the emulated GPU, stores, a browser
	@$(MAKE) -s --no-print-directory $(VENV)/.needle-stores \
		|| echo "needle: OpenStack Swift cannot be installed here; its tests are skipped"
	@$(MAKE) -s --no-print-directory $(VENV)/.needle-webgpu \
		|| echo "needle: wgpu cannot be installed here; its tests are skipped"
	@$(MAKE) -s --no-print-directory build/naga \
		|| echo "needle: naga-wasm cannot be installed here; the WGSL kernels are not translated to Metal"
	@$(MAKE) -s --no-print-directory $(VENV)/.needle-browser \
		|| echo "needle: selenium cannot be installed here; the tests in a browser are skipped"
	@$(MAKE) -s --no-print-directory build/axe || echo "$(NO_AXE)"
	@echo "needle: more tests in NumPy mode, without compiled code"
	@NEEDLE_BACKEND=np $(RUN) $(PYTEST) -q --suite extended
	@echo "needle: the tests of gradients and optimisers without reference counts"
	@NEEDLE_REFCOUNTS=off $(RUN) $(PYTEST) -q tests/test_autograd*.py tests/ops/test_changed_values.py tests/optim
	@echo "needle: the extended tests"
	@$(RUN) $(PYTEST) --suite extended $(PYTEST_ARGS)

# naga-wasm translates the WGSL kernels to Metal's language for tests/webgpu/test_naga.py.
build/naga:
	@npm install --silent --no-save --fetch-retries=0 --prefix $@.part naga-wasm@30.1.0
	@mv $@.part $@

# axe-core finds what makes a page hard to use with a keyboard or a screen reader.
NO_AXE := needle: axe-core cannot be installed here; its tests are skipped
build/axe:
	@npm install --silent --no-save --fetch-retries=0 --prefix $@.part axe-core@4
	@mv $@.part $@

test-torch: $(VENV)/.needle-peers test  ## make test with PyTorch installed, for the comparisons with it

# Half an hour on two cores, most of it spent on starting Python. PART=2 proves one part.
PART ?= all
test-course: $(VENV)/.needle-test  ## the course: each exercise emptied, solved, answered wrongly
	@$(MAKE) -s --no-print-directory $(VENV)/.needle-webgpu \
		|| echo "needle: wgpu cannot be installed here; the exercises in WGSL are skipped"
	@$(RUN) -m apps.course prove $(PART)
	@$(RUN) -m apps.course prove --wrong $(PART)

# Fails without a GPU, because the tests would run on the emulated one.
HAVE_GPU := $(RUN) -c "import needle; why = needle.cuda().why(); exit(why and 'needle: ' + why)"

test-cuda: $(VENV)/.needle-test build  ## conformance, gradients, training and memory on this machine's GPU
	@$(HAVE_GPU)
	NEEDLE_CUDA_SYNC=1 $(RUN) -m needle.testing.conformance cuda
	$(RUN) -m pytest -q tests/gpu
	NEEDLE_CUDA_SM90=on $(RUN) -m pytest -q tests/gpu
	NEEDLE_TEST_DEVICES=cuda $(RUN) -m pytest -q tests/ops tests/init tests/accelerated tests/optim \
		tests/course/test_init_numbers.py

# On Linux without a GPU, Mesa's software driver will do (Debian: mesa-vulkan-drivers, libvulkan1).
test-webgpu: $(VENV)/.needle-test $(VENV)/.needle-webgpu build  ## conformance and training on WebGPU
	$(RUN) -m needle.testing.conformance webgpu
	$(RUN) -m pytest -q tests/webgpu -m "slow or not slow"

# compute-sanitizer belongs to CUDA. Exact allocations show memcheck where each array ends.
TOOLS ?= memcheck racecheck
sanitize-cuda: $(VENV)/.needle-test build  ## the CUDA kernels under memcheck and racecheck; TOOLS=racecheck: one of them
	@$(HAVE_GPU)
	@command -v compute-sanitizer > /dev/null || { echo "needle: compute-sanitizer is not on PATH; it is in" \
		"the folder bin/ of CUDA's toolkit"; exit 1; }
	for tool in $(TOOLS); do for what in "needle.testing.conformance cuda" \
		"pytest -q -p no:xdist tests/gpu/test_products.py -k odd"; do \
		NEEDLE_CUDA_EXACT=1 PYTHONPATH=python:. compute-sanitizer --error-exitcode 1 --tool $$tool \
		$(BIN)/python -m $$what || exit 1; done; done

# Each part takes less than ten minutes and writes its page as figures come: make bench-cuda-bf16.
BENCH_CUDA := bench-cuda-float32 bench-cuda-tf32 bench-cuda-bf16
bench-cuda: $(BENCH_CUDA) bench-cuda-lenet5  ## speed on this machine's GPU, beside PyTorch's on it where installed

$(BENCH_CUDA): bench-cuda-%: $(VENV)/.needle-train $(VENV)/.needle-bfloat16 build
	@$(HAVE_GPU)
	$(RUN) -m apps.bench.against --device cuda --threads 1 --precision $* \
		--out runs/bench-cuda-$* --page apps/bench/cuda/$* $(ARGS)

bench-cuda-lenet5: $(VENV)/.needle-train build
	@$(HAVE_GPU)
	@mkdir -p apps/bench/cuda
	$(RUN) apps/profile_layers.py --model lenet5 --devices cpu_numpy,cpu,cuda \
		--batch-sizes 1,16,128,1024 --picture apps/bench/cuda/lenet5.png \
		> apps/bench/cuda/LENET5.md || { cat apps/bench/cuda/LENET5.md; exit 1; }

# CIFAR-10 is read from DATA, and downloaded if it is not there. Times and curves are written to runs/:
# report.html, run.json, epochs.csv. RECIPE=resnet18-cifar10 trains for 200 epochs; ARGS=--resume
# continues a run.
DATA ?= data
RECIPE ?= resnet18-cifar10-short

train-cuda: $(VENV)/.needle-train $(VENV)/.needle-bfloat16 build  ## ResNet-18 on CIFAR-10 on this machine's GPU: 94 % or more
	@$(HAVE_GPU)
	$(RUN) apps/train.py --recipe $(RECIPE) --device cuda --precision bf16 --workers 2 --goal 0.94 \
		--data-dir $(DATA) --download --out runs/$(RECIPE)-cuda $(ARGS)

# make test-all runs these tests too.
test-s3: $(VENV)/.needle-test $(VENV)/.needle-stores build  ## data sets in a real object store on loopback: Swift
	@$(RUN) -m pytest -m "s3 or not s3" tests/s3 $(PYTEST_ARGS)

test-browser: $(VENV)/.needle-test $(VENV)/.needle-browser docs  ## the site and the page of apps/predict.py in headless Chromium
	@$(MAKE) -s --no-print-directory build/axe || echo "$(NO_AXE)"
	@$(RUN) -m pytest -m browser tests/browser $(PYTEST_ARGS)

# These tests run one at a time, because they measure times and count processes.
soak: $(VENV)/.needle-test build  ## repeated faults and long runs of the loader: half an hour
	@$(RUN) -m pytest -m soak $(PYTEST_ARGS)

# Damaged and hostile files of every format (tests/fuzz); the seed in the last line repeats a finding.
SECONDS ?= 3600
fuzz: $(VENV)/.needle-test build  ## garbled files of every format for SECONDS=3600
	@$(RUN) -m tests.fuzz $(SECONDS) $(SEED)

# Uses gcc on Linux, whose warnings are unreliable in instrumented code. The module with sanitizers goes to
# its own folder; python/ keeps the one without.
ADDRESS := build/address
THREAD := build/thread
SITE := $(ADDRESS)/site
LIBRARY = $$($(or $(CXX),g++) -print-file-name=$(1))
UNDER_ADDRESS = ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	LD_PRELOAD="$(call LIBRARY,libasan.so) $(call LIBRARY,libstdc++.so)"

sanitize: $(VENV)/.needle-test build  ## the C++ under address, undefined and thread sanitizers
	$(CONFIGURE) -B $(ADDRESS) -DNEEDLE_SANITIZE=address,undefined -DNEEDLE_BUILD_TESTS=ON \
		-DNEEDLE_WERROR=OFF \
		-DSKBUILD=ON --log-level=WARNING
	$(CMAKE) --build $(ADDRESS) -j $(JOBS) -- --quiet
	$(BIN)/ctest --test-dir $(ADDRESS) --no-tests=error --output-on-failure
	rm -rf $(SITE) && mkdir -p $(SITE) && cp -R python/needle $(SITE)/
	rm -f $(SITE)/needle/backend_ndarray/*.so && $(CMAKE) --install $(ADDRESS) --prefix $(SITE)
	$(UNDER_ADDRESS) $(BIN)/python -m pytest -q -p no:cacheprovider -p no:xdist \
		-o pythonpath="$(SITE) ." $(KERNEL_TESTS)
	$(CMAKE) --build $(ADDRESS) -j $(JOBS) --target cuda_on_cpu -- --quiet
	$(UNDER_ADDRESS) PYTHONPATH="$(ADDRESS)/emulated:$(SITE):." $(BIN)/python -m pytest -q \
		-p no:cacheprovider -p no:xdist -o pythonpath="$(ADDRESS)/emulated $(SITE) . tests/data" $(EMULATOR_TESTS)
	$(CONFIGURE_CPP) -B $(THREAD) -DNEEDLE_SANITIZE=thread -DNEEDLE_BUILD_TESTS=ON \
		-DNEEDLE_WERROR=OFF \
		-DNEEDLE_BUILD_PYTHON=OFF --log-level=WARNING
	$(CMAKE) --build $(THREAD) -j $(JOBS) -- --quiet
	$(BIN)/ctest --test-dir $(THREAD) --no-tests=error --output-on-failure

bench: $(VENV)/.needle-train build  ## matrix products and LeNet-5 beside PyTorch, in a minute
	$(RUN) -m apps.bench.against matmul lenet5 --eager --rounds 3 --threads $(JOBS) --out runs/bench $(ARGS)
	@cat runs/bench/DETAILS.md

LADDERS := gemm_ladder conv_ladder

ladder: $(VENV)/.needle-train build  ## matrix product and convolution from plain loops to our kernels, each step timed
	@$(CMAKE) --build $(BUILD) -j $(JOBS) --target $(LADDERS) -- --quiet
	for name in $(LADDERS); do $(RUN) -m apps.bench.$$name --out $(BUILD)/$$name.png \
		--program $(BUILD)/apps/bench/$$name/$$name $(ARGS) || exit 1; done

ladder-cuda: $(VENV)/.needle-train build  ## the same on this machine's GPU, up to tensor cores
	@$(HAVE_GPU)
	$(CMAKE) --build $(BUILD) -j $(JOBS) --target gemm_ladder_cuda conv_ladder_cuda -- --quiet
	$(RUN) -m apps.bench.gemm_ladder --n 4096 --program $(BUILD)/src/cuda/gemm_ladder_cuda $(ARGS)
	$(RUN) -m apps.bench.conv_ladder --channels 1024 --program $(BUILD)/src/cuda/conv_ladder_cuda $(ARGS)

bench-against: $(VENV)/.needle-train build  ## comparison with PyTorch: apps/bench/RESULTS.md
	$(RUN) -m apps.bench.against --page apps/bench $(ARGS)

# The times of this run are meaningless; it fails if needle's part of a benchmark fails.
bench-smoke: $(VENV)/.needle-train build  ## run every benchmark once on tiny input
	$(RUN) -m apps.bench.against --quick --threads 1 --out $(BUILD)/bench-smoke

bench-data: $(VENV)/.needle-train $(VENV)/.needle-images build  ## comparison of data loading: apps/bench/data/
	$(RUN) -m apps.bench.data --page apps/bench/data $(ARGS)

# Checks the links within the site (-W), runs the notebook and shows its outputs.
docs: $(VENV)/.needle-docs build  ## the documentation site in build/docs
	@PYTHONPATH="$(CURDIR)/python:$(CURDIR)" $(BIN)/python -m sphinx -c docs -W --keep-going -q . build/docs
	@echo "needle: the site begins at build/docs/index.html"

# auditwheel is for Linux: it checks which systems the wheel runs on, and names them in its tag.
wheel: $(VENV)/.needle-release  ## a release: this machine's wheel, the pure wheel, the source archive, in dist/
	@rm -rf dist $(BUILD)/wheel
	@$(BIN)/python -m build --sdist --outdir dist
	@NEEDLE_PURE=on $(BIN)/python -m build --wheel --outdir dist dist/needle-*.tar.gz
	@$(BIN)/python -m build --wheel --outdir $(BUILD)/wheel -Ccmake.define.NEEDLE_JPEG=off dist/needle-*.tar.gz
	@if [ "$$(uname)" = Linux ]; then \
		PATH="$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist $(BUILD)/wheel/*.whl; \
	else cp $(BUILD)/wheel/*.whl dist; fi
	@$(BIN)/twine check --strict dist/*

notebook: $(VENV)/.needle-docs  ## hw_notebook.ipynb from its source, hw_notebook.py
	@$(RUN) -m apps.notebook

lint: $(VENV)/.needle-dev  ## ruff, mypy and clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	find src tests/cpp tests/cuda_on_cpu apps examples -name '*.cc' -o -name '*.h' -o -name '*.cu' \
		| xargs $(BIN)/clang-format --dry-run -Werror

clean:  ## remove what was built; distclean removes the virtual environment too
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f python/needle/backend_ndarray/*.so tests/cuda_on_cpu/*.so
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
