# Every target sets up .venv by itself; nothing else is needed but Python 3.11 to 3.13 and make.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SCALE ?= quick

.PHONY: help study evidence test coverage lab bench chaos lint clean

help:
	@echo "make study     run the study on embedded data (SCALE=smoke|quick|laptop|paper; default quick)"
	@echo "make evidence  fill the paper's grid on the real data, what matters first (SCALE=laptop); goes on where it was"
	@echo "make test      run the tests"
	@echo "make coverage  run the tests and show which lines and branches of lff/ they miss"
	@echo "make lab       open the notebooks in JupyterLab"
	@echo "make bench     measure speed (ONLY=training|aggregation|checkpoint for one part)"
	@echo "make chaos     kill, interrupt and starve runs on purpose (KILLS=60, SEED=random)"
	@echo "make lint      check style"
	@echo "make clean     remove .venv and caches"

study: $(READY)
	@echo "Running the study at scale '$(SCALE)' ..."
	@$(BIN)/lff study --scale $(SCALE)

# First the cells that tell most, then the rest of MNIST, the rest of all; what is there is drawn even if
# some run failed; last, two more seeds of MNIST, for the tables of 07 that look at every seed (04 to 06
# show them with `--seeds 0 1 2 -p compute=false`, in figures/laptop/seeds-0-1-2).
MNIST := mnist-iid mnist-mild mnist-extreme
define DRAW
-@$(BIN)/lff study --scale $(SCALE)
@cp study/$(SCALE)/07_paper_vs_ours.ipynb figures/$(SCALE)/
@$(BIN)/python docs/refresh_readme.py
endef
evidence: SCALE := laptop
evidence: $(READY)
	-@$(BIN)/lff sweep --scale $(SCALE) --defenses fedavg lfighter median multi_krum --ratios 0 30 50
	-@$(BIN)/lff sweep --scale $(SCALE) --benchmarks $(MNIST)
	-@$(BIN)/lff sweep --scale $(SCALE)
	$(DRAW)
	-@$(BIN)/lff sweep --scale $(SCALE) --benchmarks $(MNIST) --seeds 1 2
	$(DRAW)

test: $(READY)
	@echo "Running the tests ..."
	@$(BIN)/python -m pytest tests notebooks --nbval-lax --nbval-current-env

coverage: $(READY)
	@$(BIN)/python -m pytest tests -n 2 --cov

lab: $(READY)
	@$(BIN)/jupyter lab notebooks

bench: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[bench]'
	@echo "Measuring (some minutes; best on a machine that does nothing else) ..."
	@$(BIN)/python -m benchmarks $(ONLY)

chaos: $(READY)
	@$(BIN)/python -m chaos --kills $(or $(KILLS),60) $(if $(SEED),--seed $(SEED))

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

clean:
	rm -rf $(VENV) .coverage* .pytest_cache .ruff_cache .hypothesis

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
