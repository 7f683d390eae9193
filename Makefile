# Two commands matter: `make run` and `make test`. Both install what they need into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

export GRADIO_ANALYTICS_ENABLED := False

.PHONY: run test law vllm vllm-test lint chromium weights clean

run: $(VENV)/.run
	$(BIN)/python app.py

test: lint chromium weights
	$(BIN)/pytest -m "not slow and not server" --cov

# Tests on the real model need it in the cache; where it cannot be had they are skipped and say so.
weights: $(VENV)/.test
	-$(BIN)/python -m spec_viz models fetch

# The long proof: greedy identity over many prompts and the law of every lossless drafter on the real model.
law: $(VENV)/.test
	$(BIN)/python -m spec_viz law
	$(BIN)/pytest -m slow tests/law

# A real vLLM on the processor, in an environment of its own in the cache folder (about 4 GB), and tests against it.
vllm: $(VENV)/.run
	$(BIN)/python -m spec_viz serve-local install

vllm-test: vllm $(VENV)/.test
	$(BIN)/pytest -m server tests/server

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Browser tests drive the system's Chromium: Playwright's own download is not needed.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	  else \
	    echo "Chromium is missing, so the browser tests will be skipped. Install it with: sudo apt-get install chromium"; \
	  fi; }

$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "SpecViz needs Python 3.11, 3.12 or 3.13: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: requirements.txt $(VENV)/.venv
	$(BIN)/pip install --quiet -r requirements.txt
	@touch $@

$(VENV)/.test: requirements-test.txt $(VENV)/.run
	$(BIN)/pip install --quiet -r requirements-test.txt
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage htmlcov
