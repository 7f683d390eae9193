"""What a pass costs here: v(n), a target pass over n tokens ÷ over one, and c, a drafter's step ÷ the target's.

Machines are noisy, so each pass over n tokens stands beside a pass over one, and what is kept is the median of the
ratios of neighbours in time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spec_viz.engine.cache import kv_bytes_per_token
from spec_viz.engine.target import CachedModel
from spec_viz.lab.bench import SCHEMA
from spec_viz.lab.metrics import summarise
from spec_viz.lab.run import Request, conditions, encoder, start
from spec_viz.models.load import Loaded

# Only its length matters for a pass; a drafter that looks things up finds them in its repetitions.
TEXT = "The sky is blue and the sun is out. "
DRAFTED_TOKENS = 24


def measure(
    loaded: Loaded,
    *,
    max_n: int,
    context: int,
    repeats: int,
    drafters: Mapping[str, Mapping[str, Any]],
    progress: Callable[[Sequence[int]], Iterable[int]] = lambda items: items,
) -> dict[str, Any]:
    """v(n) for n = 1 … max_n behind `context` tokens and c of each drafter, as a `specviz.result/1` record.

    Each number is a median of `repeats` with its quartiles; times are milliseconds. v(1) is measured like the others,
    so its distance from 1 tells how noisy the machine was.
    """
    once = encoder(loaded)(TEXT)
    tokens = (once * (context // len(once) + 1))[:context]
    prompt = TEXT * max(1, context // len(once))
    target = CachedModel(loaded.model)
    if context + max_n > target.context_limit:
        raise ValueError(f"{context} tokens and {max_n} more do not fit into {target.context_limit}")
    target.prefill(tokens)
    for n in (1, max_n):
        _pass(target, tokens[:n])  # the first pass of a shape allocates
    pairs: dict[int, list[tuple[float, float]]] = {n: [] for n in range(1, max_n + 1)}
    for repeat in progress(range(repeats)):
        # Forwards, then backwards: a slow drift of the machine touches every n alike.
        for n in list(pairs)[:: 1 if repeat % 2 == 0 else -1]:
            pairs[n].append((_pass(target, tokens[:1]), _pass(target, tokens[:n])))
    target.close()
    seconds = {n: statistics.median(ms for _, ms in pair) / 1000 for n, pair in pairs.items()}
    return {
        "schema": SCHEMA,
        "kind": "cost",
        "conditions": {
            **conditions(loaded),
            "target": loaded.entry.name,
            "batch": 1,
            "context": context,
            "repeats": repeats,
        },
        "step_ms": statistics.median(one for pair in pairs.values() for one, _ in pair),
        "v": [
            {
                "n": n,
                **_spread("ratio", [many / one for one, many in pair]),
                "ms": 1000 * seconds[n],
            }
            for n, pair in pairs.items()
        ],
        "roofline": roofline(loaded, context, seconds),
        "drafters": {
            name: _drafter_cost(
                loaded, Request(prompt, name, options, max_new_tokens=DRAFTED_TOKENS, chat=False), repeats
            )
            for name, options in drafters.items()
        },
    }


def roofline(loaded: Loaded, context: int, seconds: Mapping[int, float]) -> dict[str, float] | None:
    """How far this device was brought, from the seconds of passes over n tokens (Williams et al. 2009, Roofline).

    A pass reads every matrix once and `context` entries of the cache, B bytes; a token costs F = 2 · (parameters in
    matrices) + 4 · context · (numbers in a layer's queries, all layers together) operations. β = B / t(1) is what
    reading reached, π = max n·F / t(n) what arithmetic reached, and n* = π/β · B/F is where a pass turns from the one
    to the other: at n* tokens arithmetic at π takes as long as reading at β. Both are lower bounds of what the device
    can do. None for a mixture of experts, whose tokens read different weights.
    """
    config = loaded.model.config.get_text_config(decoder=True)
    if getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None):
        return None
    # The embedding is looked up, not multiplied with, unless it is the output matrix too.
    looked_up = 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size
    matrices = loaded.weight_bytes // loaded.dtype.itemsize - looked_up
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    queries = config.num_hidden_layers * config.num_attention_heads * head_dim
    read = matrices * loaded.dtype.itemsize + context * kv_bytes_per_token(loaded.model)
    flops = 2 * matrices + 4 * context * queries
    bandwidth = read / seconds[1]
    arithmetic = max(n * flops / took for n, took in seconds.items())
    return {
        "bytes_per_pass": read,
        "flops_per_token": flops,
        "bytes_per_second": bandwidth,
        "flops_per_second": arithmetic,
        "knee": arithmetic / bandwidth * read / flops,
    }


def _pass(target: CachedModel, tokens: Sequence[int]) -> float:
    """Milliseconds of a pass with logits at every position, as a verify pass has them; leaves the cache as it was."""
    length = target.length
    began = target.now()
    target.feed(tokens, keep=len(tokens))
    ms = 1000 * (target.now() - began)
    target.roll_back(length)
    return ms


def _drafter_cost(loaded: Loaded, request: Request, repeats: int) -> dict[str, Any]:
    """c from `repeats` runs, each beside its baseline: milliseconds a drafted token ÷ a target pass over one token."""
    values = []
    for _ in range(repeats):
        run, base = start(loaded, request).collect(), start(loaded, request.baseline()).collect()
        c = summarise(run, base).c
        if c is None or c.value is None:
            raise ValueError(f"{request.drafter} drafted nothing, so its cost cannot be told")
        values.append(c.value)
    return {"options": dict(request.options), **_spread("c", values)}


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {name: middle, "low": low, "high": high}
