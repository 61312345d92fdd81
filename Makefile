# Every target makes its own environment in .venv. Python 3.11 or newer is needed.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

.PHONY: help demo demo-chain demo-local test check unit integration bench bench-gate test-agents test-kill test-disk soak fuzz coverage docs-changelog clean

help:
	@echo "make demo         improve the retrieval example (under 5 minutes on 2 cores)"
	@echo "make demo-chain   four repairs that only pass together, without a chain and with one"
	@echo "make demo-local   prompts of a small model that runs here (275 MB, about 10 minutes)"
	@echo "make test         checks and all tests"
	@echo "make check        ruff, mypy, import contract"
	@echo "make bench        speed, measured as ratios in one run"
	@echo "make bench-gate   how often the gate is wrong, simulated (about 5 minutes)"
	@echo "make test-agents  install real coding agents, drive them with a scripted model"
	@echo "make test-kill    60 kills, stops, torn files, budgets (about 40 minutes)"
	@echo "make test-disk    full and read-only disks (needs the right to mount)"
	@echo "make soak         20,000 rollouts; memory and descriptors must stay flat"
	@echo "make fuzz         property tests with 3,000 examples each (about 10 minutes)"
	@echo "make clean        remove the environment and what runs left"

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { \
	  echo "no $(PYTHON) found: type make PYTHON=python3.12 (3.11 or newer)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,search,sandbox]'
	touch $@

$(VENV)/.example: $(STAMP) example_projects/retrieval/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  -r example_projects/retrieval/requirements.txt
	touch $@

demo: $(VENV)/.example
	cd example_projects/retrieval && \
	  $(abspath $(BIN))/pytest --evolve --budget-rollouts=$(DEMO_ROLLOUTS) -n $(WORKERS)
	@echo "from here, next: cd example_projects/retrieval && $(abspath $(BIN))/pytest-evo apply last"

DEMO_ROLLOUTS ?= 5000

# the same four edits, without a chain (no gain: exit 1 is what is wanted) and with one
demo-chain: $(STAMP)
	cd example_projects/skill && { $(abspath $(BIN))/pytest --evolve \
	  --evo-chain-depth=0 --evo-require-gain --budget-rollouts=600 -n $(WORKERS); \
	  test $$? -eq 1; }
	cd example_projects/skill && $(abspath $(BIN))/pytest --evolve \
	  --evo-require-gain --budget-rollouts=600 -n $(WORKERS)
	@echo "without a chain: no gain. With one: all of it. See example_projects/skill/README.md"

$(VENV)/.local-model: $(STAMP) example_projects/local_model/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  -r example_projects/local_model/requirements.txt
	touch $@

demo-local: $(VENV)/.local-model
	cd example_projects/local_model && for target in $(LOCAL_TARGETS); do \
	  $(abspath $(BIN))/pytest --evolve --evo-target=$$target -n $(WORKERS) \
	    --budget-rollouts=$(LOCAL_ROLLOUTS) --evo-reports=evo-reports/$$target || exit; \
	done
	@cd example_projects/local_model && for target in $(LOCAL_TARGETS); do \
	  echo "$$target: $$(grep -E -m 1 '^(\*\*start|No candidate|The best)' \
	    evo-reports/$$target/summary.md | tr -d '*')"; \
	done

LOCAL_ROLLOUTS ?= 1200
LOCAL_TARGETS ?= topics extraction

test: $(VENV)/.example check
	$(BIN)/python -m pytest -n $(WORKERS) --dist=worksteal -q -m 'not agents' tests

check: $(STAMP)
	$(BIN)/ruff format --check pytest_evo tests
	$(BIN)/ruff check pytest_evo tests example_projects
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(STAMP)
	$(BIN)/python -m pytest -q tests/unit tests/contract tests/architecture

integration: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist=worksteal -q tests/integration

coverage: $(VENV)/.example
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -m 'not agents' tests
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --skip-covered --fail-under=85

bench: $(VENV)/.example
	$(BIN)/python tests/benchmarks/bench_rollouts.py
	$(BIN)/python tests/benchmarks/bench_plugin_load.py
	$(BIN)/python tests/benchmarks/bench_engine.py
	$(BIN)/python tests/benchmarks/bench_fresh.py

bench-gate: $(STAMP)
	$(BIN)/python tests/benchmarks/bench_gate.py --trials $(TRIALS) --seeds $(SEEDS)

TRIALS ?= 400
SEEDS ?= 1,2,3

KILLS ?= 60
SEED ?= 1
ROLLOUTS ?= 20000

# Where coding agents are installed (about 2 GB), and which: claude codex opencode pi qwen
# mini aider sandbox; without names all but aider.
PYTEST_EVO_AGENTS ?= $(abspath $(VENV))/agents
AGENTS ?=

test-agents: $(STAMP)
	$(BIN)/python tests/agents/install_agents.py $(PYTEST_EVO_AGENTS) $(AGENTS)
	PYTEST_EVO_AGENTS=$(PYTEST_EVO_AGENTS) \
	  $(BIN)/python -m pytest -q -rPs -m agents tests/agents

test-kill: $(STAMP)
	$(BIN)/python tests/proofs/kill_harness.py --kills $(KILLS) --seed $(SEED)
	$(BIN)/python tests/proofs/stop_harness.py --seed $(SEED)

test-disk: $(STAMP)
	$(BIN)/python tests/proofs/full_disk.py

soak: $(STAMP)
	$(BIN)/python tests/proofs/soak.py --rollouts $(ROLLOUTS)

fuzz: $(STAMP)
	$(BIN)/python tests/proofs/fuzz.py --examples $(EXAMPLES) --seed $(SEED)

EXAMPLES ?= 3000

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf example_projects/*/.evo example_projects/*/evo-reports example_projects/*/.cache
