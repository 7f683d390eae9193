"""From token ids to bytes to what a tile shows.

A token of a byte-level vocabulary can be half a letter: a third to half of the tokens of a Vietnamese sentence are,
here. Such a token keeps its bytes in the table, so two tiles that share a letter stay two tiles and the letter is still
drawn.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from spec_viz.engine.trace import Round, TokenTable

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Vocabulary:
    """The bytes behind every id of a tokenizer, byte-level (Ġ) or sentence-piece (▁)."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special: dict[int, str] = {
            index: token.content for index, token in tokenizer.added_tokens_decoder.items()
        }
        self._letters = {letter: byte for byte, letter in bytes_to_unicode().items()}
        self._byte_level = "Ġ" in "".join(
            tokenizer.convert_ids_to_tokens(tokenizer.encode(" a", add_special_tokens=False))
        )

    @property
    def special(self) -> tuple[str, ...]:
        """The texts of all special tokens; a tokenizer's own `all_special_tokens` has only those with a role."""
        return tuple(token.content for token in self._tokenizer.added_tokens_decoder.values() if token.special)

    def bytes_of(self, token: int) -> bytes:
        """The exact bytes a token adds to the text."""
        if token in self._special:
            return self._special[token].encode()
        piece = self._tokenizer.convert_ids_to_tokens(token)
        if piece is None:
            return b""
        if self._byte_level:
            return bytes(self._letters[letter] for letter in piece)
        if byte := _BYTE_TOKEN.fullmatch(piece):
            return bytes([int(byte[1], 16)])
        return str(piece).replace("▁", " ").encode()

    def entry(self, token: int) -> tuple[str, str | None]:
        """A token's text, and its bytes in hex when they are not whole UTF-8."""
        raw = self.bytes_of(token)
        try:
            return raw.decode(), None
        except UnicodeDecodeError:
            return raw.decode(errors="replace"), raw.hex()

    def table(self, tokens: Iterable[int]) -> TokenTable:
        """The token table of these ids."""
        return {token: self.entry(token) for token in sorted(set(tokens))}

    def text(self, tokens: Sequence[int]) -> str:
        """The text of several tokens, letters joined across them."""
        return b"".join(self.bytes_of(token) for token in tokens).decode(errors="replace")

    def label(self, round_: Round, seen: Collection[int]) -> Round:
        """The round with table entries for the ids it mentions that are not in `seen`."""
        return replace(round_, tokens=self.table(mentioned(round_) - set(seen)))


# Reasons of a drafter that are rows, each of which begins with a token's id.
ROWS = ("candidates", "corrected", "dropped")


def mentioned(round_: Round) -> set[int]:
    """Every token id a round speaks of, candidates included."""
    ids = set[int]()
    tops = []
    for node in round_.nodes:
        if node.id is not None:
            ids.add(node.id)
        tops += [node.p_top, node.q_top, node.residual_top]
        ids.update(int(row[0]) for name in ROWS for row in (node.why or {}).get(name, ()))
    if round_.emitted is not None:
        ids.add(round_.emitted.id)
        tops.append(round_.emitted.p_top)
    return ids | {token for top in tops if top for token, _ in top}


def bytes_to_unicode() -> dict[int, str]:
    """GPT-2's printable stand-in for each of the 256 bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {byte: chr(byte) for byte in printable}
    hidden = (byte for byte in range(256) if byte not in table)
    return table | {byte: chr(256 + index) for index, byte in enumerate(hidden)}


def clean(text: str, special: Collection[str]) -> str:
    """Take out what a visitor must not be able to type: special tokens, lone surrogates, NUL and U+0004."""
    text = _SURROGATE.sub("", text).replace("\0", "").replace("\x04", "")
    names = sorted(filter(None, special), key=len, reverse=True)
    if not names:
        return text
    pattern = re.compile("|".join(map(re.escape, names)))
    # Taking one out can join the halves of another (`<|im_<|im_end|>end|>`), so go on until none is left.
    while pattern.search(text):
        text = pattern.sub("", text)
    return text
