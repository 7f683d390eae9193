"""Our decoding held against what a vLLM server says of the same request: ids, and drafts step by step."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pytest
import torch

from spec_viz.engine.trace import Trace
from spec_viz.lab.run import Request, end_tokens, start
from spec_viz.models.load import Loaded
from tests.server.served import Answer, Step

# Two passes over different numbers of rows may differ by this much in a logit: float32 sums in another order.
ROUNDING = 1e-3


@dataclass(frozen=True, slots=True)
class Ours:
    """A round with drafts: its step, the length of the output after it, and whether its drafts end at an end-of-text.

    There the loop lets go of what the drafter copied from further on, and a model drafts no further; vLLM drafts,
    verifies and counts it.
    """

    step: Step
    end: int
    cut: bool

    def is_same(self, theirs: Step) -> bool:
        if self.cut:
            drafted = self.step.drafted
            theirs = Step(min(theirs.accepted, drafted), min(theirs.drafted, drafted))
        return self.step == theirs


@dataclass(frozen=True, slots=True)
class Comparison:
    """Counts over the compared steps; where the texts part, the place of that token and the lead of the best logit."""

    steps: int
    drafted: int
    accepted: int
    tie: tuple[int, float] | None


def rounds(trace: Trace, ends: frozenset[int], length: int) -> Iterator[Ours]:
    """The rounds with drafts that begin before this many tokens are out."""
    out = 0
    for round_ in trace.rounds:
        if out >= length:
            return
        out += len(round_.committed)
        if round_.nodes:
            yield Ours(Step(len(round_.path), len(round_.nodes)), out, round_.nodes[-1].id in ends)


@torch.inference_mode()
def margin(loaded: Loaded, tokens: tuple[int, ...]) -> float:
    """By how much the best next logit leads the second."""
    best = loaded.model(torch.tensor([tokens], device=loaded.device)).logits[0, -1].float().topk(2).values
    return float(best[0] - best[1])


def compare(loaded: Loaded, request: Request, theirs: Answer) -> Comparison:
    """Decode what the server decoded and hold every step against vLLM's, up to the first near-tie it decided otherwise.

    `request.max_new_tokens` is what the server was asked for.
    """
    # Ours drafts no further than the text may grow, vLLM does: with γ + 1 to spare our last rounds are whole as well.
    longer = replace(request, max_new_tokens=request.max_new_tokens + request.gamma + 1)
    trace = start(loaded, longer).collect()
    assert trace.prompt == theirs.prompt, "the prompt's ids differ"
    length = len(theirs.output)
    ours = trace.output if theirs.ended else trace.output[:length]
    mine, steps, tie = list(rounds(trace, end_tokens(loaded), length)), theirs.steps, None
    if ours != theirs.output:
        parted = next((i for i, (a, b) in enumerate(zip(ours, theirs.output, strict=False)) if a != b), None)
        assert parted is not None, f"one text ends where the other goes on: {len(ours)} and {length} tokens"
        lead = margin(loaded, trace.prompt + theirs.output[:parted])
        assert lead < ROUNDING, f"other token at {parted}, where the best logit leads by {lead}"
        # From there on the two continue different texts.
        mine, tie = [round_ for round_ in mine if round_.end <= parted], (parted, lead)
        steps = steps[: len(mine)]
    assert len(mine) == len(steps), f"{len(mine)} steps with drafts, vLLM has {len(steps)}"
    for number, (round_, step) in enumerate(zip(mine, steps, strict=True)):
        assert round_.is_same(step), f"step {number}, {round_.end} tokens out: ours {round_.step}, vLLM's {step}"
    return Comparison(len(mine), sum(r.step.drafted for r in mine), sum(r.step.accepted for r in mine), tie)


def tell(capsys: pytest.CaptureFixture[str], what: str, compared: Iterable[Comparison]) -> None:
    """Print what was compared, past pytest's capture."""
    every = list(compared)
    ties = [(number, *one.tie) for number, one in enumerate(every) if one.tie]
    counts = [sum(getattr(one, name) for one in every) for name in ("steps", "drafted", "accepted")]
    with capsys.disabled():
        sys.stdout.write(
            f"\n{what}: {len(every)} prompts, {counts[0]} steps equal ({counts[1]} drafted, {counts[2]} kept), "
            f"near-ties (prompt, token, lead): {ties}\n"
        )
