# Every target does all the set-up that it needs: `make demo` and `make test` work on a fresh clone.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
export KERAS_BACKEND := jax
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help demo demo-digits test lint unit pairs parity conformance suggest selftest faults fuzz guards real bench bench-wavelets bench-sampling bench-precision clean

help:
	@echo "make demo    train a small model in PyTorch, convert it, verify the port"
	@echo "make demo-digits  the same with a U-Net of diffusers that draws digits"
	@echo "make test    lint, types, unit and parity tests"
	@echo "make parity  the full numeric-equivalence suite"
	@echo "make conformance  PyTorch's layers against Keras's, pair by pair, with their mutants"
	@echo "make selftest  known faults into correct ports: what verify finds"
	@echo "make fuzz    mutants of good files through every reader, SECONDS=60 in all, or COUNT=20000 of them"
	@echo "make guards  every refusal deleted, one at a time: which ones does no test notice?"
	@echo "make faults  kills, races, full and broken disks under every verb that writes"
	@echo "make real    weights that public packages ship: read, converted, verified against the packages' own code"
	@echo "make bench   conversion and verification at the released size, against plain torch"
	@echo "make bench-wavelets  the wavelet transform against PyWavelets, jaxwt and ptwt"
	@echo "make bench-sampling  sampling at the released size against PyTorch"
	@echo "make bench-precision MODEL=FILE  what float64, float32 and bfloat16 cost in time and in accuracy"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("wdport needs Python 3.11 or newer; run make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "setting up .venv (once; some minutes)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

demo: $(READY)
	@$(BIN)/python examples/train_reference.py demo
	@echo
	@echo '$$ wdport convert demo/ecg-seq24-db2.ckpt --config demo/ecg-seq24-db2.config.yaml --norm-stats demo/ecg-seq24-db2.norm.json --force'
	@$(BIN)/wdport convert demo/ecg-seq24-db2.ckpt --config demo/ecg-seq24-db2.config.yaml --norm-stats demo/ecg-seq24-db2.norm.json --force
	@echo
	@echo '$$ wdport verify demo/ecg-seq24-db2.ckpt demo/ecg-seq24-db2.keras'
	@$(BIN)/wdport verify demo/ecg-seq24-db2.ckpt demo/ecg-seq24-db2.keras --json demo/ecg-seq24-db2.parity.json
	@echo
	@echo '$$ wdport sample demo/ecg-seq24-db2.keras -n 64 --sampler ddim --steps 50 --plot demo/samples.png --force'
	@$(BIN)/wdport sample demo/ecg-seq24-db2.keras -n 64 --sampler ddim --steps 50 --plot demo/samples.png --force
	@echo
	@echo 'files: demo/ecg-seq24-db2.ckpt (PyTorch), demo/ecg-seq24-db2.keras and demo/ecg-seq24-db2.keras.wdport.json (Keras, manifest), demo/ecg-seq24-db2.parity.json (every comparison), demo/ecg-seq24-db2.samples.npz and demo/samples.png (64 new series)'

# Train a small U-Net of diffusers on scikit-learn's digits, convert it, verify it, draw digits of every class.
demo-digits: $(READY)
	@$(BIN)/python examples/digits/train.py demo/digits
	@echo
	@echo '$$ wdport convert demo/digits -o demo/digits.keras --force'
	@$(BIN)/wdport convert demo/digits -o demo/digits.keras --force
	@echo
	@echo '$$ wdport verify demo/digits demo/digits.keras'
	@$(BIN)/wdport verify demo/digits demo/digits.keras
	@echo
	@echo '$$ wdport sample demo/digits.keras -n 100 --label 0,1,2,3,4,5,6,7,8,9 --sampler ddim --steps 20 -o demo/digits.npz --plot demo/digits.png --animate demo/digits.gif --force'
	@$(BIN)/wdport sample demo/digits.keras -n 100 --label 0,1,2,3,4,5,6,7,8,9 --sampler ddim --steps 20 -o demo/digits.npz --plot demo/digits.png --animate demo/digits.gif --force

test: lint unit pairs

lint: $(READY)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache | tail -5

unit: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not full'

# The pytest plugin on small ports, one test per gate and layer.
pairs: $(READY)
	@$(BIN)/python -m pytest -p no:xdist parity_tests/test_pairs.py --wdport-policy parity.toml \
		$$($(BIN)/python -m parity_tests.pairs build/parity)

parity: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist worksteal parity_tests
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m full --ignore tests/faults tests
	@$(BIN)/python -m pytest -p no:xdist parity_tests/test_pairs.py --wdport-policy parity.toml \
		$$($(BIN)/python -m parity_tests.pairs build/parity --recorded)

# Every pair of layers and every mutant of it, with the releases that are installed.
conformance: $(READY)
	@$(BIN)/python -m parity_tests.conformance

# What map suggest finds on pairs of models under three namings, and on twins with seeded faults.
suggest: $(READY)
	@$(BIN)/python -m parity_tests.suggest
	@$(BIN)/python -m parity_tests.suggest.faults

selftest: $(READY)
	@mkdir -p build && $(BIN)/wdport selftest --rules --markdown build/selftest.md

SECONDS ?= 60
COUNT ?=
fuzz: $(READY)
	@$(BIN)/python -m tests.fuzz $(if $(COUNT),--count $(COUNT),--seconds $(SECONDS))

guards: $(READY)
	@$(BIN)/python -m tests.guards

# 1,000 signals, 300 races, sizes and refused calls; full disks and kills of whole commands.
faults: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist worksteal -rP tests/faults

# Public packages with trained weights, in an environment of their own. Their dependencies are left out: what their code
# imports and their networks do not use has stand-ins, see tests/real/references.py.
REAL := .venv-real/bin/python
PACKAGES := torchcrepe==0.0.24 facenet-pytorch==2.6.0 Resemblyzer==0.1.4 attacut==1.0.6 silero-vad==6.2.3

.venv-real/.ready: pyproject.toml constraints.txt Makefile
	@echo "setting up .venv-real (once; some minutes)"
	@$(PYTHON) -m venv .venv-real
	@$(REAL) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch]' pytest hypothesis
	@$(REAL) -m pip install --quiet --disable-pip-version-check --no-deps $(PACKAGES)
	@touch $@

real: .venv-real/.ready
	@WDPORT_REAL=$$($(REAL) -c 'import sysconfig; print(sysconfig.get_path("purelib"))') $(REAL) -m pytest tests/real

bench: $(READY)
	@$(BIN)/python bench/full_size.py

bench-wavelets: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps jaxwt ptwt
	@$(BIN)/python bench/wavelets.py

bench-sampling: $(READY)
	@$(BIN)/python bench/sampling.py

bench-precision: $(READY)
	@$(BIN)/python bench/precision.py $(MODEL)

clean:
	rm -rf .venv .venv-real .jax_cache demo build dist
