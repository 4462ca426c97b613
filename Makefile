# One command checks everything: `make check`. The slow ones run before an issue is closed.
PYTHON ?= .venv/bin/python
BIN := $(dir $(PYTHON))
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: check lint types layers yaml shell matrix test samples conformance lab lab-smoke qemu qemu-short bench chaos wheel

check: lint types layers yaml shell matrix samples test

lint:
	ruff format --check fleet drivers compat_matrix playbooks pxe tests scripts
	ruff check fleet drivers compat_matrix playbooks pxe tests scripts

types:
	mypy

layers:
	lint-imports

yaml:
	yamllint -s compat_matrix playbooks .yamllint
	ANSIBLE_HOME=.ansible ansible-lint --offline -q playbooks

shell:
	scripts/check_shell

matrix:
	fleet matrix check

samples:
	$(PYTHON) scripts/check_samples
	$(PYTHON) scripts/check_emulators

test:
	$(PYTHON) -m pytest

conformance:
	$(PYTHON) -m pytest -m conformance tests/engine

lab-smoke:
	$(PYTHON) -m pytest -m "lab and smoke" tests/lab

lab:
	$(PYTHON) scripts/prove lab lab tests

qemu:
	$(PYTHON) scripts/prove qemu qemu tests/qemu

qemu-short:
	$(PYTHON) -m pytest -m "qemu and smoke" tests/qemu

bench:
	$(PYTHON) scripts/prove bench bench tests/bench

chaos:
	$(PYTHON) scripts/prove chaos -m tests.engine.chaos 200
	FLEET_TEST_EXAMPLES=100 $(PYTHON) -m pytest tests/engine/test_budget_machine.py

wheel:
	$(PYTHON) -m build --wheel
