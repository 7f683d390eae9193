"""What crosses between the processor and the device that computes, and the clock on either side.

A CUDA device works behind the program: whoever asks it for a number waits until it has done all it was given. A round
asks once. So what goes there is sent without waiting, and what comes back is brought in one go.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class Instant(Protocol):
    """A moment: the difference of two is seconds. A float of a monotonic clock is one."""

    def __sub__(self, earlier: Any, /) -> float: ...


class Mark:
    """A moment in what a CUDA device has been given to do, and on the processor's own clock.

    The time between two is the device's, if it has got as far as the later one; else the processor's, and what the
    device still has to do counts for whoever waits for it.
    """

    def __init__(self, device: torch.device) -> None:
        self._seconds = time.perf_counter()
        self._event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(device))

    def __sub__(self, earlier: Mark) -> float:
        if self._event.query():
            return float(earlier._event.elapsed_time(self._event)) / 1000
        return self._seconds - earlier._seconds


def wait(device: torch.device) -> None:
    """Wait until a device has finished what it was given."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def send(numbers: Sequence[int] | Tensor, device: torch.device) -> Tensor:
    """Whole numbers (n,) on a device, without waiting for it; those that lie there already stay where they are."""
    if isinstance(numbers, Tensor):
        return numbers
    if device.type != "cuda":
        return torch.tensor(numbers, dtype=torch.long, device=device)
    # Out of ordinary memory the copy would wait for the device; pinned memory is kept until it has been read.
    return torch.tensor(numbers, dtype=torch.long, pin_memory=True).to(device, non_blocking=True)


def bring(*tensors: Tensor | None) -> list[Tensor | None]:
    """The same tensors on the processor, after one wait for the device; those that are there already, as they are."""
    # Off CUDA a copy that is not waited for may not have arrived.
    found = [None if each is None else each.to("cpu", non_blocking=each.is_cuda) for each in tensors]
    for each, here in zip(tensors, found, strict=True):
        if each is not None and each is not here:
            wait(each.device)
            break
    return found


def rows(states: Tensor, wanted: Sequence[int]) -> Tensor:
    """Some rows of (n, …), at least one; neighbours are a view and need no list of numbers on the device."""
    first = wanted[0]
    if list(wanted) == list(range(first, first + len(wanted))):
        return states[first : first + len(wanted)]
    return states.index_select(0, send(wanted, states.device))
