"""Draws that are looked up by key instead of taken from a running stream.

A stream makes a run depend on how many numbers others took before; a key does not. `match` keys by (seed, position),
so every one-hot drafter writes the baseline's own text. All other rules key by (seed, round, position, purpose):
`block` looks at later draws before it decides, so a position drafted again must not meet the same draw again.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Draws:
    """The draws of one round: `length` tokens are committed, so the first draft stands at position `length`."""

    seed: int
    round: int
    length: int

    def own(self, law: Tensor, offset: int) -> int:
        """The target's own token of position `length + offset`, the same in whatever round it is asked for."""
        return race(law, self.seed, "position", self.length + offset)

    def by_round(self, purpose: str, offset: int) -> float:
        """A draw for one purpose at one position of this round, met only once."""
        return uniform(self.seed, purpose, self.round, self.length + offset)


def uniform(*key: int | str) -> float:
    """A number in [0, 1) with 53 random bits, a pure function of the key."""
    return (_hash(key, 8) >> 11) * 2.0**-53


def race(law: Tensor, *key: int | str) -> int:
    """The winner of a race in which each token of a law (V,) arrives after an exponential time of rate p.

    The winner is distributed as the law, which need not be normalised. Unlike a quantile of the cumulative sum, it
    hangs on ratios of single probabilities, so the rounding of a pass with other rows beside it (1e-6 relative) almost
    never changes the winner: a sum of 49,152 terms shifts by as much as a rare token is wide, and did so once in a
    thousand tokens.
    """
    p = law.to("cpu", torch.float64).numpy()
    starters = np.flatnonzero(p)
    if len(starters) == 1:
        return int(starters[0])
    bits = np.random.Philox(key=_hash(key, 16)).random_raw(len(p))[starters]
    arrivals = -np.log(((bits >> np.uint64(11)) + np.uint64(1)) * 2.0**-53) / p[starters]
    return int(starters[arrivals.argmin()])


def _hash(key: tuple[int | str, ...], size: int) -> int:
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=size).digest(), "big")


def pick(law: Tensor, u: float) -> int:
    """The token at quantile u of a law (V,), by inverse CDF in float64; the law need not be normalised."""
    cumulative = law.to(torch.float64).cumsum(0)
    index = int(torch.searchsorted(cumulative, u * float(cumulative[-1]), right=True))
    # Rounding can place the quantile behind the last token that has any mass.
    return index if index < len(law) else int(law.nonzero()[-1])


def pick_there(law: Tensor, u: float) -> Tensor:
    """The token (1,) that `pick` finds, left on the law's device."""
    cumulative = law.to(torch.float64).cumsum(0)
    index = torch.searchsorted(cumulative, u * cumulative[-1:], right=True)
    places = torch.arange(len(law), device=law.device)
    return torch.minimum(index, places.where(law > 0, -1).max())
