"""From logits to the law that is sampled: repetition penalty, temperature, top-k, top-p, in that order.

The order is transformers' own. The output of speculative decoding is exact for the *warped* target law, so drafter and
target may be warped differently, but q must be the law the drafts were really drawn from (algorithms §1.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from spec_viz.engine.proposal import ROOT, chain

# A full sort of 49,152 logits costs 14 ms for five rows, a top-1024 two; the nucleus rarely needs more.
NUCLEUS_GUESS = 1024
# Below it logits ÷ temperature may be no float32. The law is that of the limit: all on the largest logits, ties alike.
COLD = 1e-30


@dataclass(frozen=True, slots=True)
class Warp:
    """How a law is sharpened or cut before it is sampled: temperature 0 is greedy, top_k 0 and top_p 1 cut nothing."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        # Asked so that NaN, of which every comparison is false, is refused too.
        if not (self.temperature >= 0 and self.top_k >= 0 and 0 < self.top_p <= 1 and self.repetition_penalty > 0):
            raise ValueError("temperature ≥ 0, top_k ≥ 0, 0 < top_p ≤ 1 and repetition_penalty > 0 are needed")

    def law(
        self,
        logits: Tensor,
        prefix: Sequence[int],
        drafts: Sequence[int] = (),
        parents: Sequence[int] | None = None,
    ) -> Tensor:
        """The warped law (n + 1, V) of logits (n + 1, V): row 0 follows `prefix`, row i + 1 also draft i's path.

        `parents` make the drafts a tree; left out they are a chain.
        """
        if self.repetition_penalty != 1.0:
            logits = self._penalised(logits, prefix, drafts, chain(len(drafts)) if parents is None else parents)
        if self.temperature == 0:
            return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
        if self.temperature < COLD:
            logits = (logits - logits.amax(-1, keepdim=True)) / torch.finfo(logits.dtype).tiny
        else:
            logits = logits / self.temperature
        if 0 < self.top_k < logits.shape[-1]:
            floor = logits.topk(self.top_k).values[:, -1:]
            logits = logits.masked_fill(logits < floor, -torch.inf)
        law = logits.softmax(-1)
        return law if self.top_p == 1.0 else _nucleus(law, self.top_p)

    def _penalised(
        self, logits: Tensor, prefix: Sequence[int], drafts: Sequence[int], parents: Sequence[int]
    ) -> Tensor:
        # Each row has its own hypothetical prefix: one set for all rows would change the law of later rows.
        logits = logits.clone()
        before = {ROOT: set(prefix)}
        for node, parent in enumerate(parents):
            before[node] = before[parent] | {drafts[node]}
        for row in range(len(logits)):
            seen = torch.tensor(sorted(before[row - 1]), device=logits.device)
            values = logits[row, seen]
            logits[row, seen] = torch.where(
                values < 0, values * self.repetition_penalty, values / self.repetition_penalty
            )
        return logits


def _nucleus(law: Tensor, top_p: float) -> Tensor:
    """Keep the smallest set of most probable tokens whose mass reaches top_p, renormalised."""
    size = law.shape[-1]
    # A device sorts faster than the program could ask it whether the guess was enough.
    count = size if law.is_cuda else min(NUCLEUS_GUESS, size)
    values, ids = law.topk(count)
    if count < size and bool((values.sum(-1) < top_p).any()):
        values, ids = law.sort(-1, descending=True)
    before = values.cumsum(-1) - values
    kept = values.masked_fill(before >= top_p, 0.0)
    return torch.zeros_like(law).scatter_(-1, ids, kept / kept.sum(-1, keepdim=True))
