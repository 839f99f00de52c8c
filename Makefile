# Two commands set everything up on a fresh machine: make demo, make test.
PYTHON ?= $(shell command -v python3.11 || command -v python3.10 || command -v python3.9 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := runs/demo

export TF_CPP_MIN_LOG_LEVEL ?= 3
# Off by default on processors without AVX-512, where it is 2 to 3 times faster.
export TF_ENABLE_ONEDNN_OPTS ?= 1

.PHONY: demo test test-slow lint format bench bench-peers studies results clean

$(STAMP): setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@

demo: $(STAMP)
	rm -rf $(DEMO)
	$(BIN)/python -m experiments.train --dataset=mnist_5k --preset=mnist_5k --config.seed=0 --run_dir=$(DEMO)
	$(BIN)/python -m experiments.evaluate --run_dir=$(DEMO) --num_certified=100
	$(BIN)/python -m experiments.infer --run_dir=$(DEMO) --attack_eps=0.1
	$(BIN)/python -m experiments.audit --run_dir=$(DEMO) --kind=planted --seed=0
	$(BIN)/python -m experiments.audit_certificates --run_dir=$(DEMO) --num=20
	$(BIN)/python -m experiments.report --run_dir=$(DEMO)

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist=loadfile

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks.run

# The peers (Opacus, foolbox, PyTorch) live in an environment of their own.
bench-peers:
	$(PYTHON) -m venv $(VENV)-peers
	$(VENV)-peers/bin/python -m pip install --quiet torch==2.13.0
	$(VENV)-peers/bin/python -m pip install --quiet opacus==1.6.0 foolbox==3.3.4

# The next long cells of all studies; stop it at any moment, it goes on later.
studies: $(STAMP)
	$(BIN)/python -m experiments.grid.queue --minutes=150 --nice

results: $(STAMP)
	$(BIN)/python -m experiments.grid.results

clean:
	rm -rf $(VENV) $(VENV)-peers runs build *.egg-info
