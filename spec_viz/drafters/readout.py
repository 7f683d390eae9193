"""A trained head put to work beside its target: read off by the target's own rows, and packed where it helps.

Heads compute in float32 whatever the target's dtype is; what they take from the target is brought to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from spec_viz.drafters.head import Head, embedding_rows, output_rows, spread
from spec_viz.engine.pack import pack

Placed = TypeVar("Placed")
Body = TypeVar("Body", bound=nn.Module)
# Where a head keeps rows of its own.
OWN_ROWS = "lm_head.weight"
# By target and head, so that what was made of both goes when either goes.
_PLACED: WeakKeyDictionary[Any, WeakKeyDictionary[Head, Any]] = WeakKeyDictionary()


class Readout(nn.Module):
    """The target's output rows of a draft vocabulary: states (n, d) to logits (n, V) over the target's vocabulary.

    A head that was published with rows of its own (Vd, w) is read through those.
    """

    def __init__(self, model: Any, ids: Tensor, own: Tensor | None = None) -> None:
        super().__init__()
        self._ids = ids.to(model.device)
        self._width = len(embedding_rows(model))
        rows = output_rows(model, self._ids).float() if own is None else own
        self.rows = nn.Linear(rows.shape[1], rows.shape[0], bias=False, device="meta")
        self.rows.weight = nn.Parameter(rows, requires_grad=False)

    def forward(self, states: Tensor) -> Tensor:
        """(n, d) → (n, V)."""
        return spread(self.rows(states), self._ids, self._width)


def placed(head: Head, model: Any, make: Callable[[Head, Any], Placed]) -> Placed:
    """What `make` builds of a head for a target: built once, so that a run need not wait for it again.

    It must not hold the head itself, or neither would ever go.
    """
    known = _PLACED.setdefault(model, WeakKeyDictionary())
    if head not in known:
        known[head] = make(head, model)
    made: Placed = known[head]
    return made


def put_to_work(body: Body, head: Head, model: Any) -> tuple[Body, Readout]:
    """A head's module with its weights, and what reads it off, as they run beside a target."""
    body.load_state_dict(weights_of(head), assign=True)
    readout = Readout(model, head.draft_ids, head.tensors.get(OWN_ROWS))
    for module in (body, readout):
        settle(module, model)
    return body, readout


def settle(module: nn.Module, model: Any) -> None:
    """Bring a head's module to the target's device, for inference only; on a CPU its linear layers are packed."""
    module.to(model.device).eval().requires_grad_(False)
    if model.device.type == "cpu":
        pack(module)


def weights_of(head: Head) -> dict[str, Tensor]:
    """A head's own tensors, without the maps between the vocabularies and the rows that `Readout` reads."""
    return {name: tensor for name, tensor in head.tensors.items() if name not in ("d2t", "t2d", OWN_ROWS)}
