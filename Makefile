# `make demo` and `make test` set up everything they need in .venv, then run.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS := $(VENV)/.docs
LOWEST := .venv-lowest
LOWEST_PIP := $(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check

# The tests of the report page drive a real browser, installed where that is allowed.
BROWSER := command -v chromium >/dev/null || command -v chromium-browser >/dev/null
INSTALL_BROWSER := timeout 300 sh -c 'apt-get update && apt-get install -y chromium' >/dev/null 2>&1

.PHONY: demo test test-all test-lowest lint format docs dist bench-design bench-dimension bench-plane bench-shapes \
	bench-classify bench-head bench-two-stage bench-compare bench-compare-more bench-newest bench-page bench-speed \
	bench-stream bench-rows bench-capacity bench-tables bench-likelihoods bench-small bench-wide bench-coverage bench-sources bench-factors bench-unlabeled bench-images test-faults reproduction tables clean

demo: $(READY)
	$(BIN)/python -m greenfold.demo

test: $(READY) lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-all: $(READY) lint test-lowest
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# The lowest versions that are declared, in an environment of their own: without extras, then with them.
test-lowest:
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST_PIP) torch==2.13.0 $$($(LOWEST)/bin/python tests/lowest.py pins)
	$(LOWEST_PIP) --no-deps -e .
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python tests/lowest.py try
	$(LOWEST_PIP) $$($(LOWEST)/bin/python tests/lowest.py pins all)
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python tests/lowest.py try all

# Random ranks killed at random moments, two emulated machines; some ten minutes.
test-faults: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s tests/test_faults.py

# The site, in docs/_build/html. Warnings, examples that fail and broken links end it. The second time only what
# has changed is run again.
docs: $(READY) $(DOCS)
	OMP_NUM_THREADS=1 $(BIN)/python docs/live.py
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python docs/links.py docs/_build/html
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_docs.py src/greenfold --ignore src/greenfold/experiments

# A wheel and a source archive in dist/; the wheel installed into an empty environment and tried, without extras
# and with all of them.
dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python tests/wheel.py dist

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/house.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-design: $(READY)
	$(BIN)/python benchmarks/design.py

bench-dimension: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/dimension.py

bench-plane: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/plane.py

bench-shapes: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/shapes.py

bench-classify: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/classify.py

bench-head: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/head.py

bench-two-stage: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/two_stage.py

# Beside other methods on real tables (GREENFOLD_DATA names their directory). About 2½ hours of two CPUs; goes
# on where it was. Peers that are not installed are left out: `pip install -e '.[bench]'`.
bench-compare: $(READY)
	$(BIN)/python benchmarks/compare run --jobs 2 --n full --budget 6
	$(BIN)/python benchmarks/compare run --jobs 2 --n 200 --budget 2
	$(BIN)/python benchmarks/compare page

# RealMLP, TabM and EBM as they come, one split of the same tables; with all rows those of up to 1,200 of them.
# About an hour and a half of CPU, goes on where it was.
NEWEST := $(BIN)/python benchmarks/compare run --jobs 2 --splits 1 --results results/newest.jsonl --methods \
	IGLRegressor,IGLStack,IGLClassifier,IGLStackClassifier,CatBoost,RealMLP,EBM
bench-newest: $(READY)
	$(NEWEST) --n full --largest 1200 --budget 6
	$(NEWEST),TabM --n 200 --budget 2
	$(BIN)/python benchmarks/compare newest --results results/newest.jsonl

# Other sizes, peers and efforts, splits for intervals, and known manifolds: long.
bench-compare-more: $(READY)
	$(BIN)/python benchmarks/compare run --jobs 2 --n 100 --budget 2 --targets number
	$(BIN)/python benchmarks/compare run --jobs 2 --n full --splits 7 --first 3 --methods IGLRegressor,IGLStack
	$(BIN)/python benchmarks/compare run --jobs 2 --n 200 --budget 2 \
		--methods "IGLStack fast,IGLStack full,deep kernel,KAN"
	$(BIN)/python benchmarks/compare run --jobs 2 --n 200 --splits 1 \
		--sets plane,plane-noisy,plane-of-5,plane-bent,roll-angle,roll-both
	$(BIN)/python benchmarks/compare page

bench-page: $(READY)
	$(BIN)/python benchmarks/compare page

bench-speed: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/speed.py

# Ten million rows on disk (4 GB, removed afterwards); about eight minutes of CPU.
bench-stream: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/stream.py

# Every real table of the directory that GREENFOLD_DATA names, by the defaults; about half an hour.
bench-tables: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/tables.py

# Counts and quantiles of those tables beside boosting with the same loss; about half an hour.
bench-likelihoods: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/likelihoods.py

# The small noisy tables among them, five splits each, beside Ridge, boosting and extra trees.
bench-small: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/small.py

# Spectra, faces and genes of the directory that GREENFOLD_DATA names, beside what people use for them, and
# the page about them; about 40 minutes of CPU, goes on where it was.
bench-wide: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/wide.py --page

bench-rows: $(READY)
	$(BIN)/python benchmarks/rows.py

# Spheres and products beside geometric_kernels, where that is installed.
bench-factors: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/factors.py

# Few labels, many rows: faces and objects of the directory that GREENFOLD_DATA names; about ten minutes.
bench-unlabeled: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/unlabeled.py

# Pictures by default beside tuned support vector machines; about a quarter of an hour, goes on where it was.
bench-images: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/images.py

bench-capacity: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/capacity.py

# Intervals over low and high noise; about half an hour of CPU, goes on where it was.
bench-coverage: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/coverage.py

# Three sources in random worlds, beside ridge and non-negative least squares on a grid; about 15 minutes.
bench-sources: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/sources.py

# Every experiment of the paper, then the page about them; about four hours of CPU. Needs MNIST and
# Fashion-MNIST: see `greenfold data --help`; and images/cifar10_jpeg_12000.tar.gz where GREENFOLD_DATA says.
reproduction: $(READY)
	$(BIN)/greenfold reproduce all --full
	$(BIN)/greenfold reproduce exp7 --full --dataset mnist
	$(BIN)/greenfold reproduce exp7 --full --dataset fashion
	$(BIN)/python -m greenfold.experiments.page results/reproduce docs

# The exponential sums that ship with the package; about six minutes.
tables: $(READY)
	$(BIN)/python -c 'from greenfold.green.expsum import write_tables; write_tables()'

# PyTorch goes first and by itself: a pinned version is found as it is, a range would look further.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "greenfold needs Python 3.11 or newer"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BROWSER) || { $(INSTALL_BROWSER) && $(BROWSER); } || echo "NO BROWSER: tests of the report page are skipped"
	touch $@

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST) demo results dist docs/_build docs/gallery docs/live docs/reference .pytest_cache .mypy_cache .ruff_cache .hypothesis
