"""Second models for the tiny losslessness test: one with the target's own vocabulary, one with another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from spec_viz.drafters.registry import Opened

# Text of the tiny world: a number and a space.
OWN = tuple(f"{token} " for token in range(7))
# In another order, with a token for two of the target's, and with one of the target's in two pieces: token 6 can be
# told, but is none of these.
OTHER = ("5 ", "4 ", "3 ", "2 ", "1 ", "0 ", "1 2 ", "6", " ")


class Pieces:
    """A vocabulary of a few pieces of text, cut greedily; it stands in for `Vocabulary`."""

    special: tuple[str, ...] = ()

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = pieces

    def bytes_of(self, token: int) -> bytes:
        return self._pieces[token].encode()

    def encode(self, text: str) -> list[int]:
        """The ids of a text, up to where no piece fits."""
        ids: list[int] = []
        while fitting := [piece for piece in self._pieces if text.startswith(piece)]:
            longest = max(fitting, key=len)
            ids.append(self._pieces.index(longest))
            text = text[len(longest) :]
        return ids


@cache
def open_second(name: str) -> Opened:
    """The model `alike` or the model `other`."""
    pieces = {"alike": OWN, "other": OTHER}[name]
    vocabulary: Any = Pieces(pieces)
    return Opened(tiny_llama(len(pieces), layers=1, seed=12), vocabulary, vocabulary.encode, 0)


def tiny_llama(vocabulary: int, layers: int, seed: int) -> LlamaForCausalLM:
    """A random Llama of so many tokens and layers; its weights are large enough for laws that differ by context."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        initializer_range=0.7,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()  # type: ignore[no-any-return, no-untyped-call]
