"""Blocks for the tiny target, plainly: all at once, without a cache; random ones, and ones that know its text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from spec_viz.drafters.dflash import DFlash
from spec_viz.drafters.dspark import DSpark
from spec_viz.drafters.head import Head
from tests.engine import heads
from tests.engine.tiny import VOCABULARY, model

BLOCK = 5
RANK = 6
TEMPERATURES = (1.4, 0.7, 1.0, 2.0, 0.9)
LLAMA: dict[str, Any] = heads.LLAMA | {"num_hidden_layers": 2}


def config() -> Any:
    return type(heads.config())(**LLAMA)


def fresh(method: str) -> DFlash:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(8)
        fused = len(heads.FUSED)
        body = DFlash(config(), fused) if method == "dflash" else DSpark(config(), fused, len(heads.draft_ids()), RANK)
        nn.init.normal_(body.mask, std=0.5)
    return body


def plain_states(body: DFlash, features: Tensor, anchor: int) -> Tensor:
    """The normed states (block, d) behind the features (n, layers · d) of all tokens before the anchor."""
    context = body.hidden_norm(body.fc(features))
    table = model().model.embed_tokens.weight.detach().float()
    states = torch.stack([table[anchor], *[body.mask] * (BLOCK - 1)])
    n, heads_, groups = len(context), LLAMA["num_attention_heads"], LLAMA["num_key_value_heads"]
    cos, sin = body.angles(context[None], torch.arange(n + BLOCK)[None])
    for layer in body.layers:
        attention: Any = layer.self_attn
        inputs: Tensor = layer.input_layernorm(states)  # type: ignore[operator]
        everything = torch.cat([context, inputs])
        # Queries of the context are made too, and thrown away.
        queries = attention.q_norm(attention.q_proj(everything).view(n + BLOCK, heads_, -1)).transpose(0, 1)
        keys = attention.k_norm(attention.k_proj(everything).view(n + BLOCK, groups, -1)).transpose(0, 1)
        values = attention.v_proj(everything).view(n + BLOCK, groups, -1).transpose(0, 1)
        queries, keys = (each[0] for each in apply_rotary_pos_emb(queries[None], keys[None], cos, sin))
        keys, values = (each.repeat_interleave(heads_ // groups, 0) for each in (keys, values))
        scores = queries[:, n:] @ keys.transpose(1, 2) / attention.head_dim**0.5
        states = states + attention.o_proj((scores.softmax(-1) @ values).transpose(0, 1).flatten(1))
        states = states + layer.mlp(layer.post_attention_layernorm(states))  # type: ignore[operator]
    return body.norm(states)  # type: ignore[no-any-return]


def wide(logits: Tensor) -> Tensor:
    """Logits (n, Vd) as laws (n, V)."""
    law = torch.zeros(len(logits), VOCABULARY)
    law[:, heads.draft_ids()] = logits.softmax(-1)
    return law


@torch.inference_mode()
def plain_dflash(body: DFlash, text: Sequence[int]) -> Tensor:
    """The laws (block − 1, V) of the drafts behind a text."""
    return wide(plain_states(body, heads.fused(text[:-1]), text[-1])[1:] @ heads.rows().T)


def row_of(token: int) -> int:
    ids = heads.draft_ids().tolist()
    return ids.index(token) if token in ids else len(ids)


@torch.inference_mode()
def plain_dspark(body: DSpark, text: Sequence[int], drafts: Sequence[int]) -> tuple[Tensor, list[float]]:
    """The laws (n, V) and confidences of the slots that follow the text and each of the drafts but the last."""
    states = plain_states(body, heads.fused(text[:-1]), text[-1])
    before = [text[-1], *drafts][: len(drafts)]
    logits, sure = [], []
    for slot, token in enumerate(before):
        row = body.markov_head.markov_w1.weight[row_of(token)]
        logits.append(heads.rows() @ states[slot] + body.markov_head.markov_w2.weight @ row)
        proj = body.confidence_head.proj
        logit = proj.weight[0] @ torch.cat([states[slot], row]) + proj.bias[0]
        sure.append(float((logit / TEMPERATURES[slot]).sigmoid()))
    return wide(torch.stack(logits)), sure


@cache
def body(method: str) -> Any:
    """One that has learned the texts: a block behind every anchor says what follows."""
    made = fresh(method)
    lessons = [(text, heads.fused(text)) for text in heads.texts()]

    def loss() -> Tensor:
        losses = []
        for text, features in lessons:
            for anchor in range(20, len(text) - 1, 2):
                states = plain_states(made, features[:anchor], text[anchor])
                wanted = heads.places(text[anchor + 1 : anchor + BLOCK])
                logits = states[1:] @ heads.rows().T
                if isinstance(made, DSpark):
                    rows = torch.tensor([row_of(token) for token in text[anchor : anchor + len(wanted)]])
                    corrections = made.markov_head.markov_w2(made.markov_head.markov_w1(rows))
                    logits = states[: len(wanted)] @ heads.rows().T + corrections
                losses.append(nn.functional.cross_entropy(logits[: len(wanted)], wanted))
        return torch.stack(losses).mean()

    heads.learn(made, loss, 60)
    return made


@cache
def head(method: str, learned: bool = True) -> Head:
    """A head of the tiny target; one that has learned nothing is random."""
    kept = {"layers": list(heads.FUSED), "llama": LLAMA, "block": BLOCK}
    if method == "dspark":
        kept |= {"markov_rank": RANK, "temperatures": list(TEMPERATURES)}
    tensors = dict((body(method) if learned else rough(method)).state_dict())
    return Head(method, {"method": method, "target": "tiny", **kept}, tensors | heads.maps())


@cache
def rough(method: str) -> Any:
    """A random one whose laws and confidences are far from even."""
    made = fresh(method)
    make = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            noise = torch.randn(weight.shape, generator=make)
            weight.copy_(1 + 0.3 * noise if "norm" in name else noise * (1.5 if "confidence" in name else 0.4))
    return made.requires_grad_(False)
