"""Trained heads as others load them: the draft model as an ordinary Llama folder, EAGLE-3 in its published layout.

What a head stores is small because it reuses the target's rows; other programs do not know that, so the products are
written out here. Nothing is fetched: head and target must both be here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from spec_viz.drafters.head import Head
from spec_viz.models.heads import read_head
from spec_viz.models.weights import folder

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
CONFIG, MODEL = "config.json", "model.safetensors"


def export(name: str, target: str, made: Path) -> None:
    """Write the head of this name into a new folder, float32; WeightsError where head or target is missing.

    `draft_model` becomes a LlamaForCausalLM with its tokenizer, `eagle3` a LlamaForCausalLMEagle3 as SafeAILab
    published it and vLLM and SGLang read it. ValueError for a head that has no such layout.
    """
    if name not in ("draft_model", "eagle3"):
        raise ValueError(f"{name} has no layout that other programs load; draft_model and eagle3 do.")
    head, place = read_head(name, target), folder(target)
    rows = _embedding(place)
    config, tensors = _draft_model(head, rows) if name == "draft_model" else _eagle3(head, rows, _depth(place))
    made.mkdir(parents=True)
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, made / MODEL, {"format": "pt"})
    (made / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    for file in TOKENIZER:
        if (place / file).is_file():
            shutil.copyfile(place / file, made / file)


def _embedding(place: Path) -> Tensor:
    """The target's embedding (V, d), which is its output matrix too."""
    with safe_open(place / MODEL, "pt") as file:
        if "lm_head.weight" in file.keys():  # noqa: SIM118 - not a mapping
            raise ValueError("Only heads of a target with tied rows can be written out.")
        rows: Tensor = file.get_tensor("model.embed_tokens.weight").float()
    return rows


def _depth(place: Path) -> int:
    """How many layers the target has."""
    return int(json.loads((place / CONFIG).read_text(encoding="utf-8"))["num_hidden_layers"])


def _draft_model(head: Head, rows: Tensor) -> tuple[dict[str, Any], dict[str, Tensor]]:
    tensors = dict(head.tensors)
    narrow, widen = tensors.pop("narrow.weight"), tensors.pop("widen.weight")
    tensors["model.embed_tokens.weight"] = rows @ narrow.T
    tensors["lm_head.weight"] = rows @ widen
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "float32"} | dict(
        head.config["llama"]
    ), tensors


def _eagle3(head: Head, rows: Tensor, depth: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    # Where a config names the layers (`eagle_aux_hidden_state_layer_ids`), vLLM 0.32 takes them as those whose input is
    # fused and SGLang as those whose output is. Where it names none, as SafeAILab's, both take the inputs of these.
    usual = [2, depth // 2, depth - 3]
    if list(head.config["layers"]) != usual:
        raise ValueError(f"Other programs fuse the inputs of layers {usual} and this head {head.config['layers']}.")
    tensors = dict(head.tensors) | {"lm_head.weight": rows[head.draft_ids]}
    config = {
        **head.config["llama"],
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "dtype": "float32",
        "num_hidden_layers": 1,
        "tie_word_embeddings": False,
        "draft_vocab_size": len(head.draft_ids),
        "target_hidden_size": rows.shape[1],
    }
    return config, tensors
