"""Layer skip: the target without some of its layers drafts for the whole target (algorithms §4.3).

Draft & Verify (2309.08168) leaves out a fixed set; SWIFT (2410.06916) looks for a good one on the request's own text.
Both are dear here: what is kept decides the cost, and a model of 30 thin layers can spare few.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from spec_viz.drafters.model import ModelDrafter, model_drafter
from spec_viz.drafters.registry import BY_MODEL, WIDTH, Anatomy, Family, Knob, OptionError, Setup
from spec_viz.engine.cache import kv_bytes_per_token
from spec_viz.engine.proposal import NOTHING, Drafter, Needs, Outcome
from spec_viz.engine.target import CachedModel

# A set is tried on so many of the prompt's last tokens: each trial is a pass of the drafter over them.
SPAN = 128
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def without_layers(model: Any, skip: frozenset[int]) -> Any:
    """A view of a Llama-like causal LM that leaves out the layers `skip` and shares every weight.

    Its layers are numbered anew, since a cache counts them from 0.
    """
    kept = [layer for index, layer in enumerate(model.model.layers) if index not in skip]
    short = _view(model)
    short.config = copy.copy(model.config)
    short.config.num_hidden_layers = len(kept)
    short.model = _view(model.model)
    short.model.config = short.config
    short.model.layers = nn.ModuleList(_numbered(layer, index) for index, layer in enumerate(kept))
    return short


def _numbered(layer: Any, index: int) -> Any:
    view = _view(layer)
    view.self_attn = _view(layer.self_attn)
    view.self_attn.layer_idx = index
    return view


def _view(module: Any) -> Any:
    view = copy.copy(module)
    view._modules = dict(module._modules)
    return view


def read_layers(text: str, layers: int) -> frozenset[int]:
    """Layer numbers such as `8-19,22`; OptionError for anything else, or when no layer or every layer is named."""
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not 0 <= first <= last < layers:
            raise _bad_layers(layers)
        found |= set(range(first, last + 1))
    if not 0 < len(found) < layers:
        raise _bad_layers(layers)
    return frozenset(found)


def _bad_layers(layers: int) -> OptionError:
    problem = f"skip names layers from 0 to {layers - 1}, as in 8-19,22, and leaves at least one"
    return OptionError("error.option_layers", problem, name="skip", low=0, high=layers - 1)


def write_layers(layers: frozenset[int]) -> str:
    """The text that `read_layers` reads."""
    runs: list[list[int]] = []
    for layer in sorted(layers):
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def search(
    first: frozenset[int], layers: int, count: int, score: Callable[[frozenset[int]], float]
) -> tuple[frozenset[int], float]:
    """The best of `first` and `count` other sets as large, with its score; the first and the last layer always stay.

    Every other set is drawn anew; the rest exchange one layer of the best so far, where SWIFT fits a Gaussian process.
    """
    draw = random.Random(0)
    free = frozenset(range(1, layers - 1))
    best, high = first, score(first)
    for trial in range(count):
        inside, outside = sorted(best & free), sorted(free - best)
        if trial % 2 and inside and outside:
            tried = best - {draw.choice(inside)} | {draw.choice(outside)}
        else:
            tried = frozenset(draw.sample(sorted(free), min(len(first), len(free))))
        if (found := score(tried)) > high:
            best, high = tried, found
    return best, high


class LayerSkip(ModelDrafter):
    """Drafts with the layers that are left; after the prefill it may look for a better set to leave out."""

    def prepare(self, target: CachedModel, skip: frozenset[int], count: int) -> None:
        """Start from this set, and try `count` others on the prompt once the target has read it."""
        model = target.model
        self._target, self._capture = model, target.capture
        self._skip = skip
        self._count = count
        self._why = {"skipped_layers": write_layers(skip)}
        if count:
            # The last hidden state, from which the target's own choice at every token of the prompt can be read.
            self.needs = Needs(layers=(model.config.num_hidden_layers,))

    def observe(self, outcome: Outcome) -> None:
        if self.needs.layers:
            self._search(outcome)
        super().observe(outcome)

    @torch.inference_mode()
    def _search(self, outcome: Outcome) -> None:
        layers = self._target.config.num_hidden_layers
        prompt = outcome.context[:-1][-SPAN:]
        chosen = self._target.lm_head(outcome.seen.hidden[layers][-len(prompt) :]).argmax(-1)

        def score(skip: frozenset[int]) -> float:
            short = without_layers(self._target, skip)
            ids = torch.tensor([list(prompt)], device=chosen.device)
            guessed: Tensor = short(input_ids=ids, use_cache=False).logits[0].argmax(-1)
            return float((guessed == chosen).float().mean())

        best, rate = search(self._skip, layers, self._count, score)
        self._model = CachedModel(without_layers(self._target, best), capture=self._capture)
        self._why = {"skipped_layers": write_layers(best), "match_rate": rate, "subsets_tried": self._count + 1}
        self.needs = NOTHING


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """The target without the named layers as drafter; ValueError when the name is not one of layers."""
    model = setup.target.model
    skip = read_layers(str(options["skip"]), model.config.num_hidden_layers)
    short = without_layers(model, skip)
    short_model = CachedModel(short, capture=setup.target.capture)
    drafter = model_drafter(short_model, setup, int(options["width"]), LayerSkip, defer=True)
    drafter.prepare(setup.target, skip, int(options["search"]))
    drafter.kv_bytes_per_token = kv_bytes_per_token(short)
    return drafter


FAMILY = Family(
    "layer_skip",
    "sampled",
    BY_MODEL,
    build,
    (Knob("skip", "text", "12-14"), Knob("search", "int", 0, 0, 64), WIDTH),
    "algorithms §4.3; arXiv 2309.08168, 2410.06916",
    anatomy=Anatomy(("ids",), "sequential", "gamma", "target", further=(("search", "last_hidden"),)),
)
