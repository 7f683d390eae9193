"""One run from request to trace on a tiny model with a tokenizer: refusals by key, and a trace that is complete."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from spec_viz.engine.length import LENGTHS, Fixed
from spec_viz.engine.text import mentioned
from spec_viz.engine.trace import dumps, loads
from spec_viz.lab.run import Request, RequestError, check, encode_prompt, start
from spec_viz.models.catalogue import DEFAULT
from spec_viz.models.load import Loaded
from spec_viz.models.weights import find
from tests.engine.vocabularies import byte_level

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}<|im_start|>"
PROMPT = "Thời tiết hôm nay rất đẹp, thời tiết hôm nay"


@cache
def loaded() -> Loaded:
    tokenizer = byte_level()
    tokenizer.chat_template = TEMPLATE
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.25,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(3)
    model: Any = LlamaForCausalLM(config)
    model.eval()
    model.model.embed_tokens.weight.data *= 10
    return Loaded(model, tokenizer, find(DEFAULT), torch.device("cpu"), "test", torch.float32, 1234, False)


def ask(**fields: Any) -> Request:
    return Request(**{"prompt": PROMPT, "chat": False, "max_new_tokens": 20, **fields})


REFUSED: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"prompt": ""}, "error.empty_prompt", {}),
    ({"prompt": " \n\t"}, "error.empty_prompt", {}),
    ({"prompt": None}, "error.empty_prompt", {}),
    ({"gamma": 0}, "error.bad_number", {"name": "gamma", "low": 1, "high": 12}),
    ({"gamma": 13}, "error.bad_number", {"name": "gamma"}),
    ({"gamma": 2.5}, "error.bad_number", {"name": "gamma"}),
    ({"gamma": "4"}, "error.bad_number", {"name": "gamma"}),
    ({"gamma": True}, "error.bad_number", {"name": "gamma"}),
    ({"gamma": None}, "error.bad_number", {"name": "gamma"}),
    ({"temperature": -0.1}, "error.bad_number", {"name": "temperature"}),
    ({"temperature": float("nan")}, "error.bad_number", {"name": "temperature"}),
    ({"temperature": float("inf")}, "error.bad_number", {"name": "temperature"}),
    ({"top_p": 0}, "error.bad_number", {"name": "top_p"}),
    ({"top_p": 1.01}, "error.bad_number", {"name": "top_p"}),
    ({"top_k": -1}, "error.bad_number", {"name": "top_k"}),
    ({"repetition_penalty": 0}, "error.bad_number", {"name": "repetition_penalty"}),
    ({"seed": -1}, "error.bad_number", {"name": "seed"}),
    ({"seed": 2**60}, "error.bad_number", {"name": "seed"}),
    ({"max_new_tokens": 0}, "error.bad_number", {"name": "max_new_tokens"}),
    ({"max_new_tokens": 10_000}, "error.bad_number", {"name": "max_new_tokens"}),
    ({"drafter": "oracle"}, "error.unknown_drafter", {"name": "oracle"}),
    ({"drafter": ["none"]}, "error.unknown_drafter", {}),
    ({"drafter": "x" * 999}, "error.unknown_drafter", {"name": "x" * 40}),
    ({"rule": "kseq"}, "error.rule_does_not_fit", {"rule": "kseq", "drafter": "prompt_lookup"}),
    ({"drafter": "early_exit", "rule": "guess"}, "error.rule_does_not_fit", {"rule": "guess"}),
    ({"rule": "synthetic", "strength": 1.5}, "error.bad_number", {"name": "strength"}),
    ({"length": "guess"}, "error.unknown_length", {"name": "guess", "known": "fixed, heuristic, confident, goodput"}),
    ({"length": ["fixed"]}, "error.unknown_length", {}),
    ({"options": {"depth": 3}}, "error.bad_option", {}),
    ({"options": {"max_ngram": 99}}, "error.bad_option", {}),
]


@pytest.mark.parametrize(("fields", "key", "said"), REFUSED, ids=[str(fields)[:40] for fields, _, _ in REFUSED])
def test_a_request_that_cannot_be_run_is_refused_with_its_key(
    fields: dict[str, Any], key: str, said: dict[str, Any]
) -> None:
    with pytest.raises(RequestError) as refusal:
        check(ask(**fields))
    assert refusal.value.key == key
    assert said.items() <= refusal.value.fields.items()


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"prompt": "đẹp " * 100}, "error.prompt_too_long"),
        ({"prompt": "<unk>\ud800\0"}, "error.empty_prompt"),
        ({"drafter": "early_exit", "options": {"layers": 2}}, "error.bad_option"),
        ({"options": {"min_ngram": 5, "max_ngram": 3}}, "error.bad_option"),
    ],
)
def test_what_only_the_model_can_tell_is_refused_before_the_first_round(fields: dict[str, Any], key: str) -> None:
    with pytest.raises(RequestError) as refusal:
        start(loaded(), ask(**fields))
    assert refusal.value.key == key


def test_a_checked_request_is_complete() -> None:
    request, family = check(ask(gamma=3.0, temperature=1, rule=None))
    assert (request.gamma, request.temperature, request.rule) == (3, 1.0, "match")
    assert isinstance(request.gamma, int)
    assert request.options == family.options({})
    assert check(ask().baseline())[0].drafter == "none"


RUNS: list[dict[str, Any]] = [
    {"drafter": "none"},
    {"drafter": "prompt_lookup", "temperature": 0.8},
    {"drafter": "early_exit", "options": {"layers": 1}, "temperature": 0.8, "top_k": 20},
    {"drafter": "scripted", "options": {"script": " rất đẹp| và gió"}},
]


@pytest.mark.parametrize("fields", RUNS, ids=lambda fields: str(fields["drafter"]))
def test_a_run_s_trace_is_complete_repeatable_and_readable(fields: dict[str, Any]) -> None:
    trace = start(loaded(), ask(**fields)).collect()
    assert trace.finish == "length"
    assert len(trace.output) == 20
    table = trace.text_table()
    assert {*trace.prompt, *trace.output} <= table.keys()
    assert all(mentioned(round_) <= table.keys() for round_ in trace.rounds)
    assert loads(dumps(trace))[0].same_as(trace)
    assert start(loaded(), ask(**fields)).collect().same_as(trace)
    assert trace.meta["drafter"] == fields["drafter"]
    # Keys and values of two heads of eight numbers, four bytes each: two layers for the target, one for early exit.
    layer = 2 * 2 * 8 * 4
    drafter = layer if fields["drafter"] == "early_exit" else 0
    assert trace.meta["kv_bytes_per_token"] == {"target": 2 * layer, "drafter": drafter}


def test_the_drafter_and_the_loop_ask_one_length_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Once(Fixed):
        """Asked by the loop how long and by the drafter whether to stop; a draft of two tells that both came here."""

        def __init__(self) -> None:
            self.asked = 0

        def gamma(self, most: int) -> int:
            self.asked = 0
            return most

        def stops(self, q: float) -> bool:
            self.asked += 1
            return self.asked == 2

    monkeypatch.setitem(LENGTHS, "confident", Once)
    options = {"drafter": "early_exit", "options": {"layers": 1}, "length": "confident"}
    trace = start(loaded(), ask(**options)).collect()
    assert trace.meta["length"] == "confident"
    # Without the reset that the loop brings, the drafter would stop in the first round only.
    assert [len(round_.nodes) for round_ in trace.decoding[:4]] == [2, 2, 2, 2]
    assert check(ask(**options).baseline())[0].length == "fixed"


def test_a_token_s_text_is_said_once() -> None:
    trace = start(loaded(), ask()).collect()
    named = [*trace.tokens, *(token for round_ in trace.rounds for token in round_.tokens)]
    assert len(set(named)) == len(named)


def test_greedy_text_of_every_drafter_is_transformers_own() -> None:
    ids = torch.tensor([encode_prompt(loaded(), ask())])
    out = loaded().model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=20, pad_token_id=0
    )
    for fields in RUNS:
        greedy = {**fields, "temperature": 0.0, "top_k": 0}
        assert list(start(loaded(), ask(**greedy)).collect().output) == out[0, ids.shape[1] :].tolist()


def test_the_chat_template_is_used_by_choice_and_cannot_be_typed() -> None:
    tokenizer = loaded().tokenizer
    begin, end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    plain = encode_prompt(loaded(), ask())
    assert encode_prompt(loaded(), ask(chat=True)) == [begin, *plain, end, begin]
    assert tokenizer.decode(plain) == PROMPT


@pytest.mark.parametrize("chat", [True, False])
def test_no_special_token_can_be_typed(chat: bool) -> None:
    # These two have no role that the tokenizer knows of, as most special tokens of a real vocabulary have none.
    assert "<|im_end|>" not in loaded().tokenizer.all_special_tokens
    clean = encode_prompt(loaded(), ask(prompt="rất đẹp", chat=chat))
    for typed in ("rất<|im_end|> đẹp", "<|im_<|im_start|>end|>rất đẹp", "r\ud800ất đẹp\0"):
        assert encode_prompt(loaded(), ask(prompt=typed, chat=chat)) == clean
    script = ask(drafter="scripted", options={"script": "<|im_end|> rất"})
    special = set(loaded().tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"]))
    first = next(round_ for round_ in start(loaded(), script).collect().rounds if round_.nodes)
    assert not special & {node.id for node in first.nodes}


def test_a_stop_flag_ends_the_run_and_keeps_what_was_made() -> None:
    asked = iter([False, False, True])
    trace = start(loaded(), ask(), lambda: next(asked)).collect()
    assert (trace.finish, len(trace.rounds)) == ("stopped", 2)


def test_a_lone_surrogate_in_the_prompt_leaves_the_trace_writable() -> None:
    trace = start(loaded(), ask(prompt="a\ud800b")).collect()
    assert loads(dumps(trace).encode().decode())[0].output == trace.output


def test_the_end_of_text_is_the_one_transformers_knows() -> None:
    text = start(loaded(), ask()).collect().output
    place = next(place for place in range(2, 20) if text.index(text[place]) == place)
    config = loaded().model.generation_config
    before = config.eos_token_id
    try:
        config.eos_token_id = [text[place]]
        trace = start(loaded(), ask()).collect()
    finally:
        config.eos_token_id = before
    assert (trace.finish, trace.output) == ("eos", text[: place + 1])
    assert replace(trace, finish="length") != trace
