# `make demo` and `make test` need nothing but Python >= 3.10; the rest is for contributors.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint wheel release bench bench-paper bench-soundness docs clean

$(VENV)/core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/test: $(VENV)/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test]"
	@touch $@

$(VENV)/lint: $(VENV)/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[lint]"
	@touch $@

$(VENV)/docs: $(VENV)/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	@touch $@

demo: $(VENV)/core
	$(BIN)/bnncert demo

# The tests start the program some hundred times, and each of two processes rewrites the assertions of all tests: both are
# compiled once, even where Python may not cache.
test: $(VENV)/test
	$(BIN)/python -m compileall -q src
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/lint
	$(BIN)/ruff check src tests benchmarks docs .ci
	$(BIN)/ruff format --check src tests benchmarks docs .ci
	$(BIN)/mypy --strict

docs: $(VENV)/docs
	$(BIN)/sphinx-build -W --keep-going -q -b html -d build/doctrees docs build/docs

# A source distribution, and a wheel that is built from it, in dist/.  The wheel is tested in an environment
# that has nothing else, not even pip; compiling modules that the test does not import would only take time.
WHEEL := build/wheel
PACKER := $(WHEEL)/tools/bin/python

wheel:
	rm -rf $(WHEEL) dist
	$(PYTHON) -m venv $(WHEEL)/tools
	$(PACKER) -m pip install --quiet --disable-pip-version-check --upgrade build hatchling pip
	$(PACKER) -m build --no-isolation --outdir dist
	$(PYTHON) -m venv --without-pip $(WHEEL)/empty
	$(PACKER) -m pip --python $(WHEEL)/empty/bin/python install --quiet --no-compile dist/*.whl
	$(WHEEL)/empty/bin/python -I .ci/smoke.py

# What is uploaded, checked: the metadata, and the wheel with the oldest and the newest supported Python of the PATH.
release: wheel
	$(PACKER) -m pip install --quiet --disable-pip-version-check twine
	$(PACKER) -m twine check --strict dist/*
	$(PACKER) .ci/release.py $(WHEEL)

bench: $(VENV)/test
	$(BIN)/python benchmarks/bound.py
	$(BIN)/python benchmarks/decided.py
	$(BIN)/python benchmarks/milp_forms.py
	$(BIN)/python benchmarks/vnncomp.py

# Up to 20 images and 60 s for each instance; about two hours in all, and resumable.
PAPER := paper-linf paper-l2 paper-random
WORKERS ?= 2

bench-paper: $(VENV)/test
	for name in $(PAPER); do \
		$(BIN)/bnncert experiment $$name-reduced --out bench-paper.sqlite --processes $(WORKERS) || exit; \
	done
	$(BIN)/bnncert report bench-paper.sqlite -o bench-paper.html

# About an hour at full size; resumable.  `make bench-soundness SEED=1 NUMBER=1000` for another or a shorter run.
SEED ?= 0

bench-soundness: $(VENV)/test
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m benchmarks.soundness --seed $(SEED) $(if $(NUMBER),--number $(NUMBER)) --workers $(WORKERS)

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
