"""Linear layers whose weights lie in the order oneDNN multiplies in.

`nn.Linear` hands oneDNN or MKL a plain row-major matrix, and for the few rows of a decode step or a verify pass the
library then spends more time walking that matrix than multiplying. Packed once, five rows cost little more than one:
the very thing speculative decoding lives on. Measured as whole passes of SmolLM2-135M (float32, two threads of a busy
AMD EPYC, 2026-11-29, medians of twelve): 1, 2, 5 and 9 rows take 99, 179, 170 and 174 ms plain, 89, 97, 117 and 127 ms
packed. MKL's own packed form keeps the plain matrix beside it and gained nothing there.
"""

from __future__ import annotations

from functools import cache
from typing import cast

import torch
from torch import Tensor, nn

# Rows the packed order is chosen for. Any number of rows may come; 5 is a verify pass at γ = 4.
ROWS = 5


class PackedLinear(nn.Module):
    """y = x Wᵀ + b in float32 on a CPU, with W (out, in) packed; for inference only: no gradient passes through.

    The packed matrix is opaque and no parameter, so a state dict does not hold it.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach(), requires_grad=False)
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), ROWS)

    def forward(self, rows: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        return cast(Tensor, torch.ops.mkldnn._linear_pointwise(rows, self._packed, self.bias, "none", [], ""))

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


@cache
def can_pack() -> bool:
    """Whether this build of torch, on this processor, packs and multiplies; tried on a small matrix."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    linear = nn.Linear(8, 4)
    rows = torch.linspace(-1, 1, 16).view(2, 8)
    try:
        with torch.inference_mode():
            return torch.allclose(PackedLinear(linear)(rows), linear(rows), atol=1e-5)
    except (AttributeError, NotImplementedError, RuntimeError):  # the private operator is missing, or refuses
        return False


def pack(model: nn.Module) -> bool:
    """Replace every float32 `nn.Linear` of a CPU model in place, the output head included; False where that can't be.

    An embedding tied to the head keeps its own table for look-up. Each original is let go as soon as it is packed, so
    the peak is one matrix above the packed size.
    """
    if not can_pack():
        return False
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child.weight.dtype == torch.float32:
                setattr(parent, name, PackedLinear(child))
    _leave_file(model)
    return True


def _leave_file(model: nn.Module) -> None:
    """Copy what was not packed out of the mapped weights file, which stays in memory while any view of it lives."""
    for weight in model.parameters():
        weight.data = weight.data.clone()
