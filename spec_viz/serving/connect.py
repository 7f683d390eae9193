"""A running server, looked at and asked one question: what it is, what it writes while it writes, what it tells after.

The question is read in a thread of its own, so that the times of its arrivals are the server's and not those of who
shows them. Whatever fails, what had come by then is kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from spec_viz.serving.client import Answer, Arrival, BrokenOffError, Server
from spec_viz.serving.counters import Counts, Scrape, Window, between, scrape
from spec_viz.serving.gate import Place
from spec_viz.serving.problems import Problem, ServerError
from spec_viz.serving.reader import Reading, read, read_told
from spec_viz.serving.wire import Stop, never

# What a server says of one request; a detailed account has lists, a summary sums.
Tells = Literal["lists", "sums", "nothing"]
Stage = Literal["waiting", "writing", "reading"]
# Short, and with something to look up, so that every kind of drafter drafts.
PROBE, PROBE_TOKENS = "Say again: one two three, one two three, one two three.", 16
SECONDS_BETWEEN = 0.125
# Of so many different ids a server is asked for their texts, one by one.
MOST_TEXTS = 400
# Seconds for those of an answer that was stopped.
GRACE = 1.5
# What says that a server has no counters of vLLM's for us, and nothing about whether it answers questions.
_NO_COUNTERS = ("error.server_said", "error.server_metrics", "error.server_web", "error.server_key",
                "error.server_large", "error.server_redirects", "error.server_odd")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """What a server is: None where it does not say.

    `model` is the one that is asked, `context` the longest text it reads; `counters` says that its `/metrics` is
    vLLM's, `ids` that it sends token ids, `tells` what it says of a single request.
    """

    address: str
    version: str | None
    models: tuple[str, ...]
    model: str
    context: int | None
    speculates: bool | None
    counters: bool
    ids: bool
    tells: Tells | None


@dataclass(frozen=True, slots=True)
class Partial:
    """An answer while it comes: its text so far, its tokens, and seconds since it was asked for."""

    stage: Stage
    text: str
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that is known of an answer in the end; None where it could not be had.

    `counts` come from the answer's own account or, where it has none, from the counters' difference: `source`. `shared`
    says that the server answered others meanwhile, so that the difference is not this answer's. `first_ms` is the time
    to the first token, `token_ms` that per token after the first arrival.
    """

    answer: Answer | None = None
    reading: Reading | None = None
    counts: Counts | None = None
    source: Literal["answer", "counters"] | None = None
    window: Window | None = None
    shared: bool = False
    problem: Problem | None = None

    @property
    def first_ms(self) -> float | None:
        """Milliseconds to the first token."""
        return self.answer.arrivals[0].ms if self.answer and self.answer.arrivals else None

    @property
    def token_ms(self) -> float | None:
        """Milliseconds per token after the first arrival."""
        tokens, seconds = self.answer.after_first if self.answer else (0, 0.0)
        return 1000 * seconds / tokens if tokens > 0 else None

    @property
    def bursts(self) -> tuple[Arrival, ...]:
        """When how many tokens came at once."""
        return self.answer.arrivals if self.answer else ()


def look(place: Place, model: str | None = None, stop: Stop = never) -> Look:
    """What a server is, by its own word and by a question of a few tokens; ServerError where it cannot be asked."""
    server = Server(place, model)
    version = server.version(stop)
    counted = glance(place, stop)
    probe = server.ask(PROBE, PROBE_TOKENS, stop=stop)
    told = read_told(probe.metrics)
    tells: Tells | None = "nothing"
    if told is not None:
        # Nothing drafted is told in the same way with lists and without.
        tells = None if not told.counts.drafts else "sums" if told.steps is None else "lists"
    return Look(
        server.address,
        version,
        tuple(server.served),
        server.model,
        server.served.get(server.model),
        speculates(counted) if told is None else True,
        counted is not None,
        probe.ids is not None,
        tells,
    )


def glance(place: Place, stop: Stop = never) -> Scrape | None:
    """A server's counters; None where it has none that can be read."""
    try:
        return scrape(place, stop)
    except ServerError as problem:
        if problem.key in _NO_COUNTERS:
            return None
        raise


def speculates(counted: Scrape | None) -> bool | None:
    """Whether a server speculates, by its counters: vLLM has those of speculation only where it does."""
    return None if counted is None else counted.speculation is not None


def ask(
    place: Place, model: str | None, prompt: str, max_tokens: int = 128, stop: Stop = never
) -> Generator[Partial | Outcome]:
    """One question: states while its answer comes, and one outcome, last. No fault of the server's is raised.

    To close the generator ends the question, as `stop` does.
    """
    left = threading.Event()
    question = _Question(place, model, prompt, max_tokens, lambda: left.is_set() or stop())
    thread = threading.Thread(target=question.run, name="ask-server", daemon=True)
    began = time.monotonic()
    thread.start()
    shown: Partial | None = None
    try:
        while thread.is_alive():
            seconds = time.monotonic() - began
            now = Partial(question.stage, "".join(question.texts), question.tokens, seconds)
            # The clock alone moves on every second.
            if shown is None or replace(now, seconds=shown.seconds) != shown or seconds - shown.seconds >= 1:
                shown = now
                yield now
            thread.join(SECONDS_BETWEEN)
    finally:
        left.set()
        thread.join()
    yield question.outcome


@dataclass(slots=True)
class _Question:
    """A question under way; written by its thread, read by who shows it."""

    place: Place
    model: str | None
    prompt: str
    max_tokens: int
    stop: Stop
    stage: Stage = "waiting"
    texts: list[str] = field(default_factory=list)
    tokens: int = 0
    outcome: Outcome = field(default_factory=Outcome)

    def hear(self, text: str, arrival: Arrival) -> None:
        self.texts.append(text)
        self.tokens += arrival.tokens
        self.stage = "writing"

    def run(self) -> None:
        try:
            self._ask()
        except ServerError as problem:
            self.outcome = replace(self.outcome, problem=problem.told)

    def _ask(self) -> None:
        server = Server(self.place, self.model)
        self.model = server.model
        version = server.version(self.stop)
        before = glance(self.place, self.stop)
        try:
            answer = server.ask(self.prompt, self.max_tokens, stop=self.stop, hear=self.hear)
        except BrokenOffError as problem:
            self.outcome = Outcome(problem.answer, problem=problem.told)
            # Without an end, only an answer of plain decoding can be read: a token a round.
            if speculates(before) is False:
                reading = self._read(problem.answer, version, plain=True)
                ends = time.monotonic() + GRACE
                reading = _named(reading, server, lambda: time.monotonic() > ends)
                self.outcome = replace(self.outcome, reading=reading)
            return
        self.stage = "reading"
        self.outcome = Outcome(answer)
        self.outcome = self._counted(answer, before)
        reading = _named(self._read(answer, version, plain=speculates(before) is False), server, self.stop)
        self.outcome = replace(self.outcome, reading=reading)
        if reading.told is not None:
            self.outcome = replace(self.outcome, counts=reading.told.counts, source="answer")

    def _counted(self, answer: Answer, before: Scrape | None) -> Outcome:
        """The answer with what the counters rose by; a server that is gone by now has answered all the same."""
        try:
            after = glance(self.place, self.stop)
            if before is None or after is None:
                return Outcome(answer)
            window = between(before, after)
        except ServerError as problem:
            return Outcome(answer, problem=problem.told)
        shared = window.answers != 1 or window.generated != answer.tokens
        counts = window.speculation
        if counts is not None and not counts.adds_up:
            return Outcome(
                answer, window=window, problem=Problem("error.server_counts", {"address": self.place.address})
            )
        if counts is None or shared:
            return Outcome(answer, window=window, shared=shared)
        return Outcome(answer, None, counts, "counters", window)

    def _read(self, answer: Answer, version: str | None, plain: bool) -> Reading:
        told = read_told(answer.metrics)
        meta: dict[str, Any] = {
            "target": self.model,
            "drafter": "none" if plain else "server",
            "gamma": told.gamma if told else None,
            "temperature": 0.0,
            "max_new_tokens": self.max_tokens,
            "chat": True,
            "prompt_text": self.prompt,
            "versions": {"vllm": version} if version else {},
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        return read(answer, meta, {}, run="asked", plain=plain)


def _named(reading: Reading, server: Server, stop: Stop) -> Reading:
    """A reading with the texts of its tokens, as far as the server tells them."""
    if reading.trace is None:
        return reading
    texts = server.texts(sorted({*reading.trace.prompt, *reading.trace.output})[:MOST_TEXTS], stop)
    return replace(reading, trace=replace(reading.trace, tokens=texts))
