"""Limits from the environment, who a visitor is, and the turnstile: no server, no clock."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Scope

from spec_viz.ui.bucket import REMEMBERED, Buckets
from spec_viz.ui.limits import Limits, SettingError, limits_of
from spec_viz.ui.turnstile import BURST, EACH_SECOND, Turnstile
from spec_viz.ui.visitor import Visitor, network, visitor_of

NAME = "0123456789abcdef" * 2


# ---------------------------------------------------------------- limits


def test_without_variables_the_limits_are_the_usual_ones() -> None:
    assert limits_of({}) == limits_of({"SPECVIZ_LINE": " "}) == Limits()


def test_an_operator_sets_each_limit_by_its_variable() -> None:
    found = limits_of(
        {
            "SPECVIZ_MAX_NEW_TOKENS": "96",
            "SPECVIZ_PROMPT_CHARS": "2000",
            "SPECVIZ_SECONDS": "45",
            "SPECVIZ_LINE": "20",
            "SPECVIZ_LINE_ADDRESS": "4",
            "SPECVIZ_LINE_BROWSER": "1",
            "SPECVIZ_SHARED_MEMORY": "1",
        }
    )
    assert found == Limits(96, 2000, 45, 20, 4, 1, shared_memory=True)


@pytest.mark.parametrize("value", ["abc", "-1", "0", "1.5", "1e3", "9" * 400, "٣", "257", "<b>"])
def test_a_variable_that_sets_no_limit_is_told_to_the_operator_by_its_name(value: str) -> None:
    with pytest.raises(SettingError, match=r"^SPECVIZ_LINE must be a whole number from 1 to 256") as caught:
        limits_of({"SPECVIZ_LINE": value})
    assert len(str(caught.value)) < 150


# ---------------------------------------------------------------- visitors


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("::1", "::/64"),
        ("testclient", "testclient"),
        ("x" * 1000, "x" * 64),
        ("", ""),
    ],
)
def test_an_address_is_what_one_household_holds(host: str, told: str) -> None:
    assert network(host) == told


@given(st.ip_addresses(v=6), st.integers(0, 2**64 - 1))
def test_no_other_address_of_the_same_network_is_another_visitor(address: Any, rest: int) -> None:
    if address.ipv4_mapped is None and (other := type(address)(int(address) >> 64 << 64 | rest)).ipv4_mapped is None:
        assert network(str(address)) == network(str(other))


@pytest.mark.parametrize("browser", [None, 7, "", "abc", NAME.upper(), NAME + "0", ["a"], {"a": 1}, "\ud800" * 32])
def test_a_browser_that_gives_no_name_of_ours_is_nameless(browser: Any) -> None:
    assert visitor_of("203.0.113.9", browser, "tab") == Visitor("203.0.113.9", "", "tab")
    assert visitor_of(None, NAME, None) == Visitor("", NAME, "")


# ---------------------------------------------------------------- the turnstile


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def _answer(scope: Scope, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def turnstile(clock: Clock) -> Turnstile:
    return Turnstile(_answer, clock)


def asked(turnstile: Turnstile, host: str = "203.0.113.9", path: str = "/gradio_api/queue/join", **more: Any) -> int:
    """The status of one request."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    asyncio.run(turnstile({"type": "http", "method": "POST", "path": path, "client": (host, 1), **more}, receive, send))
    return int(sent[0]["status"])


def test_a_flood_of_runs_is_stopped_and_everybody_else_gets_through() -> None:
    gate = turnstile(Clock())
    statuses = [asked(gate) for _ in range(BURST + 50)]
    assert statuses == [200] * BURST + [429] * 50
    assert asked(gate, "203.0.113.10") == 200
    assert asked(gate, path="/folder/gradio_api/queue/join/") == 429
    # Nothing but runs is counted.
    assert asked(gate, path="/gradio_api/queue/data") == asked(gate, path="/sv/js/app.js") == 200


def test_the_bucket_fills_again_and_no_further_than_full() -> None:
    clock = Clock()
    gate = turnstile(clock)
    assert [gate.admits("a") for _ in range(BURST + 1)].count(True) == BURST
    # Half a run more: seconds of a clock are rounded.
    clock.now += 3.5 / EACH_SECOND
    assert [gate.admits("a") for _ in range(9)] == [True] * 3 + [False] * 6
    clock.now += 1e6
    assert [gate.admits("a") for _ in range(BURST + 1)].count(True) == BURST


def test_the_addresses_of_one_network_share_a_bucket() -> None:
    gate = turnstile(Clock())
    found = [gate.admits(f"2001:db8::{number:x}") for number in range(BURST + 10)]
    assert found.count(True) == BURST


def test_what_is_remembered_of_addresses_is_bounded() -> None:
    buckets = Buckets(1, 1.0, Clock())
    for number in range(REMEMBERED + 100):
        buckets.take(f"host{number}")
    assert len(buckets) == REMEMBERED


def test_a_clock_that_is_set_back_takes_nothing_from_anybody() -> None:
    clock = Clock()
    buckets = Buckets(3, 1.0, clock)
    assert buckets.take("a")
    clock.now -= 1e6
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]


def test_a_request_without_an_address_is_let_through_as_one() -> None:
    gate = turnstile(Clock())
    assert [asked(gate, client=None) for _ in range(BURST + 1)][-1] == 429
