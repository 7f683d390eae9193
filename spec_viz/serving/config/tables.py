"""What vLLM accepts, by version: methods, keys, which of its two model runners takes what. Each row has its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

# vLLM's files are named as they lie in the package of 0.32.0, where they were read.
CONFIG = "vLLM 0.32.0, vllm/config/speculative.py"
ENGINE = "vLLM 0.32.0, vllm/engine/arg_utils.py"
RUNNERS = "vLLM 0.32.0, vllm/config/vllm.py"
REQUEST = "vLLM 0.32.0, vllm/sampling_params.py"
METRICS = "vLLM 0.32.0, vllm/config/observability.py"
DYNAMIC = "vLLM 0.32.0, vllm/v1/spec_decode/dynamic/utils.py"
LATEST = "docs.vllm.ai, latest, October 2026: not in 0.32.0"


@dataclass(frozen=True, slots=True)
class Version:
    """A release of vLLM; `read`: its own package was read, else the rows of the one before are carried over."""

    name: str
    exact: str
    read: bool
    source: str


VERSIONS: Mapping[str, Version] = MappingProxyType(
    {
        each.name: each
        for each in (
            Version("0.32", "0.32.0", True, "the package of vLLM 0.32.0, 2026-10"),
            Version("0.33", "0.33.0", False, "docs.vllm.ai, latest, where it says more than 0.32.0"),
        )
    }
)


# ---------------------------------------------------------------- methods


@dataclass(frozen=True, slots=True)
class Method:
    """A way to draft, as the menu has it.

    `vllm` is what stands in the JSON as `method` (None: no speculation at all), `keys` what makes it this method
    beside that, `drafter` whether a checkpoint of its own is needed, `start` the options it begins with. `one_hot`:
    its drafts carry no law, whatever `draft_sample_method` says. `runner`: the only model runner that takes it.
    """

    name: str
    vllm: str | None
    drafter: Literal["none", "needed", "may"]
    start: Mapping[str, str]
    source: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    one_hot: bool = False
    runner: Literal[1, 2] | None = None


def _methods() -> dict[str, Method]:
    lookup = {"num_speculative_tokens": "4", "prompt_lookup_min": "2", "prompt_lookup_max": "5"}
    three = {"num_speculative_tokens": "3"}
    parallel = {"parallel_drafting": True}
    rows = (
        Method("baseline", None, "none", {}, ENGINE),
        Method("ngram", "ngram", "none", lookup, CONFIG, one_hot=True),
        Method("ngram_gpu", "ngram_gpu", "none", lookup, CONFIG, one_hot=True),
        Method("suffix", "suffix", "none", {"num_speculative_tokens": "24"}, CONFIG, one_hot=True, runner=1),
        Method("draft_model", "draft_model", "needed", {"num_speculative_tokens": "5"}, CONFIG),
        Method("pard", "draft_model", "needed", {"num_speculative_tokens": "12"}, CONFIG, parallel, runner=1),
        Method("medusa", "medusa", "needed", three, CONFIG, one_hot=True, runner=1),
        Method("eagle", "eagle", "needed", three, CONFIG),
        Method("eagle3", "eagle3", "needed", three, CONFIG),
        Method("p_eagle", "eagle3", "needed", {"num_speculative_tokens": "5"}, CONFIG, parallel, runner=1),
        Method("mtp", "mtp", "none", {"num_speculative_tokens": "1"}, CONFIG),
        Method("gemma4_mtp", "mtp", "needed", {"num_speculative_tokens": "2"}, CONFIG),
        Method("dflash", "dflash", "needed", {"num_speculative_tokens": "15"}, CONFIG),
        Method(
            "dspark",
            "dspark",
            "may",
            {"num_speculative_tokens": "7", "draft_sample_method": "probabilistic"},
            CONFIG,
            runner=2,
        ),
    )
    return {row.name: row for row in rows}


METHODS: Mapping[str, Method] = MappingProxyType(_methods())

# `MTPModelTypes` in vllm/config/speculative.py of 0.32.0: accepted, and rewritten to `mtp` with a warning.
MTP_ALIASES = frozenset(
    {
        "bailing_hybrid_mtp",
        "bailing_hybrid_v3_mtp",
        "deepseek_mtp",
        "dots3_note_mtp",
        "ernie_mtp",
        "exaone4_5_mtp",
        "exaone_moe_mtp",
        "glm4_moe_lite_mtp",
        "glm4_moe_mtp",
        "glm5_next_mtp",
        "glm_ocr_mtp",
        "hy_v3_mtp",
        "hy_v4_mtp",
        "inkling_mtp",
        "kimi_k3_mtp",
        "longcat_flash_mtp",
        "mimo_mtp",
        "mimo_v2_mtp",
        "minimax_m3_mtp",
        "nemotron_h_mtp",
        "pangu_ultra_moe_mtp",
        "qwen3_5_mtp",
        "qwen3_next_mtp",
        "qwen4_exp_mtp",
        "step3p5_mtp",
    }
)
# What people call a method that vLLM knows under another name.
CALLED: Mapping[str, str] = MappingProxyType(
    {
        "none": "baseline",
        "eagle1": "eagle",
        "eagle2": "eagle",
        "eagle-3": "eagle3",
        "peagle": "p_eagle",
        "p-eagle": "p_eagle",
        "draft-model": "draft_model",
        "lilicorr": "dflash",
    }
)


# ---------------------------------------------------------------- keys

Place = Literal["speculative", "server", "environment", "request"]
Kind = Literal["whole", "real", "flag", "choice", "text", "list", "object"]
# A key of the JSON that has the name of a server's flag is told apart by this.
INSIDE = "speculative_config."


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that can be set. `methods`: the only ones that read it (none named: all); `start`: what the page sets.

    `usual` is what vLLM takes where the key is left out, as it is written there.
    """

    name: str
    place: Place
    kind: Kind
    source: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    usual: str = ""
    start: str = ""
    methods: tuple[str, ...] = ()
    since: str = "0.32"
    offered: bool = False

    @property
    def bare(self) -> str:
        """Its name inside the JSON or among the flags."""
        return self.name.removeprefix(INSIDE)


_LOOKUP = ("ngram", "ngram_gpu")
_HEADS = ("eagle", "eagle3", "p_eagle", "mtp", "gemma4_mtp", "dflash", "dspark")
_MODELS = ("draft_model", "pard", "medusa", *_HEADS)


def _speculative() -> tuple[Key, ...]:
    def key(name: str, kind: Kind, **more: Any) -> Key:
        return Key(name, "speculative", kind, more.pop("source", CONFIG), **more)

    return (
        # vLLM sets no bound; drafts this long never pay, and lists of so many rates are made.
        key("num_speculative_tokens", "whole", low=1, high=1024, offered=True),
        key("prompt_lookup_min", "whole", low=1, usual="5", methods=_LOOKUP, offered=True),
        key("prompt_lookup_max", "whole", low=1, usual="5", methods=_LOOKUP, offered=True),
        key("suffix_decoding_max_tree_depth", "whole", low=1, usual="24", methods=("suffix",), offered=True),
        key("suffix_decoding_max_cached_requests", "whole", low=0, usual="10000", methods=("suffix",), offered=True),
        key("suffix_decoding_max_spec_factor", "real", low=0, usual="1.0", methods=("suffix",), offered=True),
        key("suffix_decoding_min_token_prob", "real", low=0, high=1, usual="0.1", methods=("suffix",), offered=True),
        key("draft_sample_method", "choice", choices=("greedy", "probabilistic"), usual="greedy", offered=True),
        key(
            "rejection_sample_method",
            "choice",
            choices=("standard", "block", "synthetic", "fly"),
            usual="standard",
            offered=True,
        ),
        key("synthetic_acceptance_length", "real", offered=True),
        key("synthetic_acceptance_rates", "list", offered=True),
        key("num_speculative_tokens_per_batch_size", "list", source=DYNAMIC, offered=True),
        key("use_heterogeneous_vocab", "flag", usual="false", offered=True),
        key("enable_adaptive_verification", "flag", usual="false", offered=True),
        key("dspark_draft_topk", "whole", low=1, methods=("dspark",)),
        key("parallel_drafting", "flag", usual="false"),
        key("draft_tensor_parallel_size", "whole", low=1, methods=_MODELS, offered=True),
        key("disable_padded_drafter_batch", "flag", usual="false", methods=_HEADS),
        key("disable_eagle_block_drop", "flag", usual="false", methods=_HEADS),
        key("use_local_argmax_reduction", "flag", usual="false", methods=_MODELS),
        key("index_share_for_mtp_iteration", "flag", methods=("mtp", "gemma4_mtp")),
        key(f"{INSIDE}tensor_parallel_size", "whole", low=1),
        key(f"{INSIDE}max_model_len", "whole", low=1, methods=_MODELS),
        key(f"{INSIDE}enforce_eager", "flag", methods=_MODELS),
        key(f"{INSIDE}quantization", "text", methods=_MODELS),
        key(f"{INSIDE}attention_backend", "text", methods=_MODELS),
        key(f"{INSIDE}kv_cache_dtype", "text", methods=_MODELS),
        key(f"{INSIDE}moe_backend", "text", methods=_MODELS),
        key(f"{INSIDE}revision", "text", methods=_MODELS),
        key(f"{INSIDE}code_revision", "text", methods=_MODELS),
        key("fly_window_size", "whole", low=1, usual="min(6, K − 1)", since="0.33", source=LATEST),
        key("fly_entropy_threshold", "real", low=0, usual="0.3", since="0.33", source=LATEST),
        key("fly_entropy_top_k", "whole", low=1, usual="3", since="0.33", source=LATEST),
    )


def _around() -> tuple[Key, ...]:
    def key(name: str, kind: Kind, **more: Any) -> Key:
        return Key(name, "server", kind, more.pop("source", ENGINE), **more)

    return (
        key("served_model_name", "text"),
        key("host", "text"),
        key("port", "whole", low=1, high=65535, usual="8000", offered=True),
        key("dtype", "choice", choices=("auto", "bfloat16", "float16", "float32"), usual="auto", offered=True),
        key("max_model_len", "whole", low=1, start="4096", offered=True),
        key("max_num_seqs", "whole", low=1, start="16", offered=True),
        key("max_num_batched_tokens", "whole", low=1),
        key("gpu_memory_utilization", "real", low=0.01, high=1, usual="0.92", offered=True),
        key("tensor_parallel_size", "whole", low=1, usual="1", offered=True),
        key("pipeline_parallel_size", "whole", low=1, usual="1"),
        key("data_parallel_size", "whole", low=1, usual="1", offered=True),
        key("seed", "whole", low=0, usual="0", start="0", offered=True),
        key("enable_prefix_caching", "flag", usual="true", start="false", offered=True),
        key("enforce_eager", "flag", usual="false", offered=True),
        key("enable_lora", "flag", usual="false"),
        key("disable_log_stats", "flag", usual="false", offered=True),
        key("enable_per_request_metrics", "flag", usual="false", start="true", source=METRICS, offered=True),
        key(
            "per_request_spec_decode_metrics",
            "choice",
            choices=("none", "summary", "detailed"),
            usual="none",
            # Connect draws rounds from the steps.
            start="detailed",
            source=METRICS,
            offered=True,
        ),
        key("enable_force_include_usage", "flag", usual="false"),
        Key("VLLM_USE_V2_MODEL_RUNNER", "environment", "choice", RUNNERS, choices=("0", "1"), offered=True),
        Key("temperature", "request", "real", REQUEST, low=0, high=2, start="0"),
        Key("max_tokens", "request", "whole", REQUEST, low=1, start="128"),
        Key("n", "request", "whole", REQUEST, low=1, usual="1"),
        Key("stream", "request", "flag", REQUEST, usual="false"),
        Key("include_usage", "request", "flag", REQUEST, usual="false"),
        Key("logprobs", "request", "flag", REQUEST, usual="false"),
        Key("min_p", "request", "real", REQUEST, low=0, high=1, usual="0"),
        Key("logit_bias", "request", "object", REQUEST),
    )


KEYS: Mapping[str, Key] = MappingProxyType({key.name: key for key in (*_speculative(), *_around())})
# What vLLM once read and refuses today (its git log of vllm/config/speculative.py).
GONE = frozenset(
    (
        "speculative_token_tree",
        "disable_by_batch_size",
        "posterior_threshold",
        "posterior_alpha",
        "acceptance_method",
        "speculative_model",
    )
)


# ---------------------------------------------------------------- machines


@dataclass(frozen=True, slots=True)
class Hardware:
    """Where the server runs: whose chip, and the memory of one in GB (None: the machine's own)."""

    name: str
    maker: Literal["nvidia", "amd", "cpu"]
    gigabytes: int | None


HARDWARE: Mapping[str, Hardware] = MappingProxyType(
    {
        each.name: each
        for each in (
            *(Hardware(f"nvidia-{size}", "nvidia", size) for size in (8, 12, 16, 24, 48, 80, 141)),
            *(Hardware(f"amd-{size}", "amd", size) for size in (24, 192, 288)),
            Hardware("cpu", "cpu", None),
        )
    }
)
