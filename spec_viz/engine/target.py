"""A causal language model with its KV cache: feed tokens or a tree of them, keep what was accepted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from spec_viz.engine.cache import crop, gather, growing, new_cache, writing_layers
from spec_viz.engine.device import Instant, Mark, send, wait
from spec_viz.engine.graphs import Capture, CudaGraphs, Fed, Graphs, compute_model, give_back, lend, window_of
from spec_viz.engine.proposal import NOTHING, ROOT, Needs, Pending, Proposal, Seen, chain, depths


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nodes of a tree that have passed the first `layers` layers: their states (1, n, d) wait at the exit."""

    layers: int
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    states: Tensor


class CachedModel:
    """A decoder-only transformers model whose cache keeps every token, with the cache of one run.

    The target is one; so is a drafter that is a language model. Invariant between rounds: with L committed tokens the
    cache holds L − 1 entries, because the last token has not been fed yet (algorithms §1.6).

    On CUDA passes of a fixed shape are captured, over a cache that does not move (`graphs`); `capture` says with what,
    elsewhere too. A cache of another kind than the full one is never captured.
    """

    def __init__(self, model: Any, cache: Callable[[], Cache] = new_cache, capture: Capture | None = None) -> None:
        self.model = model
        self.device: torch.device = model.device
        if capture is None and self.device.type == "cuda" and cache is new_cache:
            capture = CudaGraphs(self.device)
        # Whether a drafter may leave its tokens on the device until the round is judged.
        self.asynchronous = capture is not None or self.device.type == "cuda"
        self.capture = capture
        self._graphs: Graphs | None = None
        self.context_limit: int = model.config.max_position_embeddings
        self._new_cache = cache
        self._cache = cache()
        self._waiting: Waiting | None = None

    @property
    def length(self) -> int:
        """Entries in the cache that every layer holds; between `feed_first` and `verify` the first ones hold more."""
        return int(self._cache.get_seq_length(writing_layers(self.model.config) - 1))

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int], keep: int) -> Tensor:
        """Append tokens to the cache and return the logits (keep, V), float32, of the last `keep` of them."""
        return self._pass(tokens, chain(len(tokens)), keep, NOTHING)[0]

    @torch.inference_mode()
    def feed_tree(
        self, tokens: Sequence[int] | Tensor, parents: Sequence[int], keep: int, needs: Needs = NOTHING
    ) -> tuple[Tensor, Seen]:
        """Append nodes of a tree to the cache: each sees what lies before the tree and its own ancestors.

        `parents` describe the whole tree; the tokens, which may lie on the device (n,), are its last nodes, those
        before them already lie at the end of the cache. Logits (keep, V). Nodes lie side by side in the cache but stand
        at positions by depth, so that what is kept of them is valid where it stands (algorithms §9.4).
        """
        return self._pass(tokens, parents, keep, needs)

    def _pass(
        self, tokens: Sequence[int] | Tensor, parents: Sequence[int], keep: int, needs: Needs
    ) -> tuple[Tensor, Seen]:
        """A tree's last nodes through all layers, captured where that can be."""
        self._forget_waiting()
        if graphs := self._lent():
            compute = partial(compute_model, self.model, self._cache)
            found = graphs.run(compute, Fed(tokens, parents, keep, needs.layers, self._shift()))
            if found:
                logits, *states = found
                return logits, Seen(logits if needs.logits else None, dict(zip(needs.layers, states, strict=True)))
        return self._eager(tokens, keep, needs, self._where(tokens, parents))

    def _lent(self) -> Graphs | None:
        """The graphs this run has over its cache: taken before its first entry, None where they cannot be had."""
        if self.capture and not self._graphs and not self._cache.get_seq_length():
            self._graphs = lend(self.model, self.capture, self)
            self._cache = self._graphs.cache
        return self._graphs

    def _shift(self) -> int:
        """How far behind its place in the cache a token stands."""
        return 0

    def _where(self, tokens: Sequence[int] | Tensor, parents: Sequence[int]) -> dict[str, Any]:
        """Mask and positions of a tree's last nodes, as the model takes them; a chain needs none."""
        if tuple(parents) == chain(len(parents)):
            return {}
        base = self.length + len(tokens) - len(parents)
        mask, positions = self._place(base, parents, len(tokens))
        masks = self._by_window(mask, positions, base, parents) if has_window(self.model.config) else mask
        return {"attention_mask": masks, "position_ids": positions}

    def _by_window(self, mask: Tensor, positions: Tensor, base: int, parents: Sequence[int]) -> dict[str, Tensor]:
        """A tree's mask for each kind of layer: one with a window sees nothing that stands further back in the text.

        The cache keeps every entry all the same, so that rolling back loses none.
        """
        at = send([*range(base), *(base + depth - 1 for depth in depths(parents))], self.device)
        far = at <= positions[0, :, None] - self.model.config.sliding_window
        sliding = mask.masked_fill(far, torch.finfo(mask.dtype).min)
        return {"full_attention": mask, "sliding_attention": sliding}

    def _place(self, base: int, parents: Sequence[int], count: int) -> tuple[Tensor, Tensor]:
        """Mask (1, 1, count, base + n) and positions (1, count) of the last nodes of a tree behind `base` entries."""
        sees = torch.eye(len(parents), dtype=torch.bool)
        for node, parent in enumerate(parents):
            if parent != ROOT:
                sees[node] |= sees[parent]
        # Additive and float: a bool mask is right under sdpa and silently wrong under eager attention.
        mask = torch.zeros(count, base + len(parents), dtype=self.model.dtype, device=self.device)
        shown = send(sees[len(parents) - count :].flatten().tolist(), self.device).view(count, -1)
        mask[:, base:].masked_fill_(shown == 0, torch.finfo(self.model.dtype).min)
        at = [base + depth - 1 for depth in depths(parents)[len(parents) - count :]]
        return mask[None, None], send(at, self.device)[None]

    def _eager(
        self, tokens: Sequence[int] | Tensor, keep: int, needs: Needs, where: dict[str, Any]
    ) -> tuple[Tensor, Seen]:
        """The same, one kernel after another."""
        layers = list(needs.layers) if needs.layers else False
        out = self.model(
            input_ids=send(tokens, self.device)[None],
            cache=self._cache,
            use_cache=True,
            logits_to_keep=keep,
            output_hidden_states=layers,
            **where,
        )
        logits: Tensor = out.logits[0].float()
        hidden = {layer: out.hidden_states[layer][0] for layer in needs.layers}
        return logits, Seen(logits if needs.logits else None, hidden)

    def entries(self, layer: int) -> tuple[Tensor, Tensor]:
        """A layer's rotated keys and its values, (1, groups, length, head_dim) each: a view, good until the next pass.

        At least one token must have been fed.
        """
        return list(growing(self._cache))[layer].entries()

    # -------------------------------------------------------- the first layers alone (LayerSkip 2404.16710)

    @torch.inference_mode()
    def feed_first(self, tokens: Sequence[int], parents: Sequence[int], layers: int) -> Tensor:
        """Run nodes of a tree through the first `layers` layers, and read them off by the model's own norm and head.

        Logits (n, V), float32. `parents` describe all nodes that wait and these, their last ones. The entries stay in
        the first layers' caches and the states wait at the exit, until `verify` takes them on from there.
        """
        states = self._first(tokens, parents, layers)
        before = self._waiting
        if before:
            self._waiting = Waiting(
                layers, (*before.tokens, *tokens), tuple(parents), torch.cat([before.states, states], 1)
            )
        else:
            self._waiting = Waiting(layers, tuple(tokens), tuple(parents), states)
        return self._read_off(states)

    def _first(self, tokens: Sequence[int], parents: Sequence[int], layers: int) -> Tensor:
        ids = send(tokens, self.device)[None]
        return self._through(self.model.model.embed_tokens(ids), parents, 0, layers)

    def _through(self, states: Tensor, parents: Sequence[int], start: int, end: int) -> Tensor:
        """States (1, n, d) of a tree's last nodes behind layers `start` to `end`, of a model built like Llama."""
        body = self.model.model
        mask, positions = self._place(self.length, parents, states.shape[1])
        angles = body.rotary_emb(states, position_ids=positions)
        for layer in body.layers[start:end]:
            states = layer(
                states,
                attention_mask=mask,
                position_ids=positions,
                position_embeddings=angles,
                cache=self._cache,
                use_cache=True,
            )
        return states

    def _read_off(self, states: Tensor) -> Tensor:
        logits: Tensor = self.model.lm_head(self.model.model.norm(states))[0].float()
        return logits

    def _finish(self, waiting: Waiting, tokens: Sequence[int], parents: Sequence[int]) -> Tensor:
        """Logits (n, V) of a tree whose first nodes have waited: only their remaining layers are computed."""
        states, late = waiting.states, tokens[len(waiting.tokens) :]
        if late:
            states = torch.cat([states, self._first(late, parents, waiting.layers)], 1)
        self._waiting = None
        return self._read_off(self._through(states, parents, waiting.layers, len(self.model.model.layers)))

    def _forget_waiting(self) -> None:
        if self._waiting:
            self._waiting = None
            crop(self._cache, self.length)

    # -------------------------------------------------------- a round of the loop

    @torch.inference_mode()
    def prefill(self, prompt: Sequence[int], needs: Needs = NOTHING) -> tuple[Tensor, Seen]:
        """Read the whole prompt; logits (1, V) of what follows it."""
        return self._pass(prompt, chain(len(prompt)), 1, needs)

    @torch.inference_mode()
    def verify(self, last: int, proposal: Proposal | Pending, needs: Needs = NOTHING) -> tuple[Tensor, Seen]:
        """One pass over the last committed token, the drafts and the extras.

        Logits (n + 1, V) of the committed token and the n drafts: row 0 is the law of the first draft, row i + 1 that
        of what follows draft i. What the drafter asked to see covers the extras' rows too. Drafts that the first layers
        have seen already (`feed_first`) go through the others only.
        """
        rows = len(proposal) + 1
        if isinstance(proposal, Pending):
            ids = torch.cat([send([last], self.device), proposal.tokens])
            return self.feed_tree(ids, chain(rows), rows, needs)
        tokens, parents = proposal.behind(last)
        waiting = self._waiting
        if waiting and not needs.layers and _begins(tokens, waiting.tokens) and _begins(parents, waiting.parents):
            logits = self._finish(waiting, tokens, parents)
            return logits[:rows], Seen(logits if needs.logits else None)
        logits, seen = self.feed_tree(tokens, parents, len(tokens), needs)
        return logits[:rows], seen

    @torch.inference_mode()
    def roll_back(self, length: int, path: Sequence[int] = ()) -> None:
        """Keep the first `length` entries and behind them those at `length + i` for i in the path; forget the rest."""
        self._waiting = None
        if tuple(path) != tuple(range(len(path))):
            gather(self._cache, length, path)
        crop(self._cache, length + len(path))

    def now(self) -> float:
        """Seconds on a monotonic clock, after the device has finished what it was given."""
        wait(self.device)
        return time.perf_counter()

    def mark(self) -> Instant:
        """The present moment in what the device was given, without waiting for it."""
        return Mark(self.device) if self.device.type == "cuda" else self.now()

    def close(self) -> None:
        """Free the cache; one that graphs were captured over waits for the next run."""
        if self._graphs:
            give_back(self.model, self._graphs)
            self._graphs = None
        self._cache = self._new_cache()
        self._waiting = None


def has_window(config: Any) -> bool:
    """Whether some of a model's layers see only the last tokens."""
    return window_of(config) is not None


def _begins(whole: Sequence[int], start: Sequence[int]) -> bool:
    return tuple(whole[: len(start)]) == tuple(start)
