# Every target sets up .venv by itself; nothing else is needed but Python 3.11 to 3.13 and make.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FLOWER := .venv-flower
FLOWER_READY := $(FLOWER)/.ready
SCALE ?= quick

.PHONY: help study figures evidence verify test flower coverage lab speed chaos lint clean

help:
	@echo "make study     run the study on embedded data (SCALE=smoke|quick|laptop|paper; default quick)"
	@echo "make figures   draw every table and figure of the paper from the committed records of the real data"
	@echo "make evidence  run the evidence on the real data, what tells most first; goes on where it was"
	@echo "make verify    play the first rounds of a handful of committed records again, and compare"
	@echo "make test      run the tests"
	@echo "make flower    test lff.flower, in an environment of its own (1.9 GB)"
	@echo "make coverage  run the tests and show which lines and branches of lff/ they miss"
	@echo "make lab       open the notebooks in JupyterLab"
	@echo "make speed     measure speed (ONLY=goals|training|aggregation|checkpoint|growth|flower for one part)"
	@echo "make chaos     kill, interrupt and starve runs on purpose (KILLS=60, SEED=random)"
	@echo "make lint      check style and types"
	@echo "make clean     remove .venv and caches"

study: $(READY)
	@echo "Running the study at scale '$(SCALE)' ..."
	@$(BIN)/lff study --scale $(SCALE)

# Into figures/laptop and study/laptop; nothing is run.
figures: $(READY)
	@echo "Drawing from results/laptop ..."
	@$(BIN)/lff study --scale laptop -p compute=false
	@cp study/laptop/*.ipynb figures/laptop/
	@$(BIN)/python -m lff.study.readme

# The evidence in the order of what each stage tells; what is recorded is not run again. Seeds from 100
# on judge the primary claims (docs/decisions.md).
SWEEP := $(BIN)/lff sweep --scale laptop
PAPER := fedavg median repeated_median trimmed_mean multi_krum foolsgold lfighter
OTHERS := imdb cifar10-iid cifar10-mild mnist-extreme
TEN := $(shell seq 100 109)
TWENTY := $(shell seq 100 119)
FOOLSGOLD := $(BIN)/lff sweep --scale paper --rounds 12 --benchmarks mnist-iid \
	--defenses foolsgold --hooks similarities
evidence: $(READY)
	-@$(SWEEP) --benchmarks mnist-mild --defenses fedavg --ratios 0 --seeds $(TWENTY)
	-@$(FOOLSGOLD) --distribution iid-released --ratios 40 --seeds 0 1 2 3 4 5
	-@$(FOOLSGOLD) --distribution iid-released --ratios 0 --seeds 0 1 2
	-@$(FOOLSGOLD) --ratios 0 40 --seeds 0 1 2
	-@$(SWEEP) --benchmarks mnist-mild --defenses lfighter --ratios 40 --seeds $(TWENTY)
	-@$(SWEEP) --benchmarks mnist-mild --defenses fedavg oracle --ratios 40 --seeds $(TEN)
	-@$(SWEEP) --benchmarks mnist-mild --defenses labelaudit --ratios 40 --seeds $(TWENTY)
	-@$(SWEEP) --benchmarks mnist-mild --defenses lfighter labelaudit --ratios 50 --seeds $(TWENTY)
	-@$(SWEEP) --benchmarks mnist-mild --defenses lfighter labelaudit --ratios 0 --seeds $(TEN)
	-@$(SWEEP) --benchmarks mnist-iid --defenses fedavg --ratios 0 --seeds $(TEN)
	-@$(SWEEP) --benchmarks mnist-iid --defenses lfighter --ratios 40 --seeds $(TEN)
	-@$(SWEEP) --benchmarks mnist-iid --defenses labelaudit --ratios 0 40 --seeds 100 101 102 103 104
	-@$(SWEEP) --benchmarks $(OTHERS) --defenses lfighter labelaudit --ratios 40 --seeds 100 101
	-@$(SWEEP) --benchmarks $(OTHERS) --defenses fedavg --ratios 0 --seeds 100 101
	-@$(BIN)/lff sweep --scale paper --rounds 40 --benchmarks mnist-mild --defenses lfighter \
		--ratios 40 --seeds $(TEN)
	-@$(SWEEP) --benchmarks mnist-mild mnist-iid --defenses $(PAPER) oracle
	-@$(SWEEP) --benchmarks imdb --defenses $(PAPER) oracle --ratios 0 20 40 50
	-@$(SWEEP) --benchmarks cifar10-iid cifar10-mild --ratios 0 40 \
		--defenses fedavg lfighter foolsgold multi_krum median
	-@$(SWEEP) --benchmarks cifar10-iid cifar10-mild --defenses oracle --ratios 40
	-@$(SWEEP) --benchmarks mnist-extreme --defenses $(PAPER) oracle --ratios 0 40 50
	-@$(BIN)/lff study 00_tour 03_gradients 04_pca 11_attacks_and_defenses 12_plain_mean --scale laptop
	-@$(BIN)/lff study --scale laptop
	@cp study/laptop/*.ipynb figures/laptop/
	@$(BIN)/python -m lff.study.readme

verify: $(READY)
	@echo "Playing two rounds of four records again (about two minutes) ..."
	@$(BIN)/lff verify --scale laptop

test: $(READY)
	@echo "Running the tests ..."
	@$(BIN)/python -m pytest tests notebooks --nbval-lax --nbval-current-env -n 2 --dist loadfile

flower: $(FLOWER_READY)
	@echo "Running the tests that need Flower ..."
	@$(FLOWER)/bin/python -m pytest tests/flower $(if $(ONLY),-m "$(ONLY)")

coverage: $(READY)
	@$(BIN)/python -m pytest tests -n 2 --cov

lab: $(READY)
	@$(BIN)/jupyter lab notebooks

speed: $(READY) $(if $(filter flower,$(or $(ONLY),flower)),$(FLOWER_READY))
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[speed]'
	@echo "Measuring (some minutes; best on a machine that does nothing else) ..."
	@$(BIN)/python -m speed $(ONLY)

chaos: $(READY)
	@$(BIN)/python tests/chaos.py --kills $(or $(KILLS),60) $(if $(SEED),--seed $(SEED))

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

clean:
	rm -rf $(VENV) $(FLOWER) .coverage* .pytest_cache .ruff_cache .hypothesis

# The first interpreter that really runs: a name on the PATH alone may be a version manager's shim.
$(READY): pyproject.toml constraints.txt
	@set -e; for python in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
		if $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; \
		then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then echo "No Python 3.11 to 3.13 found; set PYTHON=/path/to/python"; exit 1; fi; \
	echo "Setting up $(VENV) with $$($$found --version) (once; some minutes) ..."; \
	$$found -m venv $(VENV); \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[notebooks,test,dev]'; \
	touch $(READY); echo "Set up."

$(FLOWER_READY): pyproject.toml constraints-flower.txt | $(READY)
	@echo "Setting up $(FLOWER) (once; some minutes) ..."
	@$(BIN)/python -m venv $(FLOWER)
	@$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
		--constraint constraints-flower.txt --editable '.[flower]' 'flwr[simulation]' pytest
	@touch $@
