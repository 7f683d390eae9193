"""PLD+: of all the places where the last token stood before, copy from the one that looks most alike to the target.

Candidates are the earlier occurrences of the last committed token, in prompt and output alike; the draft is what stands
behind the best one, up to gamma tokens (2412.01447; algorithms §2.2). Prompt lookup tells occurrences apart by the
tokens before them, PLD+ by what the target made of those tokens in passes that were run anyway:

- `hidden`: the cosine between two hidden states of one layer, that of the token before the occurrence and that of the
  token before the last one.
- `attention`: the weight that one layer's attention, the mean of its heads, gave to the occurrence. The last committed
  token has not been fed yet, so when the draft is made it has neither a hidden state nor a query. The query is that of
  the token before it, in the pass that produced the last token. It is the right one to ask: an induction head looks
  from a token to what came after its earlier occurrence, that is, to the very token it is about to copy.

Where this differs from the paper: it takes heads picked beforehand as induction heads, and which heads those are
depends on the model; here the layer is a knob and all of its heads count. SmolLM2-135M has its clearest ones in layer
18: when forty random tokens come a second time, one of its nine heads gives 95 percent of its weight to the token that
comes next and another 67, while hardly a head before layer 17 gives 4. For hidden states the layers from 8 to 18 do
about equally well. An occurrence at the very beginning of the text is no candidate: no token stands before it, and
attention gathers there whatever the text says.

Fast attention kernels do not hand out their weights. They are worked out again from the hidden states that go into the
layer, with the layer's own projections and rotary positions: each committed token's key once, and one query a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from spec_viz.drafters.none import Stateless
from spec_viz.drafters.registry import CHOSEN_CHAIN, Anatomy, Family, Knob, OptionError, Setup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Drafter, Needs, Outcome, Proposal

# As many places as a picture can show.
SHOWN = 12


class Rank(Protocol):
    """Scores places of the text by what the target's layer holds of it; the last committed token was not fed yet."""

    def read(self, hidden: Tensor) -> None:
        """Take in the hidden states (n, d) of the next n committed tokens."""

    def score(self, places: Sequence[int]) -> list[float]:
        """How much each of these places is like the last token's own; all of them are at least 1."""


class ByHidden:
    """The cosine between the state before a place and the state before the last token."""

    def __init__(self) -> None:
        self._rows: list[Tensor] = []

    @torch.inference_mode()
    def read(self, hidden: Tensor) -> None:
        self._rows += torch.nn.functional.normalize(hidden.float(), dim=-1).unbind()

    @torch.inference_mode()
    def score(self, places: Sequence[int]) -> list[float]:
        before = torch.stack([self._rows[place - 1] for place in places])
        scores: list[float] = (before @ self._rows[-1]).tolist()
        return scores


class ByAttention:
    """The weight, the mean of a layer's heads, that the token before the last one gave to a place."""

    def __init__(self, model: Any, layer: int) -> None:
        self._model = model
        self._layer = layer
        self._query = torch.empty(0)
        self._keys: list[Tensor] = []
        self._length = 0

    @torch.inference_mode()
    def read(self, hidden: Tensor) -> None:
        queries, keys = project(self._model, self._layer, hidden, self._length)
        self._query = queries[:, -1]
        self._keys.append(keys)
        self._length += len(hidden)

    @torch.inference_mode()
    def score(self, places: Sequence[int]) -> list[float]:
        scaling = float(self._model.model.layers[self._layer].self_attn.scaling)
        heads = weights(self._query, torch.cat(self._keys, 1), scaling)
        scores: list[float] = heads.mean(0)[list(places)].tolist()
        return scores


def project(model: Any, layer: int, hidden: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Queries (heads, n, d) and keys (key heads, n, d) of a Llama-like layer, turned to places `start` onwards.

    `hidden` (n, width) is what goes into the layer.
    """
    block = model.model.layers[layer]
    attention = block.self_attn
    rows = block.input_layernorm(hidden)
    places = torch.arange(start, start + len(hidden), device=hidden.device)[None]

    def heads(linear: Any, norm: Any) -> Tensor:
        split = linear(rows).view(1, len(rows), -1, attention.head_dim)
        # Qwen3 norms each head.
        return (split if norm is None else norm(split)).transpose(1, 2)  # type: ignore[no-any-return]

    queries = heads(attention.q_proj, getattr(attention, "q_norm", None))
    keys = heads(attention.k_proj, getattr(attention, "k_norm", None))
    cos, sin = model.model.rotary_emb(hidden[None], position_ids=places)
    queries, keys = apply_rotary_pos_emb(queries, keys, cos, sin)
    return queries[0], keys[0]


def weights(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Attention weights (heads, n) of one query (heads, d) over keys (key heads, n, d); heads share keys in groups."""
    shared = keys.repeat_interleave(len(query) // len(keys), dim=0)
    return torch.einsum("hd,hnd->hn", query, shared).mul(scaling).float().softmax(-1)


class PldPlus(Stateless):
    """Copies what followed the earlier occurrence of the last token that `rank` puts first, the latest among equals.

    Of the target it holds one row (a normed hidden state, or keys) for each committed token that has been fed.
    """

    def __init__(self, layer: int, name: str, rank: Rank) -> None:
        self.needs = Needs(layers=(layer,))
        self._layer = layer
        self._name = name
        self._rank = rank
        self._places: dict[int, list[int]] = {}
        self._read = 0

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        # The first token of the text is none of these, the last one is.
        places = self._places.get(context[-1], [])[:-1]
        if not places:
            return Proposal()
        best = sorted(zip(self._rank.score(places), places, strict=True), reverse=True)
        found = best[0][1]
        drafts = tuple(context[found + 1 : found + 1 + gamma])
        why = {
            "key": [context[-1]],
            "found": found,
            "copied": found + 1,
            "ranked_by": self._name,
            "layer": self._layer,
            "likeness": best[0][0],
            "occurrences": len(best),
            "places": [[place, score] for score, place in best[:SHOWN]],
        }
        return Proposal(drafts, why=(why,) * len(drafts))

    def observe(self, outcome: Outcome) -> None:
        hidden = outcome.seen.hidden[self._layer]
        if self._read:
            # Row 0 is the token that was last before this round; of the drafts only those that were kept are text.
            hidden = hidden[[0, *(node + 1 for node in outcome.path)]]
        self._rank.read(hidden)
        for place in range(max(self._read, 1), len(outcome.context)):
            self._places.setdefault(outcome.context[place], []).append(place)
        self._read = len(outcome.context)


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """PLD+ over this target; OptionError when it has no such layer."""
    layer, rank = int(options["layer"]), str(options["rank"])
    layers = int(setup.target.model.config.num_hidden_layers)
    # Behind the last layer there is one more hidden state, but nothing attends to it.
    high = layers if rank == "hidden" else layers - 1
    if layer > high:
        problem = f"layer must be at most {high} for this target"
        raise OptionError("error.option_number", problem, name="layer", low=0, high=high)
    return PldPlus(layer, rank, ByHidden() if rank == "hidden" else ByAttention(setup.target.model, layer))


FAMILY = Family(
    "pld_plus",
    "one_hot",
    CHOSEN_CHAIN,
    build,
    (Knob("rank", "choice", "hidden", choices=("hidden", "attention")), Knob("layer", "int", 18, 0, 64)),
    "2412.01447; algorithms §2.2",
    anatomy=Anatomy(("ids", "hidden"), "lookup", "none", "none", layers="layer"),
)
