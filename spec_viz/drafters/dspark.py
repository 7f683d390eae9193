"""DSpark: DFlash's block, made to fit token by token, and only as long as it is worth it (2607.05147).

Three things differ from DFlash. The last committed token's own slot drafts as well: every slot says the token *behind*
it. A Markov head of low rank corrects a slot's logits by the token that stands there by now, W2 · W1[x], so drafts are
drawn one after another although the network ran once. And a confidence head says, before a token is drawn, how likely
the target is to keep it: c = σ(w · [h ; W1[x]]), trained on 1 − ½‖p − q‖₁, with a temperature a slot that was fitted on
held-out answers.

The product of the confidences so far is how likely a draft is to survive. Drafting ends before a slot whose survival is
below the threshold. That looks at the tokens before the slot, never at the one that would be dropped, which would bend
the target's law (algorithms §1.7). See §8.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig

from spec_viz.drafters.dflash import CHAIN_RULES, Backbone, BlockDrafter, DFlash, weigh
from spec_viz.drafters.head import Head, spread
from spec_viz.drafters.model import likeliest, model_drafter
from spec_viz.drafters.readout import Readout, placed, put_to_work
from spec_viz.drafters.registry import Anatomy, Family, Knob, Setup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Drafter, Proposal, Seen, depths


class Markov(nn.Module):
    """What the token before says of the next, at low rank: `markov_w1` (Vd + 1, r) and `markov_w2` (Vd, r).

    The last row of the first is for ids that cannot be drafted.
    """

    def __init__(self, size: int, rank: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(size + 1, rank)
        self.markov_w2 = nn.Linear(rank, size, bias=False)


class Confidence(nn.Module):
    """How likely a slot's draft is to be kept, as a logit."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.proj = nn.Linear(inputs, 1)

    def forward(self, states: Tensor, before: Tensor) -> Tensor:
        """(…, d) and the rows (…, r) of the tokens before → (…)."""
        logits: Tensor = self.proj(torch.cat([states, before], -1))
        return logits.squeeze(-1)


class DSpark(DFlash):
    """DFlash's weights and the two heads', under the names of DeepSpec."""

    def __init__(self, config: LlamaConfig, fused: int, size: int, rank: int) -> None:
        super().__init__(config, fused)
        self.markov_head = Markov(size, rank)
        self.confidence_head = Confidence(config.hidden_size + rank)


@dataclass(frozen=True, slots=True)
class Words:
    """The draft vocabulary: `ids` (Vd,) of the target, and the `rows` (V,) of `markov_w1` by the target's id."""

    ids: Tensor
    rows: Tensor

    @classmethod
    def of(cls, ids: Tensor, width: int) -> Words:
        """Those of a target with `width` ids."""
        rows = torch.full((width,), len(ids), device=ids.device)
        rows[ids] = torch.arange(len(ids), device=ids.device)
        return cls(ids, rows)


class Corrected(Backbone):
    """A block whose logits wait for the token before: a node's follow from its depth and its own token.

    `marginals` (reach, Vd) are the logits before the correction, `confidences` what the head says of each depth that
    was asked for, in the order of asking.
    """

    def __init__(self, model: Any, body: DSpark, readout: Readout, head: Head) -> None:
        super().__init__(model, body, int(head.config["block"]))
        self._markov, self._confidence = body.markov_head, body.confidence_head
        self._readout = readout
        self._words = Words.of(head.draft_ids.to(model.device), len(self._embedding))
        self._temperatures = head.config["temperatures"]
        self.reach = self._slots

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int], keep: int) -> Tensor:
        """Run the block; logits (1, V) of the first draft."""
        self._states = self.run(tokens[-1])[: self.reach]
        self.marginals = self._readout.rows(self._states)
        self.confidences.clear()
        return self._correct([0], tokens[-1:])

    def feed_tree(self, tokens: Sequence[int], parents: Sequence[int], keep: int) -> tuple[Tensor, Seen]:
        """Logits (keep, V) of what follows each of a tree's last nodes."""
        return self._correct(depths(parents)[-keep:], tokens[-keep:]), Seen()

    @torch.inference_mode()
    def _correct(self, slots: Sequence[int], tokens: Sequence[int]) -> Tensor:
        at = list(slots)
        before = self._markov.markov_w1(self._words.rows[list(tokens)])
        sure = self._confidence(self._states[at], before).tolist()
        self.confidences += [
            torch.tensor(logit / self._temperatures[slot]).sigmoid().item()
            for logit, slot in zip(sure, at, strict=True)
        ]
        logits = self.marginals[at] + self._markov.markov_w2(before)
        return spread(logits, self._words.ids, len(self._words.rows))

    def marginal(self, slot: int) -> Tensor:
        """The law (V,) of a slot before the correction, at temperature 1."""
        return spread(self.marginals[slot : slot + 1], self._words.ids, len(self._words.rows)).softmax(-1)[0]

    def roll_back(self, length: int, path: Sequence[int] = ()) -> None:
        """Nothing is kept of a draft."""

    def close(self) -> None:
        super().close()
        self._states = self.marginals = torch.empty(0)
        self.confidences = list[float]()


class DSparkDrafter(BlockDrafter):
    """A chain that ends before the first slot whose survival is below `least`."""

    _model: Corrected

    def require(self, least: float) -> None:
        """Say how likely a draft must be to survive; 0 drafts the whole block."""
        self._least = least

    def survival(self, depth: int) -> float:
        """How likely the draft is to be kept up to this depth, from 1: known before that depth is drawn."""
        return float(torch.tensor(self._model.confidences[:depth]).prod())

    def _begin(self, context: Sequence[int]) -> Tensor | None:
        first = super()._begin(context)
        return None if self.survival(1) < self._least else first

    def _children(self, law: Tensor, count: int, first: int, draws: Draws) -> list[int]:
        if self.survival(first + 1) < self._least:
            return []
        return super()._children(law, count, first, draws)

    def _reason(self, proposal: Proposal, node: int) -> dict[str, Any]:
        """The slot's likeliest tokens before and behind the correction, how sure the head is; why drafting ended."""
        assert proposal.q_raw is not None
        why: dict[str, Any] = {
            "slot": node + 1,
            "candidates": likeliest(self._model.marginal(node)),
            "corrected": likeliest(proposal.q_raw[node]),
            "confidence": round(self._model.confidences[node], 4),
            "survival": round(self.survival(node + 1), 4),
        }
        if node + 1 == len(proposal) and len(self._model.confidences) > len(proposal):
            why["stopped_at"] = round(self.survival(node + 2), 4)
            why["threshold"] = self._least
        return why


def make(head: Head, model: Any) -> tuple[DSpark, Readout]:
    """The head's modules as they run beside a target."""
    config = head.config
    llama = LlamaConfig(**config["llama"])
    body = DSpark(llama, len(config["layers"]), len(head.draft_ids), int(config["markov_rank"]))
    return put_to_work(body, head, model)


def build(setup: Setup, options: Mapping[str, Any], kind: type[DSparkDrafter] = DSparkDrafter) -> Drafter:
    """DSpark with the head trained for this target; `kind` is what the losslessness tests put a fault into."""
    head, model = setup.head("dspark"), setup.target.model
    body, readout = placed(head, model, make)
    drafter = model_drafter(Corrected(model, body, readout, head), setup, 1, kind)
    drafter.prepare(head.config["layers"], int(head.config["block"]))
    drafter.require(int(options["confidence"]) / 100)
    weigh(drafter, head, body)
    return drafter


FAMILY = Family(
    "dspark",
    "sampled",
    CHAIN_RULES,
    build,
    (Knob("confidence", "int", 0, 0, 95),),
    "algorithms §8.2; arXiv 2607.05147",
    head="dspark",
    anatomy=Anatomy(("ids", "hidden"), "hybrid", "one", "own", layers="layers"),
)
