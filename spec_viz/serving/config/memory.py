"""Whether a pair fits into a GPU's memory, roughly: weights, one full request's KV cache, what the runtime keeps."""

from __future__ import annotations

from dataclasses import dataclass

from spec_viz.serving.config.choice import Case

# CUDA graphs, activations and the libraries themselves: about this much on one GPU, for models of these sizes.
RUNTIME = 2.0
# What vLLM takes of a GPU where nothing is said (`gpu_memory_utilization` in vllm/config/cache.py of 0.32.0).
SHARE = 0.92


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that takes memory; `gigabytes` is None where no source tells, and it is not counted then."""

    name: str
    gigabytes: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Memory:
    """The parts, their sum, and what one GPU gives to it; both per GPU. `fits` is None where it cannot be said."""

    parts: tuple[Part, ...]
    total: float
    room: float | None
    fits: bool | None


def estimate(case: Case) -> Memory | None:
    """The estimate of a case whose target's size is known, else None."""
    target = case.target
    if target is None:
        return None
    spread_over = int(case.values.get("tensor_parallel_size") or 1)
    # Layers go to the stages; the drafter is on the last one alone.
    shared = spread_over * int(case.values.get("pipeline_parallel_size") or 1)
    # What is published in 16 bits takes 32 then, and the cache with it; what is quantised stays as it is.
    wider = 2 if case.values.get("dtype") == "float32" else 1
    is_quantised = target.gigabytes != 2 * target.parameters
    length = int(case.values.get("max_model_len") or 4096)
    parts = [Part("target", target.gigabytes * (1 if is_quantised else wider) / shared, target.source)]
    if case.method and case.method.drafter != "none" and case.choice.drafter:
        pair, draft = case.pair, case.draft
        size = pair.gigabytes if pair else draft.gigabytes if draft else None
        source = pair.size_source if pair else draft.source if draft else ""
        spread = int(case.values.get("draft_tensor_parallel_size") or spread_over)
        parts.append(Part("drafter", None if size is None else size * wider / spread, source))
    cache = None if target.kv_bytes is None else target.kv_bytes * wider * length / shared / 1e9
    parts.append(Part("cache", cache, target.source))
    if case.values.get("draft_sample_method") == "probabilistic" and target.vocabulary:
        # [requests, K, vocabulary] of float32: `draft_logits` in vllm/v1/worker/gpu/spec_decode/speculator.py.
        seats = int(case.values.get("max_num_seqs") or 256)
        parts.append(Part("law", 4 * seats * case.gamma * target.vocabulary / 1e9, ""))
    parts.append(Part("runtime", RUNTIME, ""))
    total = sum(part.gigabytes or 0 for part in parts)
    room = None
    if case.machine.gigabytes is not None:
        room = case.machine.gigabytes * float(case.values.get("gpu_memory_utilization") or SHARE)
    return Memory(tuple(parts), total, room, None if room is None else total <= room)
