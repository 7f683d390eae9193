"""Uniform draws that are looked up by key instead of taken from a running stream.

A stream makes a run depend on how many numbers others took before; a key does not. `match` keys by (seed, position),
so every one-hot drafter writes the baseline's own text. All other rules key by (seed, round, position, purpose):
`block` looks at later draws before it decides, so a position drafted again must not meet the same draw again.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Draws:
    """The draws of one round: `length` tokens are committed, so the first draft stands at position `length`."""

    seed: int
    round: int
    length: int

    def by_position(self, offset: int) -> float:
        """The draw of position `length + offset`, the same in whatever round it is asked for."""
        return uniform(self.seed, "position", self.length + offset)

    def by_round(self, purpose: str, offset: int) -> float:
        """A draw for one purpose at one position of this round, met only once."""
        return uniform(self.seed, purpose, self.round, self.length + offset)


def uniform(*key: int | str) -> float:
    """A number in [0, 1) with 53 random bits, a pure function of the key."""
    digest = blake2b(repr(key).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


def pick(law: Tensor, u: float) -> int:
    """The token at quantile u of a law (V,), by inverse CDF in float64; the law need not be normalised."""
    cumulative = law.to(torch.float64).cumsum(0)
    index = int(torch.searchsorted(cumulative, u * float(cumulative[-1]), right=True))
    # Rounding can place the quantile behind the last token that has any mass.
    return index if index < len(law) else int(law.nonzero()[-1])
