"""A second model as drafter: with the target's vocabulary, through text, and through the tokens both know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from spec_viz.drafters.draft_model import FAMILY, Reader, Retelling, first_difference, in_both, spellings
from spec_viz.drafters.model import ModelDrafter
from spec_viz.drafters.registry import Opened, OptionError, Setup
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.draws import Draws
from spec_viz.engine.length import Fixed
from spec_viz.engine.proposal import Outcome
from spec_viz.engine.target import CachedModel
from spec_viz.engine.text import Vocabulary, clean
from spec_viz.engine.warp import Warp
from spec_viz.lab.law_tiny import sample_tiny
from tests.engine import tiny
from tests.engine.tiny import GREEDY, Result, collect, never
from tests.engine.vocabularies import VIETNAMESE, byte_fallback, byte_level

WORDS = ["the small model drafts and the large model judges", "a draft is kept or it is not kept", "the end of the day"]
SPECIAL = ["<|im_start|>", "<|im_end|>"]
TOKENIZER: Any = PreTrainedTokenizerFast


def trained(texts: Sequence[str], size: int, special: Sequence[str] = SPECIAL) -> Any:
    """A byte-level BPE that knows the letters of its texts alone, so that every token of it is whole UTF-8."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size))
    tokenizer.add_special_tokens(list(special))
    return TOKENIZER(tokenizer_object=tokenizer)


@cache
def tokenizers() -> tuple[Any, Any]:
    """The target's and the drafter's: other merges, other order, letters in common."""
    return trained(WORDS, 70), trained([*WORDS[::-1], "mad dog days, old gold"], 50)


@cache
def llama(width: int, seed: int, layers: int = 2) -> Any:
    config = LlamaConfig(
        vocab_size=width,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.25,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(seed)
    made: Any = LlamaForCausalLM(config)
    made.to(torch.float64).eval()
    made.model.embed_tokens.weight.data *= tiny.EMBEDDING
    return made


@cache
def taught() -> Any:
    """A drafter that thinks like the target as far as its vocabulary lets it: same body, rows moved to its own ids."""
    target, own = (Vocabulary(tokenizer) for tokenizer in tokenizers())
    whole, width = llama(len(tokenizers()[0]), 5), len(tokenizers()[1])
    pupil = llama(width, 6)
    pupil.load_state_dict(
        {
            name: weight
            for name, weight in whole.state_dict().items()
            if "embed_tokens" not in name and "head" not in name
        },
        strict=False,
    )
    pairs = in_both(spellings(target, len(tokenizers()[0])), spellings(own, width), set())
    for theirs, mine in pairs.items():
        pupil.model.embed_tokens.weight.data[mine] = whole.model.embed_tokens.weight.data[theirs]
        pupil.lm_head.weight.data[mine] = whole.lm_head.weight.data[theirs]
    return pupil


def encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    special = Vocabulary(tokenizer).special
    return lambda text: list(tokenizer.encode(clean(text, special), add_special_tokens=False))


def opened(model: Any, tokenizer: Any) -> Opened:
    return Opened(model, Vocabulary(tokenizer), encoder(tokenizer), 123)


def make_setup(second: Opened, rule: str = "match", warp: Warp = GREEDY, ends: Sequence[int] = ()) -> Setup:
    tokenizer = tokenizers()[0]
    target = CachedModel(llama(len(tokenizer), 5))
    words = Vocabulary(tokenizer)
    return Setup(target, words, encoder(tokenizer), 1, frozenset(ends), warp, rule, open_model=lambda _: second)


def make(second: Opened, vocab: str, rule: str = "match", width: int = 1, **more: Any) -> tuple[Setup, Any]:
    setup = make_setup(second, rule, **more)
    return setup, FAMILY.build(setup, FAMILY.options({"model": "second", "vocab": vocab, "width": width}))


def run(second: Opened, vocab: str, prompt: Sequence[int], rule: str = "match", width: int = 1, **more: Any) -> Result:
    setup, drafter = make(second, vocab, rule, width, **more)
    settings = Settings(4, 24, setup.warp, rule, ends=setup.ends)
    return collect(prompt, decode(setup.target, drafter, prompt, settings, never))


def generate(prompt: Sequence[int], new: int = 24) -> list[int]:
    ids = torch.tensor([list(prompt)])
    out = llama(len(tokenizers()[0]), 5).generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, pad_token_id=0
    )
    written: list[int] = out[0, len(prompt) :].tolist()
    return written


def alike(layers: int = 2) -> Opened:
    """A drafter with the target's vocabulary; with two layers it is the target itself."""
    width = len(tokenizers()[0])
    return opened(llama(width, 5) if layers == 2 else llama(width, 7, layers), tokenizers()[0])


def other() -> Opened:
    return opened(taught(), tokenizers()[1])


def text_prompts() -> list[list[int]]:
    encode = encoder(tokenizers()[0])
    return [encode(text) for text in ("the small model", "a draft is kept or", "the end of the day and the")]


# ---------------------------------------------------------------- every mode writes what the target writes


@pytest.mark.parametrize(
    ("second", "vocab"),
    [(alike, "same"), (lambda: alike(1), "same"), (other, "slem"), (other, "tli"), (alike, "slem"), (alike, "tli")],
    ids=["itself", "same", "slem", "tli", "itself by text", "itself by tokens"],
)
def test_greedy_ids_are_transformers_own(second: Callable[[], Opened], vocab: str) -> None:
    for prompt in text_prompts():
        result = run(second(), vocab, prompt)
        assert result.output == generate(prompt)
        assert any(round_.nodes for round_ in result.decoding)


def test_the_target_as_its_own_drafter_is_always_right() -> None:
    for vocab in ("same", "tli"):
        for rule, warp in (("match", GREEDY), ("token", Warp(1.0))):
            result = run(alike(), vocab, text_prompts()[0], rule, warp=warp)
            assert all(node.status == "accepted" for round_ in result.decoding for node in round_.nodes)
            assert len(result.decoding[0].nodes) == 4


def test_another_vocabulary_is_understood() -> None:
    for vocab in ("slem", "tli"):
        kept = sum(len(round_.path) for prompt in text_prompts() for round_ in run(other(), vocab, prompt).decoding)
        assert kept > 0, vocab


@pytest.mark.parametrize("rule", ["specinfer", "without_replacement", "kseq"])
def test_trees_of_common_tokens(rule: str) -> None:
    result = run(other(), "tli", text_prompts()[0], rule, width=3, warp=Warp(1.0))
    assert any(len(round_.nodes) > 4 for round_ in result.decoding)


# ---------------------------------------------------------------- same: vocabularies are compared by what they say


def test_the_same_name_says_nothing_the_bytes_do() -> None:
    moved = trained(WORDS, 40)
    with pytest.raises(OptionError, match=r"(?s)another token.*slem.*tli"):
        make(opened(llama(len(moved), 7), moved), "same")
    assert first_difference([b"a", b"b"], [b"a", b"b"]) is None
    assert first_difference([b"a", b"b"], [b"a", b"c"]) == 1
    assert first_difference([b"a"], [b"a", b"b"]) == 1
    assert first_difference([b"a", b"b", b""], [b"a", b"b"]) is None


def test_padding_of_the_output_matrix_is_no_difference() -> None:
    width = len(tokenizers()[0])
    for more in (-0, 6):
        second = opened(llama(width + more, 8), tokenizers()[0])
        _, drafter = make(second, "same", "token", warp=Warp(1.0))
        prompt = text_prompts()[0]
        drafter.observe(Outcome((), prompt))
        proposal = drafter.propose(prompt, 3, Draws(0, 1, len(prompt)))
        assert proposal.q is not None
        assert proposal.q.shape == (3, width)
        torch.testing.assert_close(proposal.q.sum(-1), torch.ones(3))
        assert run(second, "same", prompt).output == generate(prompt)


def test_a_model_that_is_not_named_is_asked_for() -> None:
    setup = make_setup(alike())
    with pytest.raises(OptionError, match="name the model"):
        FAMILY.build(setup, FAMILY.options({"model": " "}))


def test_it_knows_what_it_adds_to_the_memory() -> None:
    for vocab in ("same", "slem", "tli"):
        drafter = make(alike(), vocab)[1]
        assert drafter.weight_bytes == 123
        assert drafter.kv_bytes_per_token == 2 * 2 * 2 * 8 * 8


# ---------------------------------------------------------------- the two tokens missing after a full acceptance


class Forgetful(ModelDrafter):
    """Feeds the last committed token alone, as if the last draft had been fed when it was drawn."""

    def _begin(self, context: Sequence[int]) -> Tensor | None:
        return self._model.feed(context[-1:], keep=1)


def next_law(kind: type[ModelDrafter], vocab: str = "same") -> tuple[Tensor, Tensor]:
    """The drafter's law after a round in which every draft was kept, and that of a plain pass over the same text."""
    prompt = text_prompts()[0]
    model = alike().model
    if vocab == "tli":
        drafter = make(alike(), "tli")[1]
    else:
        drafter = kind(CachedModel(model), Warp(1.0), "sampled", 1, Fixed(), frozenset())
    drafter.observe(Outcome((), [*prompt, 3]))
    context = [*prompt, 3]
    proposal = drafter.propose(context, 3, Draws(0, 1, len(context)))
    context += [*proposal.tokens, 4]
    drafter.observe(Outcome((0, 1, 2), context))
    # The last draft was drawn and never fed, and the bonus came after it.
    assert drafter.cache_length == len(context) - 2
    again = drafter.propose(context, 1, Draws(0, 2, len(context)))
    assert again.q_raw is not None
    with torch.inference_mode():
        plain = model(input_ids=torch.tensor([context]), use_cache=False).logits[0, -1].float().softmax(-1)
    return again.q_raw[0], plain


@pytest.mark.parametrize("vocab", ["same", "tli"])
def test_after_a_full_acceptance_the_drafter_has_read_the_whole_text(vocab: str) -> None:
    torch.testing.assert_close(*next_law(ModelDrafter, vocab))


def test_a_drafter_that_forgets_the_last_draft_is_found_out() -> None:
    with pytest.raises(AssertionError):
        torch.testing.assert_close(*next_law(Forgetful))


def test_a_reader_reads_only_what_is_new() -> None:
    model = alike().model
    reader = Reader(CachedModel(model))
    for text in ([1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 9], [1, 2, 9], [7], [7, 8, 9]):
        with torch.inference_mode():
            plain = model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1:].float()
        torch.testing.assert_close(reader.read(text), plain)
        assert reader.length == len(text)


# ---------------------------------------------------------------- what can be retold, and what cannot


def test_a_text_is_retold_to_the_byte_with_its_special_tokens() -> None:
    first, second = byte_level(), byte_fallback()
    retelling = Retelling(Vocabulary(first), opened(llama(len(second), 3), second))
    for text in VIETNAMESE:
        ids = retelling.ids(first.encode(f"<|im_start|>{text}<|im_end|>", add_special_tokens=False))
        assert ids is not None
        assert second.convert_ids_to_tokens(ids[0]) == "<|im_start|>"
        assert second.convert_ids_to_tokens(ids[-1]) == "<|im_end|>"
        assert retelling.spell(ids[1:-1]) == text.encode()


def test_half_a_letter_cannot_be_told_and_gives_no_draft() -> None:
    first, second = byte_level(), byte_fallback()
    retelling = Retelling(Vocabulary(first), opened(llama(len(second), 3), second))
    ids = first.encode("nhỏ 😀 ứng", add_special_tokens=False)
    told = [retelling.ids(ids[:end]) is not None for end in range(1, len(ids) + 1)]
    whole = []
    for end in range(1, len(ids) + 1):
        raw = b"".join(map(Vocabulary(first).bytes_of, ids[:end]))
        whole.append(raw.decode(errors="replace").encode() == raw)
    assert told == whole
    assert False in told


def test_a_special_token_that_only_the_target_has_gives_no_draft() -> None:
    plain = trained(WORDS, 50, special=())
    second = opened(llama(len(plain), 9), plain)
    start = tokenizers()[0].convert_tokens_to_ids("<|im_start|>")
    for vocab in ("slem", "tli"):
        _, drafter = make(second, vocab)
        context = [start, *text_prompts()[0]]
        drafter.observe(Outcome((), context))
        assert len(drafter.propose(context, 4, Draws(0, 1, len(context)))) == 0
        drafter.observe(Outcome((), [*context, 5]))
        assert drafter.cache_length == 0
        # Without it the same words are told.
        assert len(drafter.propose(context[1:], 4, Draws(0, 1, len(context)))) > 0


def test_a_text_that_its_tokenizer_changes_gives_no_draft() -> None:
    second = opened(taught(), tokenizers()[1])
    changed = Opened(second.model, second.vocabulary, lambda text: second.encode(text.replace("m", "d")), 0)
    retelling = Retelling(Vocabulary(tokenizers()[0]), changed)
    encode = encoder(tokenizers()[0])
    assert retelling.ids(encode("the end")) is not None
    assert retelling.ids(encode("the model")) is None


# ---------------------------------------------------------------- slem


class Says(CachedModel):
    """A drafter that says the given ids, whatever it reads."""

    def __init__(self, says: Sequence[int], width: int) -> None:
        super().__init__(llama(width, 5))
        self._says = list(says)

    def feed(self, tokens: Sequence[int], keep: int) -> Tensor:
        super().feed(tokens, keep)
        return torch.nn.functional.one_hot(torch.tensor([self._says.pop(0)]), self.model.config.vocab_size).float()


def said(text: str, gamma: int = 8, before: str = "the small", end: str | None = None) -> list[str]:
    """What the target is handed when the drafter writes this text."""
    first, second = tokenizers()
    ids = encoder(second)(text)
    if end:
        ids.append(second.convert_tokens_to_ids(end))
    _, drafter = make(opened(taught(), second), "slem")
    drafter._reader = Reader(Says([*ids, *encoder(second)(" the" * gamma)], len(second)))
    context = encoder(first)(before)
    tokens = drafter.propose(context, min(gamma, len(ids) - 1) if not end else gamma, Draws(0, 1, 1)).tokens
    pieces: list[str] = first.batch_decode([[token] for token in tokens])
    return pieces


def test_the_last_token_is_held_back_for_it_may_grow() -> None:
    first = tokenizers()[0]
    whole = first.batch_decode([[token] for token in encoder(first)(" model judges")])
    handed = said(" model judges")
    assert handed == whole[: len(handed)]
    assert len(handed) < len(whole)


def test_nothing_is_held_back_in_front_of_an_end() -> None:
    assert "".join(said(" model", end="<|im_end|>")) == " model<|im_end|>"


def test_a_draft_that_merges_with_the_committed_text_is_cut_by_itself() -> None:
    first = tokenizers()[0]
    assert encoder(first)("the mod")[-1] != encoder(first)("the model")[-1]
    assert "".join(said("el and the", before="the mod")).startswith("el")


@pytest.mark.parametrize("gamma", [1, 2, 4])
def test_no_more_is_handed_over_than_asked_for(gamma: int) -> None:
    _, drafter = make(other(), "slem")
    context = text_prompts()[1]
    drafter.observe(Outcome((), context))
    assert len(drafter.propose(context, gamma, Draws(0, 1, 1))) <= gamma


def test_slem_is_judged_as_chosen_in_a_chain() -> None:
    for rule in ("match", "token", "block"):
        assert run(other(), "slem", text_prompts()[0], rule).output == generate(text_prompts()[0])
    with pytest.raises(OptionError, match="use match, token, block"):
        make(other(), "slem", "specinfer")
    with pytest.raises(OptionError, match="width must be 1"):
        make(other(), "slem", "match", width=2)


def test_slem_keeps_no_rejected_draft_in_its_cache() -> None:
    _, drafter = make(other(), "slem")
    context = text_prompts()[1]
    drafter.observe(Outcome((), context))
    drafter.propose(context, 4, Draws(0, 1, 1))
    longer = [*context, 3]
    drafter.observe(Outcome((), longer))
    told = Retelling(Vocabulary(tokenizers()[0]), other()).ids(context)
    assert told is not None
    assert drafter.cache_length == len(told)


# ---------------------------------------------------------------- tli


def test_q_lives_on_the_common_tokens_and_sums_to_one() -> None:
    first, second = tokenizers()
    words = Vocabulary(first), Vocabulary(second)
    pairs = in_both(spellings(words[0], len(first)), spellings(words[1], len(second)), set())
    assert 20 < len(pairs) < min(len(first), len(second))
    assert all(words[0].bytes_of(mine) == words[1].bytes_of(theirs) for mine, theirs in pairs.items())
    setup, drafter = make(other(), "tli", "token", warp=Warp(1.0))
    context = text_prompts()[0]
    drafter.observe(Outcome((), context))
    proposal = drafter.propose(context, 4, Draws(0, 1, len(context)))
    assert proposal.q is not None
    assert proposal.q.shape == (4, len(first))
    torch.testing.assert_close(proposal.q.sum(-1), torch.ones(4))
    outside = [token for token in range(len(first)) if token not in pairs]
    assert float(proposal.q[:, outside].sum()) == 0
    # By hand: the drafter's own law on the text, restricted, renormalised, moved to the target's ids.
    told = Retelling(setup.vocabulary, other()).ids(context)
    assert told is not None
    with torch.inference_mode():
        own = taught()(input_ids=torch.tensor([told]), use_cache=False).logits[0, -1].float().softmax(-1)
    expected = torch.zeros(len(first))
    for mine, theirs in pairs.items():
        expected[mine] = own[theirs]
    torch.testing.assert_close(proposal.q[0], expected / expected.sum())


def test_of_tokens_with_the_same_bytes_one_counts() -> None:
    assert in_both([b"a", b"b", b"b", b""], [b"b", b"", b"a", b"b"], set()) == {2: 3, 0: 2}
    assert in_both([b"<s>", b"a"], [b"a", b"<s>"], {b"<s>"}) == {1: 0}


def test_vocabularies_without_a_common_token_are_refused() -> None:
    strange = trained(["123456789"], 12, special=())
    with pytest.raises(OptionError, match="no token in common"):
        make(opened(llama(len(strange), 9), strange), "tli")


# ---------------------------------------------------------------- the law


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ({"model": "alike"}, ("token", "block", "match", "specinfer", "without_replacement", "kseq")),
        ({"model": "other", "vocab": "tli"}, ("token", "block", "match", "specinfer", "without_replacement", "kseq")),
        ({"model": "other", "vocab": "slem"}, ("match", "token")),
    ],
    ids=["same", "tli", "slem"],
)
def test_the_law_is_kept(options: dict[str, str], rules: tuple[str, ...]) -> None:
    for rule in rules:
        assert sample_tiny(FAMILY, rule, options, 4000).passed, rule
