"""A visitor's real server, asked from the Serve rooms: looked at, asked one prompt, or compared with others.

Every piece that goes to the page is a dictionary with one key that says what it is. `PASSING` ones stand for the moment
and are replaced by what comes next; the others are kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any, Protocol

from spec_viz.serving.gate import Place, gate
from spec_viz.serving.problems import Problem, ServerError
from spec_viz.ui.serve_view import answer_of

Json = dict[str, Any]

PASSING = ("part", "progress")
MOST_NAME, MOST_ADDRESS = 40, 300
# What one visitor may ask for at once: a server of theirs works all the while, and the page holds every answer.
MOST_QUESTIONS, MOST_TOKENS = 24, 256
# Seconds of a comparison on a computer of one's own; a host that others share has its own limit.
PATIENCE = 1800.0
BETWEEN_RECORDS = 1.0


class Bounds(Protocol):
    """What the host allows."""

    @property
    def seconds(self) -> float: ...

    @property
    def prompt_chars(self) -> int: ...


def patience(bounds: Bounds) -> float:
    """Seconds that one visitor may keep servers busy."""
    return PATIENCE if gate().mode == "local" else bounds.seconds


def wired(asked: Any, bounds: Bounds, stop: Callable[[], bool]) -> Generator[Json]:
    """What the page is sent, asked as {"look": …}, {"ask": …} or {"compare": …}; closing it lets the servers go.

    Raises ServerError for what cannot be asked. look: {address, model}. ask: {prompt, max_tokens, servers: one or two
    of {address, model}}. compare: {servers: each {name, address, model}, prompts: texts or [] for ours, count,
    max_tokens, widths}.
    """
    given: Mapping[str, Any] = asked if isinstance(asked, dict) else {}
    for name, do in (("look", _look), ("ask", _ask), ("compare", _compare)):
        if isinstance(given.get(name), dict):
            with closing(do(given[name], bounds, stop)) as told:
                yield from told
            return
    raise ServerError("serve.shape", "neither look nor ask nor compare")


def _look(given: Mapping[str, Any], _: Bounds, stop: Callable[[], bool]) -> Generator[Json]:
    from spec_viz.serving.connect import look

    yield {"look": asdict(look(gate().admit(_text(given, "address", MOST_ADDRESS)), _model(given), stop))}


def _ask(given: Mapping[str, Any], bounds: Bounds, stop: Callable[[], bool]) -> Generator[Json]:
    from spec_viz.serving.connect import Partial, ask

    prompt = _text(given, "prompt")
    _fits(prompt, bounds)
    tokens = _whole(given, "max_tokens", 96, 1, MOST_TOKENS)
    servers = _servers(given, 1, 2)
    # Both are admitted before the first is asked.
    admitted = _admitted(servers)
    for who, (place, model) in enumerate(zip(admitted, map(_model, servers), strict=True)):
        if stop():
            return
        with closing(ask(place, model, prompt, tokens, stop)) as told:
            for each in told:
                if isinstance(each, Partial):
                    yield {"part": {"who": who, **asdict(each)}}
                    continue
                body = answer_of(each.answer, each.reading, _problem(each.problem))
                counts = each.counts
                drafts = None if counts is None else [counts.drafts, counts.drafted, counts.accepted]
                yield {"outcome": {"who": who, **body, "drafts": drafts, "source": each.source, "shared": each.shared}}


def _compare(given: Mapping[str, Any], bounds: Bounds, stop: Callable[[], bool]) -> Generator[Json]:
    from spec_viz.serving.compare import Entrant, Plan, compare, to_json

    servers = _servers(given, 2, 4)
    entrants = [
        Entrant(_text(each, "name", MOST_NAME), place, _model(each))
        for each, place in zip(servers, _admitted(servers), strict=True)
    ]
    widths = given.get("widths")
    plan = Plan(
        questions(given, bounds),
        max_tokens=_whole(given, "max_tokens", 64, 2, MOST_TOKENS),
        widths=tuple(width for width in widths if type(width) is int) if isinstance(widths, list) else (1,),
        seconds=patience(bounds),
    )
    told = -BETWEEN_RECORDS
    with closing(compare(entrants, plan, stop)) as states:
        for state in states:
            last = state.stage in ("done", "stopped", "late")
            record = None
            # It grows with every answer, and the page has it drawn each time; while servers warm up there is none.
            if state.runs and (last or time.monotonic() - told >= BETWEEN_RECORDS):
                record, told = to_json(state.runs), time.monotonic()
            body = {name: getattr(state, name) for name in ("stage", "name", "width", "done", "total")}
            problems = [{"name": name, **(_problem(each) or {})} for name, each in state.problems]
            yield {"compared" if last else "progress": body | {"problems": problems, "record": record}}


def questions(given: Mapping[str, Any], bounds: Bounds) -> tuple[tuple[str, str], ...]:
    """(task, text) pairs: the visitor's own prompts, or so many that no draft head was trained on."""
    own = given.get("prompts")
    texts = [text.strip() for text in own if isinstance(text, str) and text.strip()] if isinstance(own, list) else []
    if len(texts) > MOST_QUESTIONS:
        raise ServerError("serve.prompts.many", "too many prompts", count=len(texts), most=MOST_QUESTIONS)
    for text in texts:
        _fits(text, bounds)
    if texts:
        return tuple(("–", text) for text in dict.fromkeys(texts))
    from spec_viz.training.prompts import TASKS, held_out_prompts

    count = _whole(given, "count", 5, 1, MOST_QUESTIONS)
    each = -(-count // len(TASKS))
    found = held_out_prompts(TASKS, each)
    # One of every task before the second of any.
    order = sorted(range(len(found)), key=lambda place: (place % each, place))
    return tuple(found[place] for place in order[:count])


def _fits(prompt: str, bounds: Bounds) -> None:
    if not prompt.strip():
        raise ServerError("serve.prompt.empty", "no prompt")
    if len(prompt) > bounds.prompt_chars:
        raise ServerError(
            "error.prompt_too_many_letters", "a long prompt", letters=len(prompt), limit=bounds.prompt_chars
        )


def _servers(given: Mapping[str, Any], low: int, high: int) -> list[Mapping[str, Any]]:
    servers: Any = given.get("servers")
    fits = isinstance(servers, list) and low <= len(servers) <= high
    if not fits or not all(isinstance(each, dict) for each in servers):
        raise ServerError("error.compare_servers", "not so many servers", low=low, high=high)
    return list(servers)


def _admitted(servers: Sequence[Mapping[str, Any]]) -> list[Place]:
    """Where they all are; ServerError says which of several may not be asked, by its name or place in the list."""
    places = []
    for number, each in enumerate(servers, 1):
        try:
            places.append(gate().admit(_text(each, "address", MOST_ADDRESS)))
        except ServerError as problem:
            if len(servers) == 1:
                raise
            name = _text(each, "name", MOST_NAME).strip() or str(number)
            raise ServerError("error.server_which", name, name=name, problem=_problem(problem.told)) from None
    return places


def _model(given: Mapping[str, Any]) -> str | None:
    return _text(given, "model", MOST_ADDRESS) or None


def _text(given: Mapping[str, Any], name: str, most: int | None = None) -> str:
    value = given.get(name)
    return value[:most] if isinstance(value, str) else ""


def _whole(given: Mapping[str, Any], name: str, usual: int, low: int, high: int) -> int:
    value = given.get(name, usual)
    if type(value) is not int or not low <= value <= high:
        raise ServerError("error.compare_bounds", "out of bounds", name=name, low=low, high=high)
    return int(value)


def _problem(problem: Problem | None) -> Json | None:
    return (
        None if problem is None else {"key": problem.key, "args": json.loads(json.dumps(problem.fields, default=str))}
    )
