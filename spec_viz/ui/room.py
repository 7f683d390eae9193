"""The engine room: the model that loads behind the page, and the one generator that decodes for a visitor."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from spec_viz.engine.trace import Round, Trace, finish_line, header_line, loads, round_line
from spec_viz.models.catalogue import DEFAULT
from spec_viz.models.weights import WeightsError
from spec_viz.serving.problems import ServerError
from spec_viz.ui import zero
from spec_viz.ui.experiments import conduct
from spec_viz.ui.faults import where
from spec_viz.ui.gauge import gauge
from spec_viz.ui.limits import Limits, limits_of
from spec_viz.ui.line import Line, LineError, Ticket
from spec_viz.ui.listening import Listeners
from spec_viz.ui.serve_wire import PASSING, patience, wired
from spec_viz.ui.visitor import Visitor
from spec_viz.ui.wording import usual_language, words

if TYPE_CHECKING:
    from spec_viz.models.load import Loaded

T = TypeVar("T")

log = logging.getLogger(__name__)

SECONDS_BETWEEN_UPDATES = 0.2
# More would not be read side by side, and one visitor would hold the line for long.
MOST_RIVALS = 3
# What a drafter learns from a visitor's texts is that visitor's; the least recently seen are forgotten.
REMEMBERED_VISITORS = 64
MOVE_UP = 0.5
NOBODY = Visitor("", "", "")


class Room:
    """Holds the model, knows its state, serves runs one at a time. Texts of visitors are never logged or kept."""

    def __init__(self, limits: Limits | None = None, target: str = DEFAULT) -> None:
        self.limits = limits or limits_of(os.environ)
        self.line = Line(self.limits)
        # Who asks servers of their own waits for no model here.
        self.wires = Line(self.limits)
        # The sessions that are told of their runs now.
        self.listeners = Listeners()
        self.target = target
        self._loaded: Loaded | None = None
        self._state: dict[str, Any] = {"ready": False, "key": "error.model_starting", "args": {}}
        self._memories: OrderedDict[str, dict[str, Any]] = OrderedDict()
        # Where a GPU is lent for a call, this is the call.
        self._decode = zero.lent(self._run, self._seconds)

    def warm(self) -> threading.Thread:
        """Begin to load the model in the background."""
        thread = threading.Thread(target=self.load, name="load-model", daemon=True)
        thread.start()
        return thread

    def state(self) -> dict[str, Any]:
        """Whether runs are possible, and if not the sentence that says why."""
        return dict(self._state)

    def load(self) -> None:
        """Bring the model here, and say how far that is, or what stands in its way."""
        try:
            from spec_viz.models import weights

            weights.fetch(self.target, self._progress)
            self._say("error.model_loading")
            from spec_viz.models.load import load

            self._loaded = load(self.target)
            # The first pass allocates and compiles; nobody should wait for that. A GPU that is lent is not here yet.
            for _ in () if zero.HERE else self._lines({"prompt": "Hello", "max_new_tokens": 8}, Ticket(NOBODY, ""), {}):
                continue
        except WeightsError as problem:
            log.error("SpecViz: %s", words(usual_language())(problem.key, **problem.fields))
            self._say(problem.key, **problem.fields)
        except Exception:
            log.exception("the model could not be loaded")
            self._say("error.model_failed")
        else:
            self._state = {"ready": True, "key": "error.model_ready", "args": {}}

    def _say(self, key: str, **args: Any) -> None:
        self._state = {"ready": False, "key": key, "args": args}

    def _progress(self, stage: str, fraction: float | None) -> None:
        self._say(f"error.stage_{stage}", percent=0 if fraction is None else round(100 * fraction))

    # ------------------------------------------------------------ serving a run

    def stop(self, nonce: str) -> None:
        """Stop the run with this nonce, whatever it runs on."""
        for line in (self.line, self.wires):
            line.stop(nonce)

    def serve(self, request: Mapping[str, Any], visitor: Visitor) -> Generator[str]:
        """The NDJSON of one request, growing: waiting places, then trace lines, or a notice.

        Yields the whole text so far, at most five times a second; of what stands for the moment only, the last line.
        Closing the generator ends the run. A request with "wire" goes to servers of the visitor's.
        """
        nonce = request.get("nonce")
        nonce = nonce[:40] if isinstance(nonce, str) else ""
        text = _line({"request": nonce})
        wire = request.get("wire")
        line, other = (self.line, self.wires) if wire is None else (self.wires, self.line)
        other.dismiss(visitor)
        # Two comparisons at once would spoil each other's times; a single prompt says so of itself.
        waits = wire is None or (isinstance(wire, dict) and "compare" in wire)
        try:
            ticket = line.join(visitor, nonce, waits=waits)
        except LineError as problem:
            yield text + _notice(problem.key, **problem.fields)
            return
        try:
            place = -1
            while waits and ((now := line.place(ticket, MOVE_UP if place >= 0 else 0)) or place < 0):
                if ticket.stop.is_set():
                    yield text + _notice("error.left_line")
                    return
                if now != place:
                    place = now
                    text += _line({"wait": now})
                yield text
            if place:
                text += _line({"wait": 0})
            shown = time.monotonic()
            memory = self._memory(visitor.tab) if wire is None else {}
            told: Generator[str | dict[str, Any]]
            if wire is not None:
                told = self._wired(wire, ticket)
            elif self._loaded is None:
                # No GPU is borrowed to say that there is no model.
                told = self._lines(request, ticket, memory)
            else:
                told = self._decode(request, ticket, memory)
            with _until_left(told, ticket) as pieces:
                for piece in pieces:
                    if isinstance(piece, dict):
                        memory.update(piece)
                        continue
                    if piece.startswith(PASSING_LINES):
                        yield text + piece
                        continue
                    text += piece
                    if time.monotonic() - shown >= SECONDS_BETWEEN_UPDATES:
                        yield text
                        shown = time.monotonic()
            yield text
        except zero.NotLent as problem:
            is_open = text.rpartition("\n{")[2].startswith(('"schema"', '"round"'))
            yield text + (finish_line("error") if is_open else "") + _notice(problem.key)
        finally:
            line.leave(ticket)

    def _wired(self, wire: Any, ticket: Ticket) -> Generator[str]:
        """Lines of what a visitor's servers say; every fault becomes a notice."""
        ticket.until = time.monotonic() + patience(self.limits)
        try:
            with closing(wired(wire, self.limits, lambda: ticket.over)) as told:
                for piece in told:
                    yield _line(piece)
            late = _notice("error.time_up", seconds=round(patience(self.limits))) if ticket.late else ""
            yield late + _line({"closed": True})
        except ServerError as problem:
            yield _notice(problem.key, **problem.fields)
        except Exception as problem:  # noqa: BLE001 - logged without its words, which may quote what was sent
            log.error("a server could not be asked: %s", where(problem))
            yield _notice("error.unknown")

    def _memory(self, visitor: str) -> dict[str, Any]:
        """What drafters have kept from this visitor's earlier runs; from everybody's only where that was turned on."""
        visitor = "class" if self.limits.shared_memory else visitor
        if not visitor:
            return {}
        memory = self._memories.pop(visitor, {})
        self._memories[visitor] = memory
        while len(self._memories) > REMEMBERED_VISITORS:
            self._memories.popitem(last=False)
        return memory

    def _run(self, asked: Mapping[str, Any], ticket: Ticket, memory: dict[str, Any]) -> Generator[str | dict[str, Any]]:
        """`_lines` within its time, and at the end what drafters learned: all that comes back from another process."""
        ticket.until = time.monotonic() + self._seconds(asked, ticket, memory)
        yield from self._lines(asked, ticket, memory)
        yield memory

    def _seconds(self, asked: Mapping[str, Any], ticket: Ticket, memory: dict[str, Any]) -> float:
        """How long such a run may take here."""
        if not zero.HERE:
            return self.limits.seconds
        return min(self.limits.seconds, zero.seconds(asked, self.limits.max_new_tokens))

    def _lines(self, asked: Mapping[str, Any], ticket: Ticket, memory: dict[str, Any]) -> Generator[str]:
        """Trace lines of the run, of its rivals, and for a race of its baseline; every fault becomes a notice.

        A rival is the same request with another drafter, named in `against`. Nothing is lost when one fails.

        Where `asked` holds "cost", the lines of a measurement of v(n) instead, each {"cost": …}; where it holds
        "sweep", those of an experiment, each {"sweep": …}.
        """
        if self._loaded is None:
            yield _notice(self._state["key"], **self._state["args"])
            return
        from spec_viz.lab.run import RequestError, check, start

        closing_line = ""
        try:
            if "cost" in asked:
                # Closed here, so that nothing is measured any more when the next in line begins.
                with closing(gauge(self._loaded, asked["cost"], lambda: ticket.over)) as told:
                    yield from (_line({"cost": each}) for each in told)
                return
            if "sweep" in asked:
                with closing(conduct(self._loaded, asked["sweep"], self.limits, lambda: ticket.over)) as told:
                    for piece in told:
                        # In one piece, as below.
                        late = "finish" in piece and ticket.late
                        yield _line({"sweep": piece}) + (self._too_late() if late else "")
                return
            request, *rivals = [check(self._bounded(each), self._loaded.entry)[0] for each in self._entrants(asked)]
            race = asked.get("race") and request.drafter != "none"
            for each in (request, *rivals, *([request.baseline()] if race else [])):
                if each is not request and ticket.over:
                    yield self._too_late() if ticket.late else _notice("error.race_left")
                    return
                run = start(self._loaded, each, lambda: ticket.over, memory)
                yield header_line(run.header)
                closing_line = finish_line("error")
                for part in run.parts:
                    if isinstance(part, Round):
                        yield round_line(part)
                        continue
                    closing_line = ""
                    if part == "stopped":
                        # In one piece: a page that reads the closing line looks for no notice after it.
                        yield finish_line(part) + (self._too_late() if ticket.late else "")
                        return
                    yield finish_line(part)
        except RequestError as problem:
            yield _notice(problem.key, **problem.fields)
        except Exception as problem:  # noqa: BLE001 - as above
            # torch has its own class for a full device.
            full = isinstance(problem, MemoryError) or type(problem).__name__ == "OutOfMemoryError"
            log.error("a run failed: %s", where(problem))
            if full:
                from spec_viz.engine.graphs import release

                # Else what the failed run held fills the device until the next failure.
                release(problem)
            # In one piece, as above.
            yield closing_line + _notice("error.out_of_memory" if full else "error.unknown")

    def _entrants(self, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What is to be run: the request itself and one copy of it for every drafter it is compared with."""
        from spec_viz.lab.run import RequestError

        against = asked.get("against") or []
        fits = isinstance(against, list) and len(against) <= MOST_RIVALS
        if not fits or not all(isinstance(each, dict) for each in against):
            raise RequestError("error.bad_rivals", most=MOST_RIVALS)
        own: dict[str, Any] = {"drafter": "prompt_lookup", "options": {}, "rule": None, "strength": None}
        return [dict(asked), *({**asked, **own, **{k: v for k, v in each.items() if k in own}} for each in against)]

    def _too_late(self) -> str:
        return _notice("error.time_up", seconds=round(self.limits.seconds))

    def _bounded(self, asked: Mapping[str, Any]) -> Any:
        """The request a visitor's values make, within this host's limits."""
        from spec_viz.lab.run import Request, RequestError

        known = {field.name for field in fields(Request)}
        values = {name: value for name, value in asked.items() if name in known and value is not None}
        prompt = values.get("prompt")
        if isinstance(prompt, str) and len(prompt) > self.limits.prompt_chars:
            raise RequestError("error.prompt_too_many_letters", letters=len(prompt), limit=self.limits.prompt_chars)
        most = self.limits.max_new_tokens
        tokens = values.setdefault("max_new_tokens", min(Request("").max_new_tokens, most))
        # Whatever is wrong with it, the range that is told is this host's.
        is_number = isinstance(tokens, int | float) and not isinstance(tokens, bool)
        if not is_number or not 1 <= tokens <= most or tokens != int(tokens):
            raise RequestError("error.bad_number", name="max_new_tokens", low=1, high=most)
        options = values.get("options", {})
        if not isinstance(options, dict):
            raise RequestError("error.bad_option", problem={"key": "error.option_shape", "args": {}})
        for name, option in options.items():
            if isinstance(option, str) and len(option) > self.limits.prompt_chars:
                told = {"name": str(name)[:40], "limit": self.limits.prompt_chars}
                raise RequestError("error.bad_option", problem={"key": "error.option_long", "args": told})
        return Request(**{"prompt": "", **values})


@contextmanager
def _until_left(told: Generator[T], ticket: Ticket) -> Iterator[Generator[T]]:
    """Closed here and not by the collector: the caches are free before the next in line begins.

    A run in another process is only told so by the flag.
    """
    try:
        yield told
    finally:
        ticket.stop.set()
        told.close()


def _notice(key: str, **args: Any) -> str:
    return _line({"notice": {"key": key, "args": args}})


def _line(body: dict[str, Any]) -> str:
    # What a visitor sent may be said back, and a lone surrogate in it goes over no wire.
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode() + "\n"


def bundle_of(ndjson: str) -> tuple[Trace, ...]:
    """The traces in what a page holds, its own lines (request, wait, notice) left out."""
    lines = (line + "\n" for line in ndjson.split("\n") if not line.startswith(PAGE_LINES))
    return loads("".join(lines), MOST_TRACES)


# Each is compared with all others. A page makes a handful at most.
MOST_TRACES = 50
PAGE_LINES = ('{"request"', '{"wait"', '{"notice"')
PASSING_LINES = tuple(f'{{"{name}"' for name in PASSING)
