# `make demo` and `make test` need nothing but Python >= 3.10; the rest is for contributors.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench docs clean

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

demo: $(VENV)/core
	$(BIN)/bnncert demo

test: $(VENV)/test
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/lint
	$(BIN)/ruff check src tests benchmarks scripts docs
	$(BIN)/ruff format --check src tests benchmarks scripts docs
	$(BIN)/mypy --strict

bench: $(VENV)/test
	$(BIN)/python benchmarks/bound.py
	$(BIN)/python benchmarks/decided.py
	$(BIN)/python benchmarks/milp_forms.py
	$(BIN)/python benchmarks/vnncomp.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
