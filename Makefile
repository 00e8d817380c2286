# Everything runs from a fresh clone with Python 3.11 or newer: `make test` makes .venv by itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
RUNS   := $(VENV)/.runs
LOCK   := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.11
PROTOC := $(BIN)/python -m grpc_tools.protoc -I proto
SLOW   := $(BIN)/pytest --hypothesis-profile=explore --durations=20

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow mutants lint generated format bench faults proto vectors containers lock release clean

help:           ## show this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## make .venv with SecFC and everything its tests need

# Two steps, so that `make demo` need not wait for the tools of the tests. What is installed is in deploy/locks, with hashes.
$(RUNS): deploy/locks/image.txt pyproject.toml common/secfc/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "SecFC needs Python 3.11 or newer; run: make setup PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --only-binary :all: -r deploy/locks/image.txt
	$(BIN)/pip install --quiet --require-hashes -r deploy/locks/build.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -c 'from secfc.coding import kernels; kernels.warm()' # compiled once, cached on disk
	@touch $@

$(STAMP): $(RUNS) deploy/locks/dev.txt
	$(BIN)/pip install --quiet --require-hashes -r deploy/locks/dev.txt
	@touch $@

demo: $(RUNS)   ## cluster a seeded mixture with a local federation and show the result
	$(BIN)/secfc demo $(ARGS)

test: setup     ## the quick suite (under two minutes)
	$(BIN)/pytest -m 'not slow' -n 2 $(ARGS)

test-slow: setup ## the slow tests: many processes, restarts, network namespaces, large jobs
	$(SLOW) -m 'slow and not alone' -n 2 $(ARGS) || [ $$? -eq 5 ] # 5: ARGS choose none of them
	$(SLOW) -m 'slow and alone' $(ARGS) || [ $$? -eq 5 ]

mutants: setup  ## break security-critical lines one by one, and see that the named tests notice
	$(BIN)/python -m tests.mutants $(ARGS)

lint: setup     ## ruff, mypy --strict, no dead code, and generated files up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy deploy/compose/*.py
	$(BIN)/vulture
	@$(MAKE) --no-print-directory generated

generated: setup ## see that common/secfc/v1 is what proto/ gives
	@rm -rf build/proto && mkdir -p build/proto && $(PROTOC) --python_out=build/proto --pyi_out=build/proto --grpc_python_out=build/proto proto/secfc/v1/secfc.proto
	@diff -r -x __init__.py -x __pycache__ build/proto/secfc/v1 common/secfc/v1 || { echo "common/secfc/v1 is not what proto/ gives; run: make proto"; exit 1; }

format: setup   ## let ruff format and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup    ## speed against scikit-learn, in one run on this machine
	$(BIN)/python -m experiments speed $(ARGS)

faults: setup   ## the fault matrix with real processes; writes the table of docs/reliability.md
	$(BIN)/python -m tests.faults $(ARGS)

proto: setup    ## generate common/secfc/v1 from proto/
	$(PROTOC) --python_out=common --pyi_out=common --grpc_python_out=common proto/secfc/v1/secfc.proto

vectors: setup  ## write tests/vectors again from their generator
	$(BIN)/python -m tests.vectors.generate

containers: setup ## integration tests across containers (starts Docker where it does not run; on Debian, as root, installs it)
	SECFC_CONTAINERS=1 $(BIN)/pytest tests/containers $(ARGS)

lock: setup     ## choose the newest versions that pyproject.toml allows, and write them with their hashes
	$(LOCK) --upgrade --extra web pyproject.toml -o deploy/locks/image.txt
	$(LOCK) --upgrade --extra web --extra dask -c deploy/locks/image.txt pyproject.toml -o deploy/locks/dask.txt
	$(LOCK) --upgrade --extra dev -c deploy/locks/image.txt pyproject.toml -o deploy/locks/dev.txt
	echo hatchling | $(LOCK) -c deploy/locks/dev.txt - -o deploy/locks/build.txt

release: setup  ## wheel, source distribution and a bill of materials (CycloneDX), in dist/
	rm -rf dist && $(BIN)/python -m hatchling build
	$(BIN)/cyclonedx-py requirements deploy/locks/image.txt --pyproject pyproject.toml --output-reproducible --of JSON -o dist/sbom.cdx.json
	cd dist && sha256sum * > SHA256SUMS && cat SHA256SUMS

clean:          ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
