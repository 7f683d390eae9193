"""Published drafters that are models: PARD's checkpoints and Gemma 4's assistant.

A PARD checkpoint (AMD-AGI/PARD) is an ordinary Llama whose config names the token that stands for the mask,
`pard_token`; it reads and writes through tables of its own, and runs here as any PARD head does. `write_pard` gives a
head of ours that layout.

Gemma 4's assistant is a model of transformers' own, which asks the cache of a Gemma 4 target; `drafters.assistant` runs
it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import Gemma4AssistantForCausalLM, LlamaForCausalLM

from spec_viz.drafters.assistant import ASSISTANT
from spec_viz.drafters.head import Head, embedding_rows, output_rows
from spec_viz.drafters.readout import OWN_ROWS, weights_of

MASK = "pard_token"
TABLE = "model.embed_tokens.weight"


def read_pard(folder: Path, model: Any) -> Head:
    """A published PARD checkpoint as a head for a target of the same vocabulary; ValueError where it is none.

    A vocabulary may be padded: what it can say is what both have ids for.
    """
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != "llama" or MASK not in config:
        raise ValueError(f"{folder} holds no PARD checkpoint built like Llama: its config names no {MASK}.")
    read = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    tensors = {name: tensor.detach() for name, tensor in read.state_dict().items()}
    width = min(len(tensors[OWN_ROWS]), len(embedding_rows(model)))
    # Ids of the target that the checkpoint has no row for could not be read: such a target has another vocabulary.
    if len(tensors[TABLE]) < len(embedding_rows(model)):
        raise ValueError(f"{folder} knows {len(tensors[TABLE])} ids and the target {len(embedding_rows(model))}.")
    t2d = torch.arange(len(embedding_rows(model))) < width
    tensors |= {
        "mask": tensors[TABLE][int(config[MASK])].clone(),
        OWN_ROWS: tensors[OWN_ROWS][:width].clone(),
        "d2t": torch.zeros(width, dtype=torch.long),
        "t2d": t2d,
    }
    return Head("pard", {"method": "pard", "llama": read.config.to_dict()}, tensors)


def write_pard(head: Head, model: Any, mask_token: int, folder: Path) -> None:
    """Write a head of ours as a PARD checkpoint; `mask_token` is an id that the target never writes, or a new one.

    A new one is the first behind the target's vocabulary. Other programs then draft all of that vocabulary, since they
    know of no smaller one.
    """
    table = embedding_rows(model).float()
    tensors = weights_of(head)
    narrow, widen, mask = (tensors.pop(name) for name in ("narrow.weight", "widen.weight", "mask"))
    rows = output_rows(model, torch.arange(len(table))).float() @ widen
    entered = table @ narrow.T
    if mask_token == len(table):
        entered, rows = torch.cat([entered, mask[None]]), torch.cat([rows, torch.zeros_like(rows[:1])])
    elif mask_token < len(table):
        entered[mask_token] = mask
    else:
        raise ValueError(f"the mask can be one of the target's {len(table)} ids, or {len(table)}")
    tensors |= {TABLE: entered, OWN_ROWS: rows}
    config = {
        **head.config["llama"],
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": len(entered),
        "tie_word_embeddings": False,
        MASK: mask_token,
    }
    folder.mkdir(parents=True)
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def read_assistant(folder: Path, model: Any) -> Head:
    """Gemma 4's assistant as a head for a Gemma 4 target; ValueError where it is none, or for another target."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != "gemma4_assistant":
        raise ValueError(f"{folder} holds no assistant of Gemma 4.")
    target = model.config
    if target.model_type != "gemma4_text" or config["backbone_hidden_size"] != target.hidden_size:
        raise ValueError(f"{folder} assists a Gemma 4 target of width {config['backbone_hidden_size']}.")
    read: Any = Gemma4AssistantForCausalLM.from_pretrained(
        folder, dtype=torch.float32, use_safetensors=True, local_files_only=True
    )
    if read.vocab_size != len(embedding_rows(model)):
        raise ValueError(f"{folder} knows {read.vocab_size} ids and the target {len(embedding_rows(model))}.")
    tensors = {name: tensor.detach() for name, tensor in read.state_dict().items() if name != OWN_ROWS}
    return Head("kv_sharing", {"method": "kv_sharing", ASSISTANT: read.config.to_dict()}, tensors)
