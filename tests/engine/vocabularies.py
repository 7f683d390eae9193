"""Small tokenizers of the two kinds there are, made here and now."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VIETNAMESE = [
    "Thời tiết hôm nay ở Hà Nội rất đẹp, trời nắng và gió nhẹ.",
    "Mô hình nhỏ đoán một đoạn, rồi mô hình lớn nghiệm thu.",
    "Nguyên lý cốt lõi: đoán trước, kiểm tra sau; sai ở đâu dừng ở đó.",
]
SPECIAL = ["<|im_start|>", "<|im_end|>"]

# Its constructor is not annotated.
TOKENIZER: Any = PreTrainedTokenizerFast


def byte_level() -> Any:
    """A byte-level BPE as GPT-2's and SmolLM2's: small, so that many Vietnamese letters are split."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(VIETNAMESE, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    tokenizer.add_special_tokens([*SPECIAL, "<unk>"])
    tokenizer.add_tokens([AddedToken("Hà Nội", normalized=False)])
    return TOKENIZER(tokenizer_object=tokenizer, unk_token="<unk>")


def byte_fallback() -> Any:
    """A sentence-piece like BPE: ▁ for a space, and <0x..> for the bytes of letters it does not know."""
    pieces = ["<unk>", *SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += sorted({letter for text in VIETNAMESE for letter in text if letter.isascii()} - {" "})
    pieces += ["▁", "▁h", "ng", "▁ng", "đ", "ờ"]
    model = models.BPE(
        {piece: index for index, piece in enumerate(pieces)},
        [("▁", "h"), ("n", "g"), ("▁", "ng")],
        byte_fallback=True,
        unk_token="<unk>",
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(SPECIAL)
    return TOKENIZER(tokenizer_object=tokenizer, unk_token="<unk>")
