"""Heads for the tiny target: random ones, and ones that have learned its greedy text by heart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from spec_viz.drafters.eagle3 import Eagle3
from spec_viz.drafters.head import Head
from spec_viz.drafters.kv_sharing import KvSharing
from spec_viz.drafters.medusa import Medusa
from spec_viz.drafters.pard import Pard
from spec_viz.drafters.registry import Family, Setup
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.length import Fixed, Length
from spec_viz.engine.proposal import Needs, Outcome, Proposal, Seen
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp
from tests.engine.tiny import GREEDY, LAYERS, VOCABULARY, Result, collect, generate, model, never, prompts

Body = TypeVar("Body", bound=nn.Module)

FUSED = (1, 2, LAYERS)
WIDTH = 32
SLOTS = 4
NEW = 24
LLAMA: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
}
# Two layers each; the one asks the target's second layer, with queries of the target's size.
PARD: dict[str, Any] = LLAMA | {"hidden_size": 24, "num_hidden_layers": 2, "head_dim": 8, "vocab_size": VOCABULARY}
ASKING: dict[str, Any] = LLAMA | {"hidden_size": 24, "num_hidden_layers": 2, "head_dim": 8}
ASKED = 1
ACCURACIES = ((0.6, 0.2, 0.1), (0.5, 0.2, 0.1), (0.4, 0.1, 0.1), (0.4, 0.1, 0.05))


@cache
def texts() -> tuple[tuple[int, ...], ...]:
    """Two prompts with what the target greedily writes behind them."""
    return tuple((*prompt, *generate(prompt, NEW)) for prompt in prompts(2))


@cache
def draft_ids() -> Tensor:
    """Three quarters of the vocabulary, with all that the texts hold."""
    needed = {token for text in texts() for token in text[20:]}
    others = [token for token in range(VOCABULARY) if token not in needed]
    return torch.tensor(sorted([*needed, *others[1::2]]))


def maps() -> dict[str, Tensor]:
    ids = draft_ids()
    return {"d2t": ids - torch.arange(len(ids)), "t2d": torch.zeros(VOCABULARY).bool().index_fill(0, ids, True)}


@torch.inference_mode()
def seen(text: Sequence[int], layers: Sequence[int]) -> dict[int, Tensor]:
    """The target's hidden states (n, d) at every token, from one plain pass."""
    states = model()(input_ids=torch.tensor([list(text)]), use_cache=False, output_hidden_states=True).hidden_states
    return {layer: states[layer][0].clone() for layer in layers}


def rows() -> Tensor:
    """The target's output rows of the draft vocabulary (Vd, d)."""
    weight: Tensor = model().lm_head.weight.detach().float()[draft_ids()]
    return weight


# ---------------------------------------------------------------- EAGLE-3, plainly


def config() -> LlamaConfig:
    return LlamaConfig(**LLAMA)


def plain_states(body: Eagle3, tokens: Sequence[int], states: Tensor) -> Tensor:
    """The layer's output (n, d) at every pair of (state, token), all of them at once and without a cache."""
    layer, attention = body.midlayer, body.midlayer.self_attn
    embedded = model().model.embed_tokens.weight.detach().float()[list(tokens)]
    inputs = torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(states)], -1)
    count, heads, groups = len(tokens), LLAMA["num_attention_heads"], LLAMA["num_key_value_heads"]
    queries = attention.q_proj(inputs).view(count, heads, -1).transpose(0, 1)
    keys = attention.k_proj(inputs).view(count, groups, -1).transpose(0, 1)
    values = attention.v_proj(inputs).view(count, groups, -1).transpose(0, 1)
    cos, sin = body.angles(states[None], torch.arange(count)[None])
    queries, keys = (each[0] for each in apply_rotary_pos_emb(queries[None], keys[None], cos, sin))
    keys, values = (each.repeat_interleave(heads // groups, 0) for each in (keys, values))
    scores = queries @ keys.transpose(1, 2) / attention.head_dim**0.5
    scores = scores.masked_fill(torch.ones(count, count).triu(1).bool(), -torch.inf)
    states = states + attention.o_proj((scores.softmax(-1) @ values).transpose(0, 1).flatten(1))
    return states + layer.mlp(layer.post_attention_layernorm(states))  # type: ignore[no-any-return]


def plain_logits(body: Eagle3, states: Tensor) -> Tensor:
    """Logits (n, Vd)."""
    return body.norm(states) @ rows().T  # type: ignore[no-any-return]


def fused(text: Sequence[int]) -> Tensor:
    """The features (n, layers · d) of every token."""
    return torch.cat([seen(text, FUSED)[layer] for layer in FUSED], -1).float()


def plain_eagle3(body: Eagle3, text: Sequence[int], path: Sequence[int]) -> Tensor:
    """Logits (V,) behind a text and a drafted path: true pairs for the text, own states from there on."""
    tokens = [*text[1:], *path]
    states = body.fc(fused(text[:-1]))
    for _ in path:
        states = torch.cat([states, plain_states(body, tokens[: len(states)], states)[-1:]])
    logits = torch.full((VOCABULARY,), -torch.inf)
    logits[draft_ids()] = plain_logits(body, plain_states(body, tokens, states)[-1:])[0].detach()
    return logits


@cache
def eagle3_body() -> Eagle3:
    """One that has learned the texts: state and token in, the token after next out."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        body = Eagle3(config(), len(FUSED))
    lessons = [(text, fused(text)) for text in texts()]

    def loss() -> Tensor:
        return torch.stack(
            [
                nn.functional.cross_entropy(
                    plain_logits(body, plain_states(body, text[1:-1], body.fc(features[:-2])))[18:],
                    places(text[20:]),
                )
                for text, features in lessons
            ]
        ).mean()

    learn(body, loss, 60)
    return body


@cache
def medusa_body() -> Medusa:
    """Heads that have learned the texts."""
    body = Medusa(WIDTH, SLOTS)
    lessons = [(text, seen(text, (LAYERS,))[LAYERS].float()) for text in texts()]

    def loss() -> Tensor:
        losses = []
        for text, states in lessons:
            logits = body(states) @ rows().T
            for head in range(SLOTS):
                wanted = places(text[20 + head :])
                first = 18
                losses.append(nn.functional.cross_entropy(logits[first : first + len(wanted), head], wanted))
        return torch.stack(losses).mean()

    learn(body, loss, 60)
    return body


@cache
def pard_body() -> Pard:
    """One that has learned the texts: what stands behind the last real token, and behind each mask after it."""
    body = make_new(lambda: Pard(LlamaConfig(**PARD), WIDTH))
    table = model().model.embed_tokens.weight.detach().float()
    lessons = []
    for text in texts():
        ends = range(20, len(text) - SLOTS + 1)
        # Padded behind, where causal attention does not look; -1 is the mask.
        ids = [[*text[:end], *[-1] * (SLOTS - 1), *[0] * (len(text) - end)] for end in ends]
        wanted = torch.stack([places(text[end : end + SLOTS]) for end in ends])
        lessons.append((torch.tensor(ids), torch.tensor(ends)[:, None] - 1 + torch.arange(SLOTS), wanted))

    def loss() -> Tensor:
        losses = []
        for ids, at, wanted in lessons:
            entered = body.narrow(table[ids.clamp(min=0)])
            entered = torch.where((ids < 0)[..., None], body.mask, entered)
            states = body.widen(body.model(inputs_embeds=entered, use_cache=False).last_hidden_state)
            logits = states[torch.arange(len(ids))[:, None], at] @ rows().T
            losses.append(nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten()))
        return torch.stack(losses).mean()

    learn(body, loss, 60)
    return body


@cache
def kv_sharing_body() -> KvSharing:
    """One that has learned the texts: three steps behind every place of the answers."""
    body = make_new(lambda: KvSharing(LlamaConfig(**ASKING), WIDTH))
    table = model().model.embed_tokens.weight.detach().float()
    lessons = []
    for text in texts():
        last = seen(text, (LAYERS,))[LAYERS].float()
        lessons.append((torch.tensor(text), last, *asked_entries(text)))

    def loss() -> Tensor:
        losses = []
        for ids, last, keys, values in lessons:
            anchors = torch.arange(18, len(ids) - 4)
            sees = torch.arange(len(ids)) <= anchors[:, None]
            hidden = last[anchors][None]
            angles = body.angles(hidden, anchors[None] + 1)
            for step in range(3):
                hidden = body(table[ids[anchors + 1 + step]][None], hidden, keys, values, angles, sees[None, None])
                wanted = places(ids[anchors + 2 + step].tolist())
                losses.append(nn.functional.cross_entropy(hidden[0] @ rows().T, wanted))
        return torch.stack(losses).mean()

    learn(body, loss, 80)
    return body


def make_new(made: Callable[[], Body]) -> Body:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return made()


@torch.no_grad()
def asked_entries(text: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Keys and values (1, groups, n, head_dim) of a plain pass, as transformers' own cache holds them."""
    held = model()(input_ids=torch.tensor([list(text)]), use_cache=True).cache.layers[ASKED]
    return held.keys.float(), held.values.float()


def places(tokens: Sequence[int]) -> Tensor:
    """The draft ids of target ids."""
    return torch.tensor([draft_ids().tolist().index(token) for token in tokens])


def learn(body: nn.Module, loss: Callable[[], Tensor], steps: int) -> None:
    optimiser = torch.optim.Adam(body.parameters(), 0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    body.requires_grad_(False)


# ---------------------------------------------------------------- heads, and runs with them


@cache
def head(method: str, learned: bool = True) -> Head:
    """A head of the tiny target; one that has learned nothing is random."""
    extras: dict[str, dict[str, Any]] = {
        "eagle3": {"layers": list(FUSED), "llama": LLAMA},
        "pard": {"slots": SLOTS, "llama": PARD},
        "kv_sharing": {"layer": ASKED, "llama": ASKING},
        "medusa": {"heads": SLOTS, "accuracies": [list(each) for each in ACCURACIES]},
    }
    bodies: dict[str, Callable[[], nn.Module]] = {
        "eagle3": eagle3_body,
        "medusa": medusa_body,
        "pard": pard_body,
        "kv_sharing": kv_sharing_body,
    }
    tensors = dict(bodies[method]().state_dict())
    if not learned:
        generator = torch.Generator().manual_seed(5)
        tensors = {
            name: tensor if "norm" in name else torch.randn(tensor.shape, generator=generator) * 0.3
            for name, tensor in tensors.items()
        }
    return Head(method, {"method": method, "target": "tiny", **extras[method]}, tensors | maps())


def make(
    family: Family,
    options: Mapping[str, Any] | None = None,
    rule: str = "match",
    warp: Warp = GREEDY,
    ends: Sequence[int] = (),
    length: Length | None = None,
    opened: Head | None = None,
) -> tuple[CachedModel, Any]:
    """A target and a drafter beside it."""
    target = CachedModel(model())
    setup = Setup(
        target,
        None,  # type: ignore[arg-type]
        lambda _: [],
        20,
        frozenset(ends),
        warp,
        rule,
        length or Fixed(),
        open_head=lambda name: opened or head(name),
    )
    return target, family.build(setup, family.options(options or {}))


def run_with(
    family: Family,
    prompt: Sequence[int],
    options: Mapping[str, Any] | None = None,
    rule: str = "match",
    warp: Warp = GREEDY,
    **more: Any,
) -> Result:
    target, drafter = make(family, options, rule, warp, **more)
    settings = Settings(4, NEW, warp, rule, ends=frozenset(more.get("ends", ())))
    return collect(prompt, decode(target, drafter, prompt, settings, never))


def begun(family: Family, text: Sequence[int], **more: Any) -> Any:
    """A drafter that has heard a text, of which the last token came out of the prefill."""
    _, drafter = make(family, **more)
    drafter.observe(Outcome((), list(text), Seen(None, seen(text[:-1], drafter.needs.layers))))
    return drafter


def advance(target: CachedModel, drafter: Any, context: list[int], proposal: Proposal, path: Sequence[int]) -> None:
    """A round in which the nodes of this path are kept, whatever the target thinks of them, and token 7 follows."""
    _, shown = target.verify(context[-1], proposal, drafter.needs)
    target.roll_back(len(context), path)
    context += [*(proposal.tokens[node] for node in path), 7]
    drafter.observe(Outcome(tuple(path), context, shown))


def start(target: CachedModel, drafter: Any, prompt: Sequence[int]) -> list[int]:
    """The prefill; the committed text behind it."""
    needs: Needs = drafter.needs
    logits, shown = target.prefill(prompt, needs)
    context = [*prompt, int(logits[-1].argmax())]
    drafter.observe(Outcome((), context, shown))
    return context
