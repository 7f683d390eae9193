"""Tests that were to ask a real server and asked none say so where nobody can overlook it."""

from __future__ import annotations

import pytest

from spec_viz.serving.local import place, program

LOUD = f"""\
NO REAL vLLM SERVER WAS ASKED: there is no whole environment in {place()}.
`make vllm` builds it (Linux on x86-64, about 4 GB) and says why where it cannot; nothing here was compared with vLLM.
"""


def was_asked_for(config: pytest.Config) -> bool:
    """Whether this run was started for the sake of these tests, as `make vllm-test` does."""
    return bool(config.getoption("markexpr").strip() == "server")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if program() is None and was_asked_for(config):
        terminalreporter.section("no real server", sep="!", red=True, bold=True)
        terminalreporter.write(LOUD, red=True, bold=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if program() is None and was_asked_for(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
