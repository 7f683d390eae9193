"""Published targets and the drafters made for them: where a pair was seen, and about how large its parts are.

Sizes are rough and say so. Of models whose published config gives layers, KV heads and head size, parameters and bytes
of KV cache a token are reckoned from it; of others the size is the one in their name, and the cache is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

CARD = "its published config.json: layers, KV heads, head size, vocabulary"
NAMED = "the size in its name"
LAYERS = "reckoned from its layers"


@dataclass(frozen=True, slots=True)
class Model:
    """A checkpoint: parameters in billions, GB of weights as published, bytes of KV cache a token, vocabulary.

    `context` is the longest text that its config allows (`max_position_embeddings`), None where that was not read.
    """

    name: str
    parameters: float
    gigabytes: float
    kv_bytes: int | None
    vocabulary: int | None
    source: str
    context: int | None = None


def _bf16(
    name: str,
    billions: float,
    kv_bytes: int | None,
    vocabulary: int | None,
    source: str = CARD,
    context: int | None = None,
) -> Model:
    return Model(name, billions, 2 * billions, kv_bytes, vocabulary, source, context)


MODELS: Mapping[str, Model] = MappingProxyType(
    {
        each.name: each
        for each in (
            # KV bytes a token: 2 (K and V) × layers × KV heads × head size × 2 (bfloat16).
            _bf16("HuggingFaceTB/SmolLM2-135M-Instruct", 0.135, 2 * 30 * 3 * 64 * 2, 49_152, context=8192),
            _bf16("Qwen/Qwen3-0.6B", 0.6, 2 * 28 * 8 * 128 * 2, 151_936),
            _bf16("Qwen/Qwen3-1.7B", 1.7, 2 * 28 * 8 * 128 * 2, 151_936),
            _bf16("Qwen/Qwen3-4B", 4.0, 2 * 36 * 8 * 128 * 2, 151_936),
            Model("Qwen/Qwen3-4B-FP8", 4.0, 4.4, 2 * 36 * 8 * 128 * 2, 151_936, CARD),
            _bf16("Qwen/Qwen3-8B", 8.2, 2 * 36 * 8 * 128 * 2, 151_936),
            _bf16("Qwen/Qwen3-30B-A3B", 30.5, 2 * 48 * 4 * 128 * 2, 151_936),
            _bf16("Qwen/Qwen3.5-0.8B", 0.8, None, None, NAMED),
            _bf16("XiaomiMiMo/MiMo-7B-Base", 7.8, 2 * 36 * 8 * 128 * 2, 151_680),
            _bf16("meta-llama/Llama-3.2-1B-Instruct", 1.24, 2 * 16 * 8 * 64 * 2, 128_256),
            _bf16("meta-llama/Meta-Llama-3-8B-Instruct", 8.0, 2 * 32 * 8 * 128 * 2, 128_256, context=8192),
            _bf16("meta-llama/Llama-3.1-8B-Instruct", 8.0, 2 * 32 * 8 * 128 * 2, 128_256),
            _bf16("meta-llama/Llama-3.3-70B-Instruct", 70.6, 2 * 80 * 8 * 128 * 2, 128_256),
            _bf16("lmsys/vicuna-7b-v1.3", 6.7, 2 * 32 * 32 * 128 * 2, 32_000, context=2048),
            Model("openai/gpt-oss-20b", 21.0, 13.8, 2 * 24 * 8 * 64 * 2, 201_088, CARD),
            Model("openai/gpt-oss-120b", 117.0, 65.0, 2 * 36 * 8 * 64 * 2, 201_088, CARD),
            _bf16("google/gemma-4-E2B-it", 5.1, None, 262_144, "5.1 B with its per-layer embeddings, model card"),
            _bf16("google/gemma-4-E4B-it", 8.0, None, 262_144, "8 B with its per-layer embeddings, model card"),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and the drafter made for it. An empty drafter: the target drafts for itself.

    `gamma` is what its source sets, `block` what a block drafter was trained with. `gigabytes`: the drafter's weights,
    None where no source tells.
    """

    method: str
    target: str
    drafter: str
    gamma: int
    source: str
    gigabytes: float | None = None
    size_source: str = ""
    block: int | None = None
    more: Mapping[str, str] = field(default_factory=dict)


_DOCS = "vLLM docs, features/speculative_decoding, August 2026"
_TESTS = "vLLM tests/v1/spec_decode and examples, August 2026"
_RECIPES = "vllm-project/recipes, 2026-08-21"
_LLAMA, _QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-8B"
_OTHER_VOCABULARY = MappingProxyType({"use_heterogeneous_vocab": "true"})

PAIRS: tuple[Pair, ...] = (
    Pair("draft_model", _QWEN, "Qwen/Qwen3-0.6B", 5, _DOCS, 1.2, CARD),
    Pair("draft_model", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-0.6B", 3, _TESTS, 1.2, CARD),
    Pair("draft_model", "Qwen/Qwen3-4B", "Qwen/Qwen3-0.6B", 5, _DOCS, 1.2, CARD),
    Pair(
        "draft_model",
        _QWEN,
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        3,
        _DOCS,
        0.27,
        CARD,
        more=_OTHER_VOCABULARY,
    ),
    Pair("pard", _QWEN, "amd/PARD-Qwen3-0.6B", 12, _DOCS, 1.2, NAMED),
    Pair("pard", "Qwen/Qwen3-4B", "amd/PARD-Qwen3-0.6B", 12, _DOCS, 1.2, NAMED),
    Pair("pard", "Qwen/Qwen3-1.7B", "amd/PARD-Qwen3-0.6B", 12, _DOCS, 1.2, NAMED),
    Pair("pard", _LLAMA, "amd/PARD-Llama-3.2-1B", 12, "the list of PARD checkpoints in vLLM's docs", 2.5, NAMED),
    Pair("medusa", "lmsys/vicuna-7b-v1.3", "FasterDecoding/medusa-vicuna-7b-v1.3", 3, _TESTS, 1.5, LAYERS),
    Pair("eagle", _LLAMA, "yuhuili/EAGLE-LLaMA3.1-Instruct-8B", 3, _TESTS, 0.5, LAYERS),
    Pair(
        "eagle",
        "meta-llama/Meta-Llama-3-8B-Instruct",
        "yuhuili/EAGLE-LLaMA3-Instruct-8B",
        3,
        _TESTS,
        0.5,
        LAYERS,
        more=MappingProxyType({"draft_tensor_parallel_size": "1"}),
    ),
    Pair("eagle3", _LLAMA, "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", 3, _TESTS, 0.85, LAYERS),
    Pair("eagle3", _QWEN, "RedHatAI/Qwen3-8B-speculator.eagle3", 3, _TESTS, 0.8, LAYERS),
    Pair("eagle3", _QWEN, "AngelSlim/Qwen3-8B_eagle3", 3, _TESTS, 0.8, LAYERS),
    Pair("eagle3", "openai/gpt-oss-20b", "RedHatAI/gpt-oss-20b-speculator.eagle3", 3, _TESTS),
    Pair("eagle3", "openai/gpt-oss-120b", "nvidia/gpt-oss-120b-Eagle3-v3", 7, _RECIPES),
    Pair("eagle3", "meta-llama/Llama-3.3-70B-Instruct", "nvidia/Llama-3.3-70B-Instruct-Eagle3", 3, _RECIPES),
    Pair("eagle3", "meta-llama/Llama-3.2-1B-Instruct", "nm-testing/Llama3_2_1B_speculator.eagle3", 3, _TESTS),
    Pair("p_eagle", "openai/gpt-oss-20b", "amazon/GPT-OSS-20B-P-EAGLE", 5, _DOCS),
    Pair("p_eagle", "openai/gpt-oss-120b", "amazon/gpt-oss-120b-p-eagle", 5, _DOCS),
    Pair("p_eagle", _QWEN, "RedHatAI/Qwen3-8B-speculator.peagle", 5, _RECIPES),
    Pair("mtp", "XiaomiMiMo/MiMo-7B-Base", "", 1, _DOCS),
    Pair("mtp", "Qwen/Qwen3.5-0.8B", "", 1, _RECIPES),
    Pair("gemma4_mtp", "google/gemma-4-E2B-it", "google/gemma-4-E2B-it-assistant", 1, _RECIPES),
    Pair("gemma4_mtp", "google/gemma-4-E4B-it", "google/gemma-4-E4B-it-assistant", 2, _TESTS),
    Pair("dflash", _QWEN, "z-lab/Qwen3-8B-DFlash-b16", 15, _TESTS, 2.1, LAYERS, block=16),
    Pair("dflash", "Qwen/Qwen3-4B", "z-lab/Qwen3-4B-DFlash-b16", 15, _TESTS, 1.1, LAYERS, block=16),
    Pair("dflash", _LLAMA, "z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat", 9, "z-lab/dflash README"),
    Pair("dflash", "Qwen/Qwen3-30B-A3B", "RedHatAI/Qwen3-30B-A3B-speculator.dflash", 7, _RECIPES, block=8),
    Pair("dspark", "Qwen/Qwen3-4B-FP8", "deepseek-ai/dspark_qwen3_4b_block7", 7, _TESTS, block=7),
    Pair("dspark", _QWEN, "deepseek-ai/dspark_qwen3_8b_block7", 7, _TESTS, block=7),
    Pair("dspark", "deepseek-ai/DeepSeek-V4-Flash-DSpark", "", 7, _RECIPES, block=7),
)
# Lookups go with any target; these are offered, the small ones first.
ANY = tuple(MODELS)

# What vLLM's docs print wrongly, and what its tests and recipes have in that place.
MISSPELT: Mapping[str, str] = MappingProxyType({"gg-hf-am/": "google/"})


def pairs_of(method: str) -> tuple[Pair, ...]:
    """The pairs known for a method, in order."""
    return tuple(pair for pair in PAIRS if pair.method == method)


def find_pair(method: str, target: str, drafter: str) -> Pair | None:
    """The pair of exactly these, or None."""
    return next((pair for pair in pairs_of(method) if (pair.target, pair.drafter) == (target, drafter)), None)


def targets_of(method: str) -> tuple[str, ...]:
    """Targets to offer with a method: those with a drafter made for them, or any where none is needed."""
    known = tuple(dict.fromkeys(pair.target for pair in pairs_of(method)))
    return known or ANY


def trained_block(method: str, drafter: str) -> int | None:
    """The block that a drafter was trained with: from the pairs, or as its name says it (`-b16`, `block7`)."""
    for pair in PAIRS:
        if pair.method == method and pair.drafter == drafter and pair.block:
            return pair.block
    said = re.search(r"(?:-b|block)(\d+)$", drafter)
    return int(said.group(1)) if said else None
