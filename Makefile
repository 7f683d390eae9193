# Two commands matter: `make run` and `make test`. Both install what they need into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

export GRADIO_ANALYTICS_ENABLED := False

.PHONY: run test audit fuzz law proxy rehearsal vllm vllm-test served-test lint tools weights clean

run: $(VENV)/.run
	$(BIN)/python app.py

test: lint audit tools weights
	$(BIN)/pytest -m "not slow and not server" --cov

# Whether a known vulnerability is in what is installed; where the database can't be asked, it says so loudly.
audit: $(VENV)/.test
	$(BIN)/python .ci/audit.py

# Ten thousand cases of everything that comes from outside, another lot each time. `make test` has a few of them.
fuzz: $(VENV)/.test tools
	SPECVIZ_FUZZ=10000 $(BIN)/pytest tests/fuzz

# Tests on the real model need it in the cache; where it cannot be had they are skipped and say so.
weights: $(VENV)/.test
	-$(BIN)/python -m spec_viz models fetch

# The long proof: greedy identity over many prompts and the law of every lossless drafter on the real model.
law: $(VENV)/.test
	$(BIN)/python -m spec_viz law
	$(BIN)/pytest -m slow tests/law

# The page behind a real nginx, and classes over a real Redis.
proxy: $(VENV)/.test tools
	$(BIN)/pytest tests/integration/test_nginx.py tests/browser/test_proxy.py tests/browser/test_replicas.py tests/integration/test_replicas.py

# A Space on this machine: built as its builder does (5 GB, kept in the cache folder), started and visited as there.
rehearsal: $(VENV)/.test tools
	$(BIN)/python -m tests.space.rehearsal

# A real vLLM on the processor, in an environment of its own in the cache folder (about 4 GB), and tests against it.
vllm: $(VENV)/.run
	$(BIN)/python -m spec_viz serve-local install

vllm-test: vllm $(VENV)/.test
	$(BIN)/pytest -m server tests/server

# The short part of it: what is read of a server against what the server itself counts and logs.
served-test: vllm $(VENV)/.test
	$(BIN)/pytest -m server tests/server/test_served.py

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Tests drive the system's Chromium (Playwright's own download is not needed), a redis-server and an nginx of their own.
# With RUNLEVEL=1 the packages start no service.
tools:
	@missing=""; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || missing="chromium"; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	PATH="$$PATH:/usr/sbin" command -v nginx >/dev/null || missing="$$missing nginx-light"; \
	test -z "$$missing" || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	else \
	  echo "Missing, so the tests that need it will be skipped. Install with: sudo apt-get install $$missing"; \
	fi

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
