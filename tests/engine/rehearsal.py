"""What captures passes where there is no CUDA: it writes down every operation and does them again, as a graph does.

Like a graph it knows only the tensors that were there: numbers that Python read or computed during the capture are
fixed for ever, and whoever looks at a number on the device is refused. Unlike a graph it spoils everything that it
computed before, so that nobody lives on what an earlier pass left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# A size follows from numbers, or Python's numbers come in: neither can be replayed.
FORBIDDEN = ("nonzero", "masked_select", "unique", "lift_fresh", "equal")
# A number goes to Python.
LOOKS = {
    Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__bool__, Tensor.__int__, Tensor.__float__,
    Tensor.__index__,
}  # fmt: skip


@dataclass
class Step:
    """One operation with the very tensors it was called with and those it made."""

    call: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # Where each result went; None for a view or for what was changed in place.
    made: list[Tensor | None]
    results: Any


class Blind(TorchFunctionMode):
    """Refuses to look at numbers."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in LOOKS:
            raise RuntimeError(f"{func.__name__} in a captured pass")
        return func(*args, **(kwargs or {}))


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs operations and keeps them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[Step] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name in ("index", "index_put", "index_put_") and any(
            isinstance(each, Tensor) and each.dtype == torch.bool for each in tree_leaves(args[1])
        )
        if name in FORBIDDEN or by_mask:
            raise RuntimeError(f"{name} in a captured pass")
        results = func(*args, **(kwargs or {}))
        given = {_place(each) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        made = [
            each if _place(each) not in given else None for each in tree_leaves(results) if isinstance(each, Tensor)
        ]
        self.steps.append(Step(func, args, kwargs or {}, made, results))
        return results


def _place(states: Tensor) -> int:
    # Packed weights keep their storage to themselves.
    return states.untyped_storage().data_ptr() if states.layout == torch.strided else -id(states)


@dataclass
class Rehearsal:
    """Captures by writing down; `captured` counts what it captured, `replayed` how often that was done again."""

    captured: int = 0
    replayed: int = 0
    steps: list[Sequence[Step]] = field(default_factory=list)

    def capture(self, run: Callable[[], tuple[Tensor, ...]]) -> Callable[[], tuple[Tensor, ...]]:
        with Blind(), Recorder() as recorder:
            found = run()
        steps = recorder.steps
        self.captured += 1
        self.steps.append(steps)

        def replay() -> tuple[Tensor, ...]:
            self.replayed += 1
            for step in steps:
                for made in step.made:
                    if made is not None:
                        _spoil(made)
            for step in steps:
                results = [
                    each for each in tree_leaves(step.call(*step.args, **step.kwargs)) if isinstance(each, Tensor)
                ]
                for made, result in zip(step.made, results, strict=True):
                    if made is not None:
                        assert made.shape == result.shape
                        made.copy_(result)
            return found

        return replay


def _spoil(states: Tensor) -> None:
    if states.is_floating_point():
        states.fill_(torch.nan)
    elif states.dtype != torch.bool:
        states.fill_(-1)
