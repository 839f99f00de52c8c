# Two commands set everything up on a fresh machine: make demo, make test.
# Any Python from 3.9 to 3.13 will do; another one: make PYTHON=/path/to/python.
export PYTHON
VERSIONS := 3.11 3.10 3.9 3.13 3.12
VENV := .venv
BIN := $(VENV)/bin
DEMO := runs/demo
# What differs with the versions of Python and TensorFlow is tried by these.
COMPAT := $(shell cat .ci/compat_tests)
SMOKE := tests/compat_test.py tests/privacy/library_versions_test.py

export TF_CPP_MIN_LOG_LEVEL ?= 3
# Off by default on processors without AVX-512, where it is 2 to 3 times faster.
export TF_ENABLE_ONEDNN_OPTS ?= 1

.PHONY: demo test test-slow test-matrix test-newest lint format bench \
  bench-peers studies results clean venv-demo venv-dev

venv-demo venv-dev: venv-%:
	.ci/venv $(VENV) $* $(VERSIONS)

demo: venv-demo
	rm -rf $(DEMO)
	$(BIN)/python -m experiments.train --dataset=mnist_5k --preset=mnist_5k --config.seed=0 --run_dir=$(DEMO)
	$(BIN)/python -m experiments.evaluate --run_dir=$(DEMO) --num_certified=100
	$(BIN)/python -m experiments.infer --run_dir=$(DEMO) --attack_eps=0.1
	$(BIN)/python -m experiments.audit --run_dir=$(DEMO) --kind=planted --seed=0
	$(BIN)/python -m experiments.audit_certificates --run_dir=$(DEMO) --num=20
	$(BIN)/python -m experiments.report --run_dir=$(DEMO)

test: venv-dev
	$(BIN)/python -m pytest -n 2 --dist=loadfile

test-slow: venv-dev
	$(BIN)/python -m pytest -m slow

test-matrix:
	.ci/matrix "$(COMPAT)" 3.9=2.15 3.11=2.15 3.12=2.19 3.13=2.21

test-newest:
	.ci/matrix "$(SMOKE)" 3.13=2.21

lint: venv-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: venv-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: venv-dev
	$(BIN)/python -m benchmarks.run

# The peers (Opacus, foolbox, PyTorch) live in an environment of their own.
bench-peers:
	.ci/venv $(VENV)-peers peers $(VERSIONS)

# The next long cells of all studies; stop it at any moment, it goes on later.
studies: venv-dev
	$(BIN)/python -m experiments.grid.queue --minutes=150 --nice

results: venv-dev
	$(BIN)/python -m experiments.grid.results

clean:
	rm -rf $(VENV) $(VENV)-* runs build *.egg-info
