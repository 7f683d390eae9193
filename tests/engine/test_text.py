"""Tiles are byte-exact: half letters, emoji, spaces, special tokens; and what visitors type is cleaned."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import GPT2Tokenizer

from spec_viz.engine.text import Vocabulary, bytes_to_unicode, clean, mentioned
from spec_viz.engine.trace import Emitted, Node, Round
from tests.engine.vocabularies import SPECIAL, VIETNAMESE, byte_fallback, byte_level

LETTERS = "aăâbcdđeêghiklmnoôơpqrstuưvxyáàảãạếềểễệốồổỗộứừửữựỳỵỷỹÝ ,.\n\t▲🙂👩‍👩‍👧é\u0301\u202e"
TEXTS = st.text(LETTERS, max_size=30) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


TOKENIZERS = {"byte level": byte_level(), "byte fallback": byte_fallback()}


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return TOKENIZERS[request.param]


def ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def joined(tokenizer: Any, text: str) -> bytes:
    vocabulary = Vocabulary(tokenizer)
    return b"".join(vocabulary.bytes_of(token) for token in ids(tokenizer, text))


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=TEXTS)
def test_the_tokens_bytes_joined_are_the_text(kind: str, text: str) -> None:
    # A literal ▁ is a space to a sentence-piece vocabulary: it does not survive encoding in any program.
    text = text.replace("▁", "")
    assert joined(TOKENIZERS[kind], text) == text.encode()
    assert Vocabulary(TOKENIZERS[kind]).text(ids(TOKENIZERS[kind], text)) == text


@pytest.mark.parametrize(
    "text", [*VIETNAMESE, "  two  spaces\n\nand lines\t", "🙂👩‍👩‍👧", "<|im_start|>Hà Nội<|im_end|>", ""]
)
def test_whole_sentences_and_special_tokens_are_joined_exactly(tokenizer: Any, text: str) -> None:
    assert joined(tokenizer, text) == text.encode()
    assert Vocabulary(tokenizer).text(ids(tokenizer, text)) == tokenizer.decode(ids(tokenizer, text))


def test_half_a_letter_keeps_its_bytes_in_the_table(tokenizer: Any) -> None:
    vocabulary = Vocabulary(tokenizer)
    tokens = ids(tokenizer, "🙂")
    assert len(tokens) == 4
    entries = [vocabulary.entry(token) for token in tokens]
    assert [hexed for _, hexed in entries] == ["f0", "9f", "99", "82"]
    assert {text for text, _ in entries} == {"\ufffd"}


def test_a_whole_token_has_its_text_and_no_bytes(tokenizer: Any) -> None:
    vocabulary = Vocabulary(tokenizer)
    for text in ("ng", "<|im_end|>", "\n"):
        (token,) = ids(tokenizer, text)
        assert vocabulary.entry(token) == (text, None)
    spaced, hexed = vocabulary.entry(ids(tokenizer, "a ng")[1])
    assert spaced.startswith(" ")
    assert hexed is None


def test_many_tokens_of_vietnamese_are_not_whole_letters() -> None:
    tokens = ids(TOKENIZERS["byte level"], "".join(VIETNAMESE).replace("Hà Nội", "Huế"))
    entries = Vocabulary(TOKENIZERS["byte level"]).table(tokens)
    assert any(hexed for _, hexed in entries.values())
    assert all((hexed is not None) == ("\ufffd" in text) for text, hexed in entries.values())


def test_an_id_beyond_the_vocabulary_has_no_bytes(tokenizer: Any) -> None:
    # Embedding tables are often padded: a model can name an id that its tokenizer does not know.
    assert Vocabulary(tokenizer).entry(len(tokenizer) + 50) == ("", None)


def test_every_id_has_an_entry(tokenizer: Any) -> None:
    table = Vocabulary(tokenizer).table(range(len(tokenizer)))
    assert list(table) == list(range(len(tokenizer)))
    for text, hexed in table.values():
        assert text
        assert hexed is None or bytes.fromhex(hexed).decode(errors="replace") == text


def test_the_stand_ins_are_gpt2_s_own() -> None:
    theirs = GPT2Tokenizer(vocab={"a": 0}, merges=[]).backend_tokenizer
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    assert theirs.pre_tokenizer is not None
    table = bytes_to_unicode()
    assert sorted(table) == list(range(256))
    assert set(table.values()) == alphabet
    assert (table[ord("A")], table[ord(" ")], table[ord("\n")]) == ("A", "Ġ", "Ċ")


def test_a_round_is_labelled_with_every_id_it_mentions_but_those_seen() -> None:
    top = ((1, 0.5), (2, 0.5))
    nodes = (
        Node(3, -1, 1, "rejected", p_top=top, q_top=((4, 1.0),), residual_top=((5, 1.0),)),
        Node(6, 0, 2, "discarded"),
    )
    round_ = Round(1, nodes, Emitted(7, "correction", p_top=((8, 1.0),)))
    assert mentioned(round_) == {1, 2, 3, 4, 5, 6, 7, 8}
    assert mentioned(Round(0)) == set()
    # A drafter's reasons name tokens too: candidates of a slot, what was grown and dropped.
    told = {"candidates": [[11, 0.5], [3, 0.1]], "corrected": [[12, 0.5]], "dropped": [[13, -1, 0.1]], "slot": 1}
    assert mentioned(Round(1, (Node(3, -1, 1, "discarded", why=told),))) == {3, 11, 12, 13}
    vocabulary = Vocabulary(TOKENIZERS["byte level"])
    labelled = vocabulary.label(round_, {1, 7, 99})
    assert labelled.tokens == vocabulary.table([2, 3, 4, 5, 6, 8])
    assert labelled.nodes == round_.nodes


# ---------------------------------------------------------------- what visitors type


@pytest.mark.parametrize(
    ("typed", "cleaned"),
    [
        ("Hà Nội 🙂 <img onerror=…> ${x} {{y}} `z` \u202e", "Hà Nội 🙂 <img onerror=…> ${x} {{y}} `z` \u202e"),
        ("a<|im_end|>b", "ab"),
        ("<|im_<|im_end|>end|>", ""),
        ("<|im_<|im_start|>end|>x", "x"),
        ("a\ud800b\udfffc", "abc"),
        ("<|im_\ud800end|>", ""),
        ("<|im_\0end|>\x04", ""),
        ("a\0b\x04c", "abc"),
        ("line\n\ttab", "line\n\ttab"),
    ],
)
def test_clean_takes_out_special_tokens_and_what_no_text_holds(typed: str, cleaned: str) -> None:
    assert clean(typed, SPECIAL) == cleaned


@given(
    st.lists(st.sampled_from([*SPECIAL, "<|im_", "end|>", "start|>", "\ud800", "\0", "\x04", "ế", " "]), max_size=12)
)
def test_nothing_forbidden_can_be_put_together_from_pieces(pieces: list[str]) -> None:
    cleaned = clean("".join(pieces), SPECIAL)
    assert not any(special in cleaned for special in [*SPECIAL, "\0", "\x04", "\ud800"])
    assert clean(cleaned, SPECIAL) == cleaned
    cleaned.encode()


@given(TEXTS)
def test_clean_leaves_other_text_alone(text: str) -> None:
    text = text.replace("\0", "").replace("\x04", "")
    assert clean(text, ["", "<|im_end|>"]) == text
    assert clean(text, []) == text


def test_of_two_special_tokens_the_longer_is_taken_whole() -> None:
    assert clean("a<end><end>>b", ["<end>", "<end>>"]) == "ab"


def test_cleaned_text_cannot_become_a_special_token(tokenizer: Any) -> None:
    special = set(tokenizer.convert_tokens_to_ids(SPECIAL))
    names = Vocabulary(tokenizer).special
    assert set(SPECIAL) <= set(names)
    assert "Hà Nội" not in names
    for typed in ("hi<|im_end|>there", "<|im_start|>" * 3, "<|im_<|im_end|>end|>"):
        assert special & set(ids(tokenizer, typed))
        assert not special & set(ids(tokenizer, clean(typed, names)))
