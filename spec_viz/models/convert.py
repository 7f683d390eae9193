"""A GGUF file becomes a folder that transformers loads in a fifth of a second: float32 safetensors and a tokenizer.

transformers reads GGUF too, but parses the file three times (half a minute more), needs `accelerate` for it, and does
not read how the file says text is cut into words. Only what the catalogue holds is read here: Llama weights with a
byte-level vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gguf import GGUFReader
    from torch import Tensor

# llama.cpp's names of tensors, and transformers'.
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL = 3  # llama.cpp's token type for <|im_end|> and its like


def convert(gguf: Path, made: Path, hear: Callable[[str, float | None], None]) -> None:
    """Read the model and the tokenizer out of `gguf` and save both into the folder `made`.

    float32, because a scale times a 4-bit number plus an offset does not fit in 16 bits.
    """
    from gguf import GGUFReader

    hear("convert", 0.0)
    reader = GGUFReader(gguf)
    hear("convert", 0.3)
    tokenizer = _tokenizer(reader)
    hear("convert", 0.5)
    model = _model(reader, lambda share: hear("convert", 0.5 + share / 2))
    hear("save", None)
    with quiet():
        tokenizer.save_pretrained(made)
        model.save_pretrained(made)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' own progress bars off the terminal: the caller draws one."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _read(reader: GGUFReader, name: str) -> Any:
    field = reader.get_field(name)
    if field is None:
        raise ValueError(f"the GGUF file has no {name}")
    return field.contents()


def _model(reader: GGUFReader, hear: Callable[[float], None]) -> Any:
    import torch
    from gguf import dequantize
    from transformers import AutoModelForCausalLM

    config = _config(reader)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    weights = {}
    for place, tensor in enumerate(reader.tensors):
        hear(place / len(reader.tensors))
        values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        part = tensor.name.removesuffix(".weight").split(".")[-1]
        weights[_name(tensor.name)] = _halves(values, heads[part]) if part in heads else values
    if config.tie_word_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights, assign=True)
    model.tie_weights()
    return model


def _config(reader: GGUFReader) -> Any:
    from transformers import LlamaConfig

    if _read(reader, "general.architecture") != "llama":
        raise ValueError("only Llama weights are converted")
    hidden, heads = _read(reader, "llama.embedding_length"), _read(reader, "llama.attention.head_count")
    return LlamaConfig(
        vocab_size=len(_read(reader, "tokenizer.ggml.tokens")),
        hidden_size=hidden,
        intermediate_size=_read(reader, "llama.feed_forward_length"),
        num_hidden_layers=_read(reader, "llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=_read(reader, "llama.attention.head_count_kv"),
        head_dim=hidden // heads,
        max_position_embeddings=_read(reader, "llama.context_length"),
        rms_norm_eps=_read(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": _read(reader, "llama.rope.freq_base")},
        bos_token_id=_read(reader, "tokenizer.ggml.bos_token_id"),
        eos_token_id=_read(reader, "tokenizer.ggml.eos_token_id"),
        pad_token_id=_read(reader, "tokenizer.ggml.padding_token_id"),
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in reader.tensors),
    )


def _name(name: str) -> str:
    """`blk.3.attn_q.weight` → `model.layers.3.self_attn.q_proj.weight`."""
    *block, part, kind = name.split(".")
    return ".".join([*(("model.layers", block[1]) if block else ()), NAMES[part], kind])


def _halves(values: Tensor, heads: int) -> Tensor:
    """Rows of q or k (heads · head_dim, hidden) from llama.cpp's order, rotary pairs side by side, to halves."""
    rows, hidden = values.shape
    return values.view(heads, rows // heads // 2, 2, hidden).transpose(1, 2).reshape(rows, hidden)


def _tokenizer(reader: GGUFReader) -> Any:
    """The byte-level tokenizer, with digits cut apart where the file says so.

    `tokenizer.ggml.pre` names the cut; llama.cpp's rule for `smollm` is one digit a word before all else, so two line
    breaks before a number are one token, as the model was trained.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = _read(reader, "tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in _read(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: place for place, token in enumerate(tokens)}, merges=merges))
    kinds = _read(reader, "tokenizer.ggml.token_type")
    controls = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in controls])
    cuts: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    if _read(reader, "tokenizer.ggml.pre") == "smollm":
        cuts.insert(0, pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        bos_token=tokens[_read(reader, "tokenizer.ggml.bos_token_id")],
        eos_token=tokens[_read(reader, "tokenizer.ggml.eos_token_id")],
        pad_token=tokens[_read(reader, "tokenizer.ggml.padding_token_id")],
        unk_token=tokens[_read(reader, "tokenizer.ggml.unknown_token_id")],
        model_max_length=_read(reader, "llama.context_length"),
        chat_template=_read(reader, "tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
    )
