"""A stand-in for `spaces.GPU` on ZeroGPU: the task runs in a forked process that is kept, over the same queues.

Made after `spaces` 0.51.3, zero/wrappers.py. It lends no GPU and asks nobody; what it says in its place is set here.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Generator
from contextlib import suppress
from threading import Thread
from typing import Any

FORK = multiprocessing.get_context("fork")


class Refusal(Exception):  # noqa: N818 - as the lender's own
    """What the lender raises: a title says which, as `gradio.Error` has one."""

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self.title = title


class Worker:
    """A forked process that runs one task again and again; None comes where it dies."""

    def __init__(self, task: Callable[..., Generator[Any]]) -> None:
        self.arguments: Any = FORK.SimpleQueue()
        self.results: Any = FORK.SimpleQueue()
        self.stop = FORK.Event()
        self.process = FORK.Process(target=self._work, args=(task,), daemon=True)
        self.process.start()
        self._sentinel = Thread(target=self._mourn, daemon=True)
        self._sentinel.start()

    def _mourn(self) -> None:
        self.process.join()
        with suppress(ValueError):
            # It may have died while it held the lock.
            self.results._wlock.release()
        self.results.put(None)

    def _work(self, task: Callable[..., Generator[Any]]) -> None:
        while (given := self.arguments.get()) is not None:
            self.stop.clear()
            pieces = task(*given)
            for piece in pieces:
                if self.stop.is_set():
                    pieces.close()
                    break
                self.results.put(("piece", piece))
            self.results.put(("end", None))

    def end(self) -> None:
        """Let it go."""
        if self.process.is_alive():
            self.arguments.put(None)
        self._sentinel.join(20)
        assert not self._sentinel.is_alive(), "the worker is still at something"


class Lender:
    """`GPU` as the package has it; `asked` are the seconds it was asked for, `refusal` what it raises next."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.refusal: Exception | None = None
        self.worker: Worker | None = None

    def GPU(
        self, task: Callable[..., Generator[Any]], *, duration: Callable[..., float]
    ) -> Callable[..., Generator[Any]]:
        def handler(*given: Any) -> Generator[Any]:
            self.asked.append(duration(*given))
            if self.refusal is not None:
                raise self.refusal
            if self.worker is None or not self.worker.process.is_alive():
                self.worker = Worker(task)
            worker = self.worker
            worker.arguments.put(given)
            is_left = False
            while (result := worker.results.get()) is not None:
                kind, piece = result
                if kind == "end":
                    break
                if is_left:
                    continue
                try:
                    yield piece
                except GeneratorExit:
                    # The lender's own waits as well until the task has ended.
                    worker.stop.set()
                    is_left = True
            else:
                raise Refusal("ZeroGPU worker error")

        return handler
