# Two commands matter: `make demo` shows the system at work, `make test` passes the tests.
# Each target makes .venv when it is missing. Outside this folder lie only the agents' command lines, the published
# examples and the Kafka broker that tests use (in the user's cache) and, on Debian as root, system packages that tests
# need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := $(VENV)/.compiled-tests
# Most tests wait for a disk, a process or a server: two more at once than two cores.
TEST_WORKERS ?= 4
PYTEST := $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal
COMPONENTS := system-packages agent-clis axe-core api-examples kafka-broker
# Tests wait for the disk many thousand times. `make test` works in memory where 4 GB are free there, and keeps the
# folders of failed tests only; `make walks`, and pytest by hand, work on the disk.
MEMORY := $(shell test "$$(df -Pk /dev/shm 2>/dev/null | awk 'END {print $$4}')" -gt 4000000 2>/dev/null && echo /dev/shm)
IN_MEMORY := $(if $(MEMORY),TMPDIR=$(MEMORY))
KEEP_FAILED := -o tmp_path_retention_policy=failed -o tmp_path_retention_count=1
PEERS := $(patsubst requirements/bench/%.txt,%,$(wildcard requirements/bench/*.txt))
GO_PEERS := $(patsubst bench/peers/%/go.mod,%,$(wildcard bench/peers/*/go.mod))

# Tests start thousands of processes. Each would compile the whole package for itself.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test quick-tests walks components $(COMPONENTS) coverage chaos certificate bench docs release lint \
	rules types fmt requirements clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(READY): requirements/dev.txt pyproject.toml
	@scripts/venv $(PYTHON) $(VENV)
	@echo "installing into $(VENV) (once)"
	@scripts/install $(BIN)/python requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null || true  # on all cores
	@touch $@

# Each peer of the benchmark has an environment of its own: they need versions that we, or other peers, cannot have. A
# peer that needs a newer Python than there is here is not measured.
PYTHON_OF_oban := 3.12
.tools/bench/%/.ready: requirements/bench/%.txt | $(READY)
	@python=$(BIN)/python; \
	if [ -n "$(PYTHON_OF_$*)" ]; then python=$$($(BIN)/python -m scripts.pythons $(PYTHON_OF_$*)) || exit 0; fi; \
	test -x $(@D)/bin/python || $$python -m venv $(@D); \
	echo "installing $* for the benchmark into $(@D) (once)"; \
	scripts/install $(@D)/bin/python $< && touch $@

# Those in Go are programs of ours. Without Go, or when one cannot be built, the benchmark goes on: it is not measured.
.tools/bench/%/bench: bench/peers/%/main.go bench/peers/%/go.mod bench/peers/%/go.sum
	@if ! command -v go >/dev/null; then echo "there is no go: $* is not measured"; else \
		echo "building $* for the benchmark into $(@D) (once; Temporal takes a quarter of an hour)"; \
		go build -C $(<D) -buildvcs=false -o $(abspath $@) . || echo "$* cannot be built: it is not measured"; fi

demo: $(READY)  ## See the system at work: the king is killed half way, nothing is lost
	@$(BIN)/python -m kingdom demo

test:  ## Lint, types, layers and the tests, but for those that take long
	@$(MAKE) --no-print-directory -j 6 components types quick-tests

# The broker is not among them: its jars take longest, and the tests that need it wait for it.
quick-tests: $(COMPILED) rules $(filter-out kafka-broker,$(COMPONENTS))
	$(IN_MEMORY) $(PYTEST) -m "not walk" $(KEEP_FAILED)

walks: $(READY) components  ## Tests that take long, crash walks, short kill campaigns, long random searches
	KINGDOM_SEARCH_FACTOR=10 $(PYTEST) -m "walk or search"

components: $(COMPONENTS)  # what tests need that pip does not bring

$(COMPONENTS):
	@scripts/$@ || test $$? = 3  # 3: it cannot be had here; its tests are skipped and say so

axe-core api-examples: | agent-clis  # which installs npm

$(COMPILED): $(READY) $(shell find tests -name 'test_*.py')  # otherwise each worker does it for itself
	@found=$$($(BIN)/python -m pytest --quiet --collect-only $(filter tests/%,$?) 2>&1) || { echo "$$found"; exit 1; }
	@touch $@

coverage: $(READY)  ## Every test but the walks, with coverage counted; some minutes longer
	$(PYTEST) -m "not walk" --cov --cov-report term:skip-covered

chaos: $(READY)  ## The full crash campaign (500 kills); CHAOS_SEED=N repeats a run
	@scripts/system-packages
	$(BIN)/python -m tests.chaos $(ARGS)

certificate: $(READY) components  ## Walks, campaigns and escapes of a commit, on one page (artifacts/certificate.md); about two hours
	$(BIN)/python -m tests.certificate $(ARGS)

bench: $(READY) $(PEERS:%=.tools/bench/%/.ready) $(GO_PEERS:%=.tools/bench/%/bench)  ## Measure beside the peers; results as a table and in artifacts/bench.json
	$(BIN)/python -m bench $(ARGS)

docs: $(READY)  ## Build the documentation as a static site, into artifacts/docs; `kingdom docs` opens it
	$(BIN)/python -m scripts.docs_site $(ARGS)

release: $(READY)  ## Build and check what would be published, into dist; ARGS=--rehearse before its day
	$(BIN)/python scripts/release $(ARGS)

lint: rules types  ## Formatting, lint rules, types, and the contracts between layers

types: $(READY)
	$(BIN)/mypy

rules: $(READY)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/import-circles

fmt: $(READY)  ## Format the code and mend what the linter can
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format --quiet .

requirements: $(READY)  ## Compile the pinned requirements again
	$(BIN)/uv pip compile -q --no-emit-index-url --no-annotate --no-header --universal --python-version 3.11 \
		--extra all --extra testing --upgrade pyproject.toml requirements/dev.in -o requirements/dev.txt
	@$(foreach peer,$(PEERS),$(BIN)/uv pip compile -q --no-emit-index-url --no-annotate --no-header --universal \
		--python-version $(or $(PYTHON_OF_$(peer)),3.11) --upgrade requirements/bench/$(peer).in \
		-o requirements/bench/$(peer).txt &&) true
	$(BIN)/uv pip compile -q --no-emit-index-url --no-annotate --no-header --universal --python-version 3.11 \
		--upgrade requirements/release.in -o requirements/release.txt
	$(BIN)/uv pip compile -q --no-emit-index-url --no-annotate --no-header --universal --python-version 3.11 \
		--upgrade requirements/docs.in -o requirements/docs.txt

clean:  ## Remove what the other targets made
	rm -rf $(VENV) .tools/docs .tools/bench artifacts dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*
