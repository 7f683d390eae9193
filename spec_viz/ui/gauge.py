"""v(n) measured for a visitor, in the room's line like a run: how far it is, then the result, one JSON line each."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spec_viz.models.load import Loaded

# Five times through 16 lengths are 160 passes: seconds on two CPU cores, and a median that one slow pass cannot move.
REPEATS = 5
MOST_TOKENS = 64
MOST_CONTEXT = 512


class _StoppedError(Exception):
    """The visitor does not want it any more."""


def gauge(loaded: Loaded, asked: Any, stop: Callable[[], bool]) -> Generator[dict[str, Any]]:
    """What the page is sent about one measurement of v(n); `asked` is {max_n, context} as the visitor sent it.

    Yields {done, of} before every repeat, then {result}, a `specviz.result/1` record, or {finish: "stopped"}. Raises
    RequestError for numbers out of range. Closing it ends the measurement.
    """
    # Both bring torch, which the page must not wait for.
    from spec_viz.lab import cost

    max_n, context = _numbers(asked)
    said: SimpleQueue[int | None] = SimpleQueue()
    left = Event()

    def counted(repeats: Sequence[int]) -> Iterable[int]:
        for repeat in repeats:
            if left.is_set() or stop():
                raise _StoppedError
            said.put(repeat)
            yield repeat

    def measure() -> dict[str, Any]:
        try:
            return cost.measure(loaded, max_n=max_n, context=context, repeats=REPEATS, drafters={}, progress=counted)
        finally:
            said.put(None)

    # `measure` is one call that takes seconds. In a thread of its own it can be told about while it goes on.
    with ThreadPoolExecutor(1, "gauge") as worker:
        future = worker.submit(measure)
        try:
            while (done := said.get()) is not None:
                yield {"done": done, "of": REPEATS}
        finally:
            left.set()
        try:
            result = future.result()
        except _StoppedError:
            yield {"finish": "stopped"}
        else:
            yield {"result": result}


def _numbers(asked: Any) -> tuple[int, int]:
    from spec_viz.lab.run import RequestError

    values = asked if isinstance(asked, dict) else {}
    found = []
    for name, low, high in (("max_n", 2, MOST_TOKENS), ("context", 1, MOST_CONTEXT)):
        value = values.get(name)
        if type(value) is not int or not low <= value <= high:
            raise RequestError("error.bad_number", name=name, low=low, high=high)
        found.append(value)
    return found[0], found[1]
