"""A batch of independent texts in one model: every row has its own length, and rows come and go.

Nothing is padded on the left, so a row's entries never move, and a new prompt takes over the place of a finished one
without touching the others. Rolling back is forgetting: a row's length shrinks, and the next write overwrites.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from spec_viz.engine.cache import crop, growing, new_cache
from spec_viz.engine.proposal import NOTHING, Needs, Seen
from spec_viz.engine.target import has_window

# Keys and values have room in steps of this many tokens.
ROOM = 64


class RowsLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer's keys and values (batch, heads, room, head_dim); each row is filled from 0 up to its own length."""

    is_croppable = False
    is_sliding = False

    keys: Tensor
    values: Tensor

    def __init__(self, rows: Rows) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rows = rows

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys = key_states.new_zeros((self._rows.batch, key_states.shape[1], 0, key_states.shape[-1]))
        self.values = value_states.new_zeros((self._rows.batch, value_states.shape[1], 0, value_states.shape[-1]))
        self.is_initialized = True

    def make_room(self, length: int) -> None:
        """Grow so that `length` entries fit."""
        room = self.keys.shape[2]
        if length <= room:
            return
        more = -(-length // ROOM) * ROOM - room
        # Zeros, not whatever lies there: a masked entry still meets the softmax's 0 in a product, and 0 × NaN is NaN.
        self.keys = torch.nn.functional.pad(self.keys, (0, 0, 0, more))
        self.values = torch.nn.functional.pad(self.values, (0, 0, 0, more))

    def fill(self, row: int, keys: Tensor, values: Tensor) -> None:
        """Give a row the entries (1, heads, n, head_dim) of its prompt."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        self.make_room(keys.shape[2])
        self.keys[row, :, : keys.shape[2]] = keys[0]
        self.values[row, :, : keys.shape[2]] = values[0]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a row's first `length` entries to another row."""
        for states in (self.keys, self.values):
            states[target, :, :length] = states[source, :, :length]

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write n entries (rows, heads, n, head_dim) a row behind its own length; all entries up to the longest.

        A row that feeds fewer than n writes its padding behind them, where nothing looks and the next write goes.
        """
        at, end = self._rows.at, self._rows.end
        rows = torch.arange(len(at), device=at.device)[:, None]
        self.make_room(end)
        self.keys[rows, :, at] = key_states.transpose(1, 2)
        self.values[rows, :, at] = value_states.transpose(1, 2)
        return self.keys[: len(at), :, :end], self.values[: len(at), :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._rows.end, 0

    def get_seq_length(self) -> int:
        return self._rows.end - self._rows.at.shape[1]

    def get_max_length(self) -> int:
        return -1


class Rows:
    """Texts side by side in a Llama-like causal LM: prompts are read one by one, then all rows are fed at once.

    Row i's first `lengths[i]` entries count. A new row stands behind the others; ValueError for a model that does
    something to its logits behind the head, or has layers that see only the last tokens.
    """

    def __init__(self, model: Any, batch: int) -> None:
        if getattr(model.config, "final_logit_softcapping", None):
            raise ValueError("a batch reads logits off the head, and this model caps them behind it")
        if has_window(model.config):
            raise ValueError("a batch masks by length alone, and this model has layers with a window")
        self.model = model
        self.batch = batch
        self.lengths: list[int] = []
        # Of the pass under way: where each row's entries go (rows, n), and the end of the longest row.
        self.at = torch.zeros(0, 0, dtype=torch.long)
        self.end = 0
        self._layers = [RowsLayer(self) for _ in range(model.config.num_hidden_layers)]
        self._cache = Cache(layers=[*self._layers])
        self._prompt: list[int] = []
        self._prompt_cache = new_cache()

    @torch.inference_mode()
    def read(self, prompt: Sequence[int], needs: Needs = NOTHING) -> tuple[Tensor, Seen]:
        """Begin a row behind the others with a prompt; logits (1, V), float32, of what follows it.

        What it has in common with the prompt before is not computed again: the chat template's words make up a quarter
        of a short prompt. Who needs hidden states needs those of the whole prompt.
        """
        known = 0 if needs.layers else min(_common(self._prompt, prompt), len(prompt) - 1)
        crop(self._prompt_cache, known)
        self._prompt = list(prompt)
        ids = torch.tensor([self._prompt[known:]], device=self.model.device)
        # Head and body apart: a slice of a longer pass would cost the head a copy of its whole matrix (70 ms in bf16).
        out = self.model.model(
            input_ids=ids, cache=self._prompt_cache, use_cache=True, output_hidden_states=list(needs.layers) or False
        )
        for mine, its in zip(self._layers, growing(self._prompt_cache), strict=True):
            mine.fill(len(self.lengths), its.keys[:, :, : its.length], its.values[:, :, : its.length])
        self.lengths.append(len(prompt))
        logits: Tensor = self.model.lm_head(out.last_hidden_state[0, -1:]).float()
        return logits, _seen(needs, logits, {layer: out.hidden_states[layer][0] for layer in needs.layers})

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int]) -> Tensor:
        """Append a token to every row; logits (rows, V), float32."""
        return self._pass([[token] for token in tokens], [])[0]

    @torch.inference_mode()
    def verify(self, chains: Sequence[Sequence[int]], needs: Sequence[Needs]) -> list[tuple[Tensor, Seen]]:
        """Append to every row a chain of its own length, in one pass: each row's logits (n, V), float32.

        `needs` are what each row's drafter asks to see; it is shown its own row alone.
        """
        logits, states = self._pass(chains, sorted({layer for need in needs for layer in need.layers}))
        rows = torch.split(logits, [len(chain) for chain in chains])
        return [
            (own, _seen(need, own, {layer: states[layer][row, : len(own)] for layer in need.layers}))
            for row, (own, need) in enumerate(zip(rows, needs, strict=True))
        ]

    def _pass(self, chains: Sequence[Sequence[int]], layers: Sequence[int]) -> tuple[Tensor, Any]:
        """Logits (Σ n, V) row after row, and hidden states (rows, longest, d) by layer; shorter chains are padded."""
        counts = [len(chain) for chain in chains]
        wide = max(counts)
        ids = torch.tensor([[*chain, *[chain[-1]] * (wide - len(chain))] for chain in chains])
        mask, positions = self._place(torch.tensor(counts), wide)
        out = self.model.model(
            input_ids=ids.to(self.model.device),
            position_ids=positions,
            attention_mask=mask,
            cache=self._cache,
            use_cache=True,
            output_hidden_states=list(layers) or False,
        )
        self.lengths = [length + count for length, count in zip(self.lengths, counts, strict=True)]
        # The head is a fifth of this target: it reads no padding.
        real = (torch.arange(wide) < torch.tensor(counts)[:, None]).to(self.model.device)
        logits: Tensor = self.model.lm_head(out.last_hidden_state[real]).float()
        return logits, out.hidden_states if layers else None

    def _place(self, counts: Tensor, wide: int) -> tuple[Tensor, Tensor]:
        """Mask (rows, 1, wide, end) and positions (rows, wide) of a pass over `counts` tokens a row."""
        device = self.model.device
        self.at = torch.tensor(self.lengths, device=device)[:, None] + torch.arange(wide, device=device)
        self.end = max(self.lengths) + wide
        # Additive and float, as for a tree: a bool mask is silently wrong under eager attention.
        mask = torch.zeros(*self.at.shape, self.end, dtype=self.model.dtype, device=device)
        hidden = torch.arange(self.end, device=device) > self.at[..., None]
        mask.masked_fill_(hidden, torch.finfo(self.model.dtype).min)
        # Padding stands where the row's last token does: behind the context's end some models turn all positions anew.
        last = self.at[:, :1] + (counts - 1).to(device)[:, None]
        return mask[:, None], torch.minimum(self.at, last)

    def roll_back(self, row: int, length: int) -> None:
        """Keep a row's first `length` entries."""
        self.lengths[row] = length

    @torch.inference_mode()
    def drop(self, row: int) -> None:
        """Forget a row; the last one takes its place."""
        last = len(self.lengths) - 1
        if row != last:
            for layer in self._layers:
                layer.move(last, row, self.lengths[last])
        self.lengths[row] = self.lengths[last]
        self.lengths.pop()


def _seen(needs: Needs, logits: Tensor, hidden: dict[int, Tensor]) -> Seen:
    return Seen(logits if needs.logits else None, hidden)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two texts begin with in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (mine, its) in pairs if mine != its), min(len(one), len(other)))
