"""The formulas of speculative decoding, each a pure function of plain numbers.

Letters: α acceptance rate, γ drafted tokens a round, c one draft step ÷ one target step, v a target pass over
γ + 1 tokens ÷ over one, `overhead` everything else ÷ one target step. Source: Leviathan et al., arXiv 2211.17192 (the
numbers below are theirs). Our cost terms v and overhead refine its Theorem 3.8, which sets v = 1 and overhead = 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from scipy.optimize import brentq

MAX_GAMMA = 64


def expected_tokens(alpha: float, gamma: int) -> float:
    """Mean tokens a round emits, the target's own included: (1 − α^(γ+1)) / (1 − α), i.i.d. acceptance (eq. 1)."""
    return math.fsum(alpha**k for k in range(gamma + 1))


def expected_tokens_by_position(rates: Sequence[float]) -> float:
    """Mean tokens a round emits when position i is accepted with rate a_i given all before it: 1 + Σ_k Π_{i≤k} a_i."""
    return 1.0 + math.fsum(accumulate(rates, mul))


def accepted_length_law(alpha: float, gamma: int) -> tuple[float, ...]:
    """P(exactly k drafts accepted) for k = 0 … γ: α^k (1 − α), and α^γ at the end."""
    return (*(alpha**k * (1 - alpha) for k in range(gamma)), alpha**gamma)


def round_cost(gamma: int, c: float, v: float = 1.0, overhead: float = 0.0) -> float:
    """Time of a round in target steps: γ·c + v(γ+1) + overhead."""
    return gamma * c + v + overhead


def speedup(alpha: float, gamma: int, c: float, v: float = 1.0, overhead: float = 0.0) -> float:
    """How many times faster than plain decoding, i.i.d. acceptance (Theorem 3.8 with measured v and overhead)."""
    return expected_tokens(alpha, gamma) / round_cost(gamma, c, v, overhead)


def best_gamma(alpha: float, c: float, max_gamma: int = MAX_GAMMA) -> tuple[int, float]:
    """The γ with the greatest speedup, and that speedup, for v = 1 (§3.5); γ = 0 is plain decoding."""
    # There is no closed form, so every γ is tried.
    gamma = max(range(max_gamma + 1), key=lambda g: speedup(alpha, g, c))
    return gamma, speedup(alpha, gamma, c)


def break_even(gamma: int, c: float, v: float = 1.0, overhead: float = 0.0) -> float | None:
    """The smallest α from which drafting γ tokens is no slower than plain decoding; None when even α = 1 is slower."""
    if speedup(1.0, gamma, c, v, overhead) < 1.0:
        return None
    if speedup(0.0, gamma, c, v, overhead) >= 1.0:
        return 0.0
    return float(brentq(lambda alpha: speedup(alpha, gamma, c, v, overhead) - 1.0, 0.0, 1.0))


def operations_ratio(alpha: float, gamma: int, c_ops: float) -> float:
    """Arithmetic of speculative ÷ plain decoding; c_ops is the drafter's ÷ the target's per token (Theorem 3.11)."""
    return (gamma * c_ops + gamma + 1) / expected_tokens(alpha, gamma)


def wrong_expected_tokens(alpha: float, gamma: int) -> float:
    """The wrong formula 1 / (1 − α^γ), kept to be shown failing: it falls as γ grows and passes the ceiling γ + 1."""
    return 1.0 / (1.0 - math.pow(alpha, gamma))


def ridge_tokens(flops: float, bytes_per_second: float, bytes_per_parameter: float) -> float:
    """Tokens in one pass at which arithmetic takes as long as reading the weights once: FLOPS·bytes ÷ (2·bandwidth)."""
    return flops * bytes_per_parameter / (2.0 * bytes_per_second)
