"""Answers of a vLLM server, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spec_viz.serving.client import Answer, Arrival

GAMMA = 4


def account(steps: Sequence[tuple[int, int]], gamma: int = GAMMA) -> dict[str, Any]:
    """What vLLM says of (drafted, kept) steps, as its documentation has it."""
    drafted, kept = [step[0] for step in steps], [step[1] for step in steps]
    body: dict[str, Any] = {
        "mean_acceptance_length": 1 + sum(kept) / len(steps) if steps else 1.0,
        "draft_acceptance_rate": sum(kept) / sum(drafted) if steps else 0.0,
        "acceptance_histogram": [kept.count(count) for count in range(gamma + 1)],
        "num_spec_steps": len(steps),
        "num_accepted_draft_tokens": sum(kept),
        "num_draft_tokens": sum(drafted),
        "num_spec_tokens": gamma,
    }
    # An answer that drafted nothing has no lists.
    return body | ({"per_step_accepted": kept, "per_step_drafted": drafted} if steps else {})


def answer(arrivals: Sequence[int], steps: Sequence[tuple[int, int]] | None) -> Answer:
    """An answer that came in arrivals of so many tokens, 10 ms apart, and ended at its length."""
    tokens = sum(arrivals)
    return Answer(
        "text",
        tuple(range(100, 100 + tokens)),
        tuple(Arrival(10.0 * (place + 1), count) for place, count in enumerate(arrivals)),
        tokens,
        None if steps is None else {"speculative_decoding": account(steps)},
        (1, 2, 3),
        "length",
    )
