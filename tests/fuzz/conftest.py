"""How many cases each surface gets, and a line for each at the end that says how many it had."""

from __future__ import annotations

import pytest

from tests.fuzz.cases import RAN, WANTED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if RAN:
        asked = f"{WANTED} asked for" if WANTED else "a quick look; `make fuzz` asks for 10,000 each"
        terminalreporter.section(f"cases ran ({asked})")
        for surface, count in sorted(RAN.items()):
            terminalreporter.line(f"{count:8,}  {surface}")
