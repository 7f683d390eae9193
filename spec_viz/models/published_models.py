"""Published drafters that are models: PARD's checkpoints and Gemma 4's assistant.

A PARD checkpoint (AMD-AGI/PARD) is an ordinary Llama whose config names the token that stands for the mask,
`pard_token`; it reads and writes through tables of its own, and runs here as any PARD head does. `write_pard` gives a
head of ours that layout.

Gemma 4's assistant is built otherwise than ours (normed queries, sliding layers, scaled layers, an output matrix that
may be sorted into centroids), and asks two layers of a Gemma 4 target. It is run by transformers' own class, beside
what such a target shows; our engine's cache keeps full attention only, so that target is not one of ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import Gemma4AssistantForCausalLM, LlamaForCausalLM

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


class Gemma4Assistant:
    """Gemma 4's assistant as its authors wrote it for transformers, stepped as our `Borrower` steps ours."""

    def __init__(self, folder: Path) -> None:
        model: Any = Gemma4AssistantForCausalLM.from_pretrained(folder, local_files_only=True)
        self.model = model.eval()

    @torch.inference_mode()
    def draft(
        self, target: Any, text: Tensor, hidden: Tensor, entries: Mapping[str, tuple[Tensor, Tensor]], count: int
    ) -> Tensor:
        """Logits (count, V) of the next tokens, each behind the best guess for the one before.

        The text is (1, L) ids, `hidden` (1, 1, d) the target's last state at the token before its last, `entries` by
        layer type the keys and values of the text but its last token. The assistant is greedy: its drafts are one-hot,
        and a rule that takes these logits for q would bend the target's law (algorithms §14).
        """
        token, position = text[:, -1:], torch.tensor([[text.shape[1] - 1]], device=text.device)
        logits: list[Tensor] = []
        for _ in range(count):
            # Gemma's own embedding module scales what it looks up.
            read = torch.cat([target.get_input_embeddings()(token), hidden], -1)
            out = self.model(inputs_embeds=read, position_ids=position, shared_kv_states=dict(entries))
            token, hidden = out.logits.argmax(-1), out.last_hidden_state
            logits.append(out.logits[0, -1])
        return torch.stack(logits)
