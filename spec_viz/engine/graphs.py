"""Captured passes: on CUDA a pass of a fixed shape is recorded once and replayed with one call.

A small model's pass is hundreds of short kernels, and the processor takes longer to start them than the device to run
them. A graph starts them all at once, but knows only addresses: a captured pass reads its tokens, their places and
what each of them sees from a fixed buffer, and the cache is one block that never moves while its graphs live. What lies
behind the text is hidden by the mask, so that rolling back stays what it is elsewhere: forgetting a length.

A pass attends to the first `room` entries, a power of two, so a short text does not pay for a long cache.
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, ClassVar, Protocol
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from spec_viz.engine.cache import GrowingLayer, growing
from spec_viz.engine.device import send
from spec_viz.engine.proposal import ROOT, chain, depths

# Entries of the smallest cache, and of the smallest part of one that a pass attends to.
LEAST_ROOM = 256
# Longer passes (prompts) are worth no graph: their kernels outlast their start.
MOST_TOKENS = 128
# Graphs of one run's cache; the one used longest ago goes first.
MOST_GRAPHS = 64

Replay = Callable[[], tuple[Tensor, ...]]

log = logging.getLogger(__name__)


class Capture(Protocol):
    """Records what a function does to fixed tensors, to do it again without Python."""

    def capture(self, run: Callable[[], tuple[Tensor, ...]]) -> Replay:
        """What repeats `run` on whatever its tensors hold by then; its results are good until anything is replayed.

        RuntimeError for a function that looks at numbers on the device.
        """


class CudaGraphs:
    """CUDA graphs, in a memory pool of their own."""

    # PyTorch takes one capture at a time.
    _one: ClassVar[Lock] = Lock()

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = torch.cuda.graph_pool_handle()
        # Graphs share the pool's memory where they are captured on one stream.
        self._side: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def capture(self, run: Callable[[], tuple[Tensor, ...]]) -> Replay:
        """See `Capture`."""
        with self._one, torch.cuda.device(self._device):
            here = torch.cuda.current_stream(self._device)
            # Libraries set themselves up on first use, which must not be captured (PyTorch's notes on CUDA semantics).
            self._side.wait_stream(here)
            with torch.cuda.stream(self._side):
                for _ in range(2):
                    run()
            here.wait_stream(self._side)
            graph = torch.cuda.CUDAGraph()
            try:
                # Other threads may go on using the device meanwhile.
                with torch.cuda.graph(graph, self._pool, self._side, capture_error_mode="thread_local"):
                    found = run()
            finally:
                # Where a capture fails PyTorch leaves its stream the current one.
                torch.cuda.set_stream(here)

        def replay() -> tuple[Tensor, ...]:
            graph.replay()
            return found

        return replay


def room_for(entries: int) -> int:
    """How many entries a fixed cache for so many has room for: the next power of two."""
    return max(LEAST_ROOM, 1 << (entries - 1).bit_length())


class FixedLayer(GrowingLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values in a block that doubles where a text outgrows it.

    During a captured pass `part` is where its entries go, (n,) on the device, and how many the pass attends to.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.part: tuple[Tensor, int] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append (B, heads, n, head_dim); all keys and values up to the new length, or the part attended to."""
        if self.part is None:
            return super().update(key_states, value_states)
        at, room = self.part
        self.keys.index_copy_(2, at, key_states)
        self.values.index_copy_(2, at, value_states)
        return self.keys[:, :, :room], self.values[:, :, :room]

    def reserve(self, entries: int) -> None:
        """Have room for so many."""
        if entries > self.keys.shape[-2]:
            self.keys, self.values = self._grown(self.keys, entries), self._grown(self.values, entries)

    def _grown(self, states: Tensor, end: int) -> Tensor:
        # Zeros, not whatever lies there: a masked entry still meets the softmax's 0 in a product, and 0 × NaN is NaN.
        grown = states.new_zeros((*states.shape[:2], room_for(end), states.shape[-1]))
        grown[:, :, : self.length] = states[:, :, : self.length]
        return grown


@dataclass(frozen=True, slots=True)
class Shape:
    """What a graph is fixed to: entries attended to, tokens, the tree's nodes they may see, what is read off."""

    room: int
    tokens: int
    span: int
    keep: int
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fed:
    """What a pass is given: a tree's last nodes, as for `CachedModel.feed_tree`, and what is to be read off.

    `shift` is how far behind its place in the cache a token stands; `states` (n, d) are what the nodes go on from,
    where a network wants that too.
    """

    tokens: Sequence[int] | Tensor
    parents: Sequence[int]
    keep: int
    layers: tuple[int, ...] = ()
    shift: int = 0
    states: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """The same inside a captured pass: nothing here is a number that Python knows.

    Ids and positions (n,), which entries each token sees (n, room), where entries stand in the text (room,), and the
    states (n, d).
    """

    ids: Tensor
    positions: Tensor
    sees: Tensor
    stand: Tensor
    states: Tensor | None


# What a network makes of it, and of the cache: its results.
Compute = Callable[[Shape, Given], tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Captured:
    """A graph with what it reads."""

    inputs: Tensor
    states: Tensor | None
    replay: Replay

    def write(self, fed: Fed, inputs: Sequence[int]) -> None:
        """Put in what the next replay reads."""
        _write(self.inputs, fed, inputs)
        if self.states is not None and fed.states is not None:
            self.states.copy_(fed.states)


class Graphs:
    """A network's fixed cache and the graphs over it: of one run at a time, kept for the next one on this network."""

    def __init__(self, capture: Capture, cache: Cache) -> None:
        self.cache = cache
        self._capture = capture
        self._graphs: OrderedDict[Shape, Captured] = OrderedDict()
        self._asked: Counter[Shape] = Counter()
        self._places: tuple[int, ...] = ()
        self._able = True

    def run(self, compute: Compute, fed: Fed) -> tuple[Tensor, ...] | None:
        """Append what is fed to the cache: what `compute` makes of it.

        None where the pass has no graph: it is the first over this cache or of its shape, too long, or the network
        computes with numbers that it reads from the device.
        """
        count, held = len(fed.tokens), self._layers()
        # The last nodes of a chain see all that lies before them, as those of a chain of their own do.
        if tuple(fed.parents) == chain(len(fed.parents)):
            fed = replace(fed, parents=chain(count))
        total = len(fed.parents)
        if not self._able or total > MOST_TOKENS or not held or not held[0].is_initialized:
            return None
        length = held[0].length
        for layer in held:
            layer.reserve(length + count)
        self._check_places(held)
        shape = Shape(room_for(length + count), count, _span(total), fed.keep, fed.layers)
        inputs = _inputs(fed, shape.span, length)
        captured = self._graphs.get(shape)
        if captured is None:
            self._asked[shape] += 1
            # A shape that comes once, as at the end of a text, costs more to capture than it saves.
            if self._asked[shape] == 1:
                return None
            captured = self._captured(compute, shape, fed, inputs)
            if captured is None:
                return None
        else:
            captured.write(fed, inputs)
        self._graphs.move_to_end(shape)
        found = captured.replay()
        for layer in held:
            layer.length += count
        # The graph writes there again.
        return tuple(each.clone() for each in found)

    def _captured(self, compute: Compute, shape: Shape, fed: Fed, inputs: Sequence[int]) -> Captured | None:
        held = self._layers()
        buffer = torch.empty(len(inputs), dtype=torch.long, device=held[0].keys.device)
        _write(buffer, fed, inputs)
        states = None if fed.states is None else fed.states.clone()

        def run() -> tuple[Tensor, ...]:
            given, at = _unpack(shape, buffer, states)
            for layer in held:
                layer.part = at, shape.room
            return compute(shape, given)

        try:
            replay = self._capture.capture(run)
        except RuntimeError as problem:
            # Ending a capture that ran out of memory may fail in its turn.
            if any(isinstance(each, torch.OutOfMemoryError) for each in (problem, problem.__context__)):
                raise
            log.warning("a pass cannot be captured, so its kernels are started one at a time", exc_info=problem)
            self._able = False
            return None
        finally:
            for layer in held:
                layer.part = None
        self._graphs[shape] = Captured(buffer, states, replay)
        if len(self._graphs) > MOST_GRAPHS:
            self._graphs.popitem(last=False)
        return self._graphs[shape]

    def _check_places(self, held: Sequence[FixedLayer]) -> None:
        """Forget all graphs where the cache has moved."""
        places = tuple(states.data_ptr() for layer in held for states in (layer.keys, layer.values))
        if places != self._places:
            self._graphs.clear()
            self._places = places

    def _layers(self) -> list[FixedLayer]:
        return [layer for layer in growing(self.cache) if isinstance(layer, FixedLayer)]

    def clear(self) -> None:
        """Forget the text, and keep the room and the graphs."""
        for layer in self._layers():
            layer.length = 0


def _span(total: int) -> int:
    """Columns for a tree's own nodes, so that trees of similar size share a graph."""
    return 1 << (total - 1).bit_length()


def _inputs(fed: Fed, span: int, length: int) -> list[int]:
    """What a pass reads.

    Ids (n), positions (n), where the first entry goes, how many entries all tokens see, the nodes' depths from 0
    (span), and which nodes each token sees (n, span).
    """
    tokens, parents = fed.tokens, fed.parents
    count, total = len(tokens), len(parents)
    base = length + count - total
    above: list[list[int]] = []
    for node, parent in enumerate(parents):
        row = [0] * span if parent == ROOT else above[parent].copy()
        row[node] = 1
        above.append(row)
    ids = [0] * count if isinstance(tokens, Tensor) else tokens
    deep = [depth - 1 for depth in depths(parents)]
    positions = [fed.shift + base + depth for depth in deep[total - count :]]
    shown = [sees for row in above[total - count :] for sees in row]
    return [*ids, *positions, length, base, *deep, *[0] * (span - total), *shown]


def _write(buffer: Tensor, fed: Fed, inputs: Sequence[int]) -> None:
    buffer.copy_(send(inputs, buffer.device))
    if isinstance(fed.tokens, Tensor):
        buffer[: len(fed.tokens)].copy_(fed.tokens)


def _unpack(shape: Shape, buffer: Tensor, states: Tensor | None) -> tuple[Given, Tensor]:
    """What `_inputs` packed, out of nothing but the buffer; and where the new entries go, (n,)."""
    count, span = shape.tokens, shape.span
    ids, positions = buffer[:count], buffer[count : 2 * count]
    start, base = buffer[2 * count], buffer[2 * count + 1]
    deep, sees = buffer[2 * count + 2 :][:span], buffer[2 * count + 2 + span :].view(count, span)
    places = torch.arange(shape.room, device=buffer.device)
    # How far behind what everybody sees an entry lies: which node of the tree it is.
    behind = places - base
    node = behind.clamp(0, span - 1)
    seen = (behind < 0) | ((behind < span) & (sees.index_select(1, node) > 0))
    # An entry stands where it lies, a node of a tree where its depth says.
    stand = places.where(behind < 0, base + deep.index_select(0, node))
    at = start + torch.arange(count, device=buffer.device)
    return Given(ids, positions, seen, stand, states), at


def compute_model(model: Any, cache: Cache, shape: Shape, given: Given) -> tuple[Tensor, ...]:
    """A model's pass: logits (keep, V), float32, and hidden states (n, d) of each layer asked for."""
    masks: Any = additive(given.sees, model.dtype)
    if window := window_of(model.config):
        near = given.stand > given.positions[:, None] - window
        masks = {"full_attention": masks, "sliding_attention": additive(given.sees & near, model.dtype)}
    out = model(
        input_ids=given.ids[None],
        cache=cache,
        use_cache=True,
        logits_to_keep=shape.keep,
        output_hidden_states=list(shape.layers) or False,
        attention_mask=masks,
        position_ids=given.positions[None],
    )
    return out.logits[0].float(), *(out.hidden_states[layer][0] for layer in shape.layers)


def additive(sees: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask (1, 1, n, room) to be added; a bool mask is right under sdpa and silently wrong under eager attention."""
    mask = torch.zeros(sees.shape, dtype=dtype, device=sees.device)
    return mask.masked_fill_(~sees, torch.finfo(dtype).min)[None, None]


def window_of(config: Any) -> int | None:
    """How many tokens those layers see that see only the last ones; None where all see every token."""
    found = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    return int(config.sliding_window) if found else None


# ---------------------------------------------------------------- who has which


# By network, each with the run that has it now.
_KEPT: WeakKeyDictionary[Any, list[tuple[Graphs, Callable[[], object | None]]]] = WeakKeyDictionary()
_LOCK = Lock()


def lend(model: Any, capture: Capture, to: object, cache: Callable[[], Cache] | None = None) -> Graphs:
    """Graphs that no other run has, empty; `give_back` returns them, and so does `to` by being forgotten.

    `cache` makes one of fixed layers; left out, they appear as the model first writes them.
    """
    with _LOCK:
        kept = _KEPT.setdefault(model, [])
        for place, (graphs, holder) in enumerate(kept):
            if holder() is None:
                kept[place] = graphs, ref(to)
                graphs.clear()
                return graphs
        made = cache() if cache else Cache(layer_class_to_replicate=FixedLayer)
        kept.append((Graphs(capture, made), ref(to)))
        return kept[-1][0]


def give_back(model: Any, graphs: Graphs) -> None:
    """Keep graphs for the next run; those of one run are enough."""
    with _LOCK:
        kept = _KEPT.get(model, [])
        others = [(each, holder) for each, holder in kept if each is not graphs]
        if all(holder() is not None for _, holder in others):
            others.append((graphs, _nobody))
        _KEPT[model] = others


def release(failure: BaseException | None = None) -> None:
    """Free what is kept for later runs, what the frames of a failed one still hold, and what torch has put by."""
    while failure:
        traceback.clear_frames(failure.__traceback__)
        failure = failure.__context__
    with _LOCK:
        for model, kept in list(_KEPT.items()):
            _KEPT[model] = [(graphs, holder) for graphs, holder in kept if holder() is not None]
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _nobody() -> None:
    return None
