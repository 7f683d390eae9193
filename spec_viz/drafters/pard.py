"""PARD: a small language model that says a whole draft in one pass, through mask tokens (2504.18583).

Behind the text stand K − 1 copies of one learned vector, the mask: "a token that is not known yet". The law at the last
real token is that of the first draft, the law at mask k that of draft k + 1. So K drafts cost one pass of a small model
instead of K; but no slot knows what its left neighbour said, only that something will stand there.

The point of the method is how cheaply it is had: any autoregressive model becomes a parallel one by some fine-tuning,
and it needs no state of the target, so that one drafter serves a family of targets. Ours is the trained draft model,
fine-tuned. The slots are marginals, independent of each other given the text: a draft that is drawn slot by slot has
the q that the rules `token` and `block` ask for. The published code takes each slot's best guess instead, which here is
the rule `match`. Beyond `slots`, those that it was trained for, it drafts on with chains of masks longer than any it
has seen: still lossless, but seldom right. See algorithms §4.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel

from spec_viz.drafters.head import Head, embedding_rows
from spec_viz.drafters.model import ModelDrafter, likeliest, model_drafter
from spec_viz.drafters.readout import OWN_ROWS, Readout, placed, put_to_work
from spec_viz.drafters.registry import Anatomy, Family, Setup
from spec_viz.engine.cache import crop, kv_bytes_per_token, new_cache
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Drafter, Outcome, Proposal, Seen, depths


class Pard(nn.Module):
    """The draft model's weights under their names there, and the mask (w,).

    Tokens come in through the target's embedding (V, d) and `narrow`, states go out through `widen` and its output
    rows. With no `width` d it brings tables of its own, as a published checkpoint does.
    """

    def __init__(self, config: LlamaConfig, width: int | None) -> None:
        super().__init__()
        self.model = LlamaModel(config)
        self.mask = nn.Parameter(torch.randn(config.hidden_size))
        self.widen: nn.Module = nn.Identity()
        if width is not None:
            self.model.set_input_embeddings(nn.Identity())
            self.narrow = nn.Linear(width, config.hidden_size, bias=False)
            self.widen = nn.Linear(config.hidden_size, width, bias=False)

    def enter(self, ids: Tensor, table: Tensor) -> Tensor:
        """What the body reads of ids (n,): (n, w)."""
        own = self.model.get_input_embeddings()
        found: Tensor = own(ids) if isinstance(own, nn.Embedding) else self.narrow(table[ids].float())
        return found


class Slots:
    """The body with the cache of one run: it holds what is committed, and of a draft nothing.

    `count` is how many slots the next pass says, `logits` (count, V) what the last one said.
    """

    def __init__(self, model: Any, body: Pard, readout: Readout) -> None:
        self._table = embedding_rows(model)
        self._body = body
        self._readout = readout
        self.count = 1
        self.close()

    @property
    def length(self) -> int:
        return int(self._cache.get_seq_length())

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int], keep: int) -> Tensor:
        """Append committed tokens and say all slots behind them in the same pass; logits (1, V) of the first slot."""
        ids = torch.tensor(tokens, device=self._table.device)
        masks = self._body.mask.expand(self.count - 1, -1)
        entered = torch.cat([self._body.enter(ids, self._table), masks])[None]
        length = self.length + len(tokens)
        states = self._body.model(inputs_embeds=entered, cache=self._cache, use_cache=True).last_hidden_state[0]
        crop(self._cache, length)
        logits: Tensor = self._readout(self._body.widen(states[-self.count :]))
        self.logits = logits
        return logits[:1]

    def feed_tree(self, tokens: Sequence[int], parents: Sequence[int], keep: int) -> tuple[Tensor, Seen]:
        """Logits (keep, V) of the slots behind a chain's last nodes: which tokens these are changes nothing."""
        return self.logits[list(depths(parents)[-keep:])], Seen()

    def roll_back(self, length: int, path: Sequence[int] = ()) -> None:
        """Nothing is kept of a draft."""

    def close(self) -> None:
        self._cache = new_cache()
        self.logits = torch.empty(0)


class PardDrafter(ModelDrafter):
    """A chain, slot by slot out of one pass; every draft comes with the best candidates of its slot."""

    _model: Slots

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        self._model.count = gamma
        proposal = self._stepwise(context, gamma, draws)
        assert proposal.q_raw is not None
        told = enumerate(proposal.q_raw, 1)
        return replace(proposal, why=tuple({"slot": slot, "candidates": likeliest(law)} for slot, law in told))

    def observe(self, outcome: Outcome) -> None:
        # The prompt is read as soon as the target has read it, so that drafting costs the same in every round. What is
        # committed later is read with the next draft.
        if self._model.length == 0:
            self._model.count = 1
            self._model.feed(outcome.context[:-1], keep=1)


def make(head: Head, model: Any) -> tuple[Pard, Readout]:
    """The head's modules as they run beside a target."""
    width = None if OWN_ROWS in head.tensors else model.config.hidden_size
    return put_to_work(Pard(LlamaConfig(**head.config["llama"]), width), head, model)


def build(setup: Setup, _options: Mapping[str, Any]) -> Drafter:
    """PARD with the model trained for this target."""
    head, model = setup.head("pard"), setup.target.model
    body, readout = placed(head, model, make)
    drafter = model_drafter(Slots(model, body, readout), setup, 1, PardDrafter)
    drafter.kv_bytes_per_token = kv_bytes_per_token(body.model)
    drafter.weight_bytes = head.weight_bytes
    return drafter


FAMILY = Family(
    "pard",
    "sampled",
    ("token", "block", "match", "typical", "ensemble", "synthetic"),
    build,
    (),
    "algorithms §4.1; arXiv 2504.18583",
    head="pard",
    anatomy=Anatomy(("ids",), "parallel", "one", "own"),
)
