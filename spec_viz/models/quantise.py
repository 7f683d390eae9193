"""Weights in 8 or 4 bits: a linear layer keeps codes and scales, and its weights are read off them as they are needed.

Weight-only: what goes through the layers stays float32. Codes become float32 a block at a time, small enough for the
processor's cache, and the block is multiplied as ever; so memory is saved and time is lost, where a kernel that
multiplies codes directly would save both. torch has one for 8 bits on a CPU (`_weight_int8pack_mm`); it takes float32
too, but is only fast in bfloat16. That is `int8_bfloat16` here: each of its rows is the same whatever its neighbours
are, and yet its texts can change under speculation, because what float32 attention sums in another order differs in
the last bit, and rounding to 8 bits of mantissa makes a visible step of that. Measured with prompt lookup over twelve
held-out prompts of SmolLM2-135M (48 tokens, AMD EPYC, 2026-11-30): two of its texts left its own plain text. It is
kept to show just that; integer activations with one scale for a whole pass would not even keep the law, since a row
then depends on its neighbours.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from spec_viz.engine.pack import PackedLinear
from spec_viz.models.load import Loaded

Weights = Literal["full", "int8", "int4", "int8_bfloat16"]
WEIGHTS: tuple[Weights, ...] = get_args(Weights)

# Numbers of one row of a weight matrix that share their steps. The default model comes from a file of 4 bits in groups
# of 32 (Q4_1): cut there again, it would lose nothing, which no other model would.
GROUP = 64
# Weights that are float32 at a time, 2 MB.
BLOCK = 1 << 19


class QuantisedLinear(nn.Module, ABC):
    """y = x Wᵀ + b with W (out, in) held as codes; for inference only, and nothing of it is a parameter."""

    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.register_buffer("bias", bias)

    @abstractmethod
    def weight(self, start: int, end: int) -> Tensor:
        """Rows `start` to `end` of W as they were stored, float32."""

    def forward(self, rows: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        size = max(BLOCK // self.in_features, 1)
        starts = range(0, self.out_features, size)
        blocks = [nn.functional.linear(rows, self.weight(at, at + size).to(rows.dtype)) for at in starts]
        product = torch.cat(blocks, -1)
        return product if self.bias is None else product + self.bias

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Int8Linear(QuantisedLinear):
    """A byte a weight, and one scale an output row: its largest magnitude is code 127."""

    codes: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        scale = weight.float().abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / 127
        self.register_buffer("codes", (weight.float() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)

    def weight(self, start: int, end: int) -> Tensor:
        return self.codes[start:end].float().mul_(self.scale[start:end])


class Int8Bfloat16Linear(Int8Linear):
    """The same codes through torch's own kernel, which rounds what comes in and what goes out to bfloat16."""

    def forward(self, rows: Tensor) -> Tensor:
        flat = rows.reshape(-1, self.in_features).bfloat16()
        product = torch.ops.aten._weight_int8pack_mm(flat, self.codes, self.scale.flatten().bfloat16())
        whole: Tensor = product.to(rows.dtype).view(*rows.shape[:-1], self.out_features)
        return whole if self.bias is None else whole + self.bias


class Int4Linear(QuantisedLinear):
    """Half a byte a weight; GROUP numbers of a row share where their 16 steps begin and how wide they are (float16).

    ValueError where a row cannot be cut into whole groups.
    """

    codes: Tensor
    low: Tensor
    step: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        if self.in_features % GROUP:
            raise ValueError(f"rows of {self.in_features} weights cannot be cut into groups of {GROUP}")
        groups = weight.float().view(self.out_features, -1, GROUP)
        low = groups.amin(-1, keepdim=True)
        step = ((groups.amax(-1, keepdim=True) - low) / 15).clamp_min(torch.finfo(torch.float16).smallest_normal)
        self.register_buffer("low", low.half())
        self.register_buffer("step", step.half())
        # The codes are chosen for the rounded steps, with which they will be read.
        codes = ((groups - self.low.float()) / self.step.float()).round().clamp(0, 15).to(torch.uint8).flatten(1)
        self.register_buffer("codes", codes[:, ::2] | codes[:, 1::2] << 4)

    def weight(self, start: int, end: int) -> Tensor:
        packed = self.codes[start:end]
        codes = torch.stack([packed & 15, packed >> 4], -1).float().view(len(packed), -1, GROUP)
        return codes.mul_(self.step[start:end].float()).add_(self.low[start:end].float()).flatten(1)


_LAYERS: dict[Weights, Callable[[Tensor, Tensor | None], QuantisedLinear]] = {
    "int8": Int8Linear,
    "int4": Int4Linear,
    "int8_bfloat16": Int8Bfloat16Linear,
}


@cache
def can_run(weights: Weights) -> bool:
    """Whether this build of torch has what this form needs; tried on a small matrix where that is a kernel."""
    if weights != "int8_bfloat16":
        return True
    try:
        Int8Bfloat16Linear(torch.eye(32), None)(torch.ones(2, 32))
    except (AttributeError, NotImplementedError, RuntimeError):  # the private operator is missing, or refuses
        return False
    return True


@torch.inference_mode()
def quantise(loaded: Loaded, weights: Weights) -> Loaded:
    """The model with its linear layers in this form, the output head included; the original stays as it is.

    Embedding and norms are shared with the original. `weight_bytes` counts what the quantised model holds: the
    embedding too, which no longer serves as the head. `full` gives the model itself back.
    """
    if weights == "full":
        return loaded
    model = _rebuilt(loaded.model, _LAYERS[weights])
    return replace(loaded, model=model, weight_bytes=bytes_held(model), packed=False)


def bytes_held(model: nn.Module) -> int:
    """Bytes of a model's parameters and of its quantised layers' codes and scales, each once."""
    held = {id(each): each.nbytes for each in model.parameters()}
    for module in model.modules():
        if isinstance(module, QuantisedLinear):
            held |= {id(each): each.nbytes for each in module.buffers()}
    return sum(held.values())


def _rebuilt(module: nn.Module, layer: Callable[[Tensor, Tensor | None], QuantisedLinear]) -> nn.Module:
    """A view of a module in which every linear layer is replaced; what has none in it is shared."""
    if isinstance(module, nn.Linear | PackedLinear):
        return layer(_weight(module), module.bias)
    view: Any = copy.copy(module)
    view._modules = {
        name: child if child is None else _rebuilt(child, layer) for name, child in module._modules.items()
    }
    return view  # type: ignore[no-any-return]


@torch.inference_mode()
def in_float64(loaded: Loaded) -> Loaded:
    """The same model computing in float64, with copies of its own; codes stay codes.

    What is summed in another order differs far less there: by 2⁻⁵² of a number, not by 2⁻²³. So texts that differ in
    float32 and agree here were told apart by rounding alone.
    """
    return replace(loaded, model=_doubled(loaded.model), dtype=torch.float64, packed=False)


def _doubled(module: nn.Module) -> nn.Module:
    view: Any
    if isinstance(module, nn.Linear | PackedLinear):
        view = nn.Linear(1, 1)
        view.in_features, view.out_features = module.in_features, module.out_features
        own: dict[str, Tensor | None] = {"weight": _weight(module), "bias": module.bias}
    else:
        view, own = copy.copy(module), {**module._parameters}
    view._modules = {name: child if child is None else _doubled(child) for name, child in module._modules.items()}
    view._parameters = {
        name: each if each is None else nn.Parameter(each.double(), requires_grad=False) for name, each in own.items()
    }
    return view  # type: ignore[no-any-return]


def _weight(linear: nn.Linear | PackedLinear) -> Tensor:
    """W (out, in); of a packed layer, which cannot be read, what it makes of the unit vectors."""
    if isinstance(linear, nn.Linear):
        return linear.weight
    bare: Any = copy.copy(linear)
    bare.bias = None
    return bare(torch.eye(linear.in_features)).T.contiguous()  # type: ignore[no-any-return]
