"""A visitor's servers asked through the room: a line of their own, notices as sentences, nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from spec_viz.serving.compare import parse
from spec_viz.ui.limits import Limits
from spec_viz.ui.room import Room
from spec_viz.ui.serve_wire import MOST_QUESTIONS, questions
from spec_viz.ui.wording import words
from tests.browser.servers import KEPT, WORDS, Toy, standing
from tests.integration.rooms import by

EN = words("en")


@pytest.fixture
def address() -> Iterator[str]:
    with standing(Toy(pause=0.0)) as address:
        yield address


def ask(wire: Any, room: Room | None = None) -> list[dict[str, Any]]:
    """The lines that are there in the end."""
    answer = list((room or Room()).serve({"wire": wire, "nonce": "1"}, by("v")))[-1]
    return [json.loads(line) for line in answer.splitlines()]


def test_a_server_is_asked_without_a_model_and_leaves_its_place(address: str) -> None:
    room = Room()
    found = ask({"ask": {"prompt": "Count.", "servers": [{"address": address}]}}, room)
    assert [next(iter(line)) for line in found] == ["request", "wait", "outcome", "closed"]
    outcome = found[2]["outcome"]
    assert outcome["text"] == "".join(WORDS)
    assert outcome["drafts"] == [len(KEPT), 4 * len(KEPT), sum(KEPT)]
    assert outcome["ndjson"].startswith('{"schema"')
    assert (len(room.wires), len(room.line)) == (0, 0)


def test_what_is_told_of_a_comparison_can_be_read_at_every_moment(address: str) -> None:
    servers = [{"name": name, "address": address} for name in ("one", "two")]
    wire = {"compare": {"servers": servers, "prompts": ["Count.", "Again."], "widths": [1]}}
    answers = Room().serve({"wire": wire, "nonce": "1"}, by("v"))
    # A line that says how far it is gives way to the next.
    found = [json.loads(line) for answer in answers for line in answer.splitlines()]
    told = [line.get("progress") or line["compared"] for line in found if {"progress", "compared"} & set(line)]
    assert {each["stage"] for each in told} >= {"looking", "warming", "asking", "done"}
    records = [each["record"] for each in told if each["record"] is not None]
    assert [run.method for run in parse(records[-1])] == ["one", "two"]
    for record in records:
        parse(record)


@pytest.mark.parametrize(
    ("typed", "reason"), [("http://10.0.0.1:8000", "error.server_not_here"), ("file:///x", "error.server_address")]
)
@pytest.mark.parametrize(("name", "called"), [({}, "2"), ({"name": "eagle3"}, "eagle3"), ({"name": " "}, "2")])
@pytest.mark.parametrize("what", ["ask", "compare"])
def test_all_servers_are_judged_before_the_first_is_asked_and_the_one_refused_is_named(
    what: str, name: dict[str, str], called: str, typed: str, reason: str
) -> None:
    toy = Toy()
    with standing(toy) as address:
        servers = [{"name": "plain", "address": address}, {"address": typed, **name}]
        notice = ask({what: {"prompt": "Count.", "servers": servers}})[-1]["notice"]
    assert notice["key"] == "error.server_which"
    said = EN(notice["key"], **notice["args"])
    assert said == f"Server “{called}”: {EN(reason)}"
    assert toy.asked == []


@pytest.mark.parametrize(
    ("wire", "key"),
    [
        ({}, "serve.shape"),
        ("look", "serve.shape"),
        ({"ask": {"prompt": " ", "servers": [{"address": "http://127.0.0.1:1"}]}}, "serve.prompt.empty"),
        ({"ask": {"prompt": "x" * 9000, "servers": [{}]}}, "error.prompt_too_many_letters"),
        ({"ask": {"prompt": "x", "servers": []}}, "error.compare_servers"),
        ({"ask": {"prompt": "x", "servers": [{}], "max_tokens": True}}, "error.compare_bounds"),
        ({"look": {"address": 3}}, "error.server_address"),
        ({"compare": {"servers": [{}]}}, "error.compare_servers"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(wire: Any, key: str) -> None:
    notice = ask(wire)[-1]["notice"]
    assert notice["key"] == key
    assert "{" not in EN(key, **notice["args"])


def test_beginning_something_else_stops_what_was_begun_there() -> None:
    room = Room()
    ticket = room.wires.join(by("v"), "old")
    list(room.serve({"prompt": "x", "nonce": "new"}, by("v")))
    assert ticket.stop.is_set()


def test_prompts_of_ours_are_one_of_every_task_first_and_own_ones_are_bounded() -> None:
    found = questions({"count": 7}, Limits())
    assert len(found) == len(set(found)) == 7
    assert len({task for task, _ in found[:5]}) == 5
    assert questions({"prompts": [" a ", "b", "a", ""]}, Limits()) == (("–", "a"), ("–", "b"))
    with pytest.raises(ValueError, match="too many"):
        questions({"prompts": [str(number) for number in range(MOST_QUESTIONS + 1)]}, Limits())
