"""An engine room around a tiny random model, and a gate that lets a test hold that model in the middle of a run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from spec_viz.engine.cache import GrowingLayer
from spec_viz.models import load, weights
from spec_viz.models.catalogue import DEFAULT
from spec_viz.models.load import Loaded
from spec_viz.models.weights import find
from spec_viz.ui.limits import Limits
from spec_viz.ui.room import Room
from spec_viz.ui.visitor import Visitor
from tests.engine.vocabularies import byte_level

POSITIONS = 600
PROMPT = "Thời tiết hôm nay rất đẹp, thời tiết hôm nay"


@cache
def loaded() -> Loaded:
    """A random Llama of two layers that reads bytes; it never ends a text by itself."""
    tokenizer = byte_level()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=POSITIONS,
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


class Gate:
    """Stands before every pass of the tiny model: counts it, waits where it is shut, raises what it is told to."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.passes = 0
        self.pause = 0.0
        self.fault: Callable[[], Exception] | None = None
        self._handle: Any = None

    def __enter__(self) -> Gate:
        self._handle = loaded().model.register_forward_pre_hook(self._pass)
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
        self._handle.remove()

    def _pass(self, *_: object) -> None:
        self.passes += 1
        assert self.open.wait(20), "the test never opened the gate"
        threading.Event().wait(self.pause)
        if (make := self.fault) is not None:
            self.fault = None
            # Nothing here may hold the exception: its frames hold the caches.
            raise make()


def ready_room(patch: pytest.MonkeyPatch, limits: Limits | None = None) -> Room:
    """A room that has loaded the tiny model in its own way."""
    with patch.context() as during:
        during.setattr(weights, "fetch", lambda *_: None)
        during.setattr(load, "load", lambda _: loaded())
        room = Room(limits)
        room.warm().join()
    assert room.state()["ready"], room.state()
    return room


@contextmanager
def room_on_one_thread(limits: Limits | None = None) -> Iterator[Room]:
    """A ready room: a tiny model is many times faster on one thread where a browser wants the other cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        yield ready_room(patch, limits)
    torch.set_num_threads(before)


def by(name: str) -> Visitor:
    """A visitor of this name, with an address and a browser of its own."""
    return Visitor(name, name, name)


def ask(**fields: Any) -> dict[str, Any]:
    """What a page sends, with a prompt that a lookup finds something in."""
    return {"nonce": "n", "prompt": PROMPT, "drafter": "prompt_lookup", "chat": False, "max_new_tokens": 12, **fields}


def lines(ndjson: str) -> list[dict[str, Any]]:
    """The lines of an answer, each of which must be sendable JSON."""
    ndjson.encode("utf-8")
    assert ndjson.endswith("\n")
    return [json.loads(line, parse_constant=_no_number) for line in ndjson.split("\n")[:-1]]


def _no_number(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


def last(answer: Iterator[str]) -> list[dict[str, Any]]:
    """The lines of the whole answer; it must only ever have grown."""
    text = ""
    for grown in answer:
        assert grown.startswith(text)
        text = grown
    return lines(text)


def notice(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The one notice of an answer."""
    notices: list[dict[str, Any]] = [line["notice"] for line in found if "notice" in line]
    assert len(notices) == 1, found
    return notices[0]


def finishes(found: list[dict[str, Any]]) -> list[str]:
    """Why the runs of an answer ended."""
    return [line["finish"] for line in found if "finish" in line]


def text_of(found: list[dict[str, Any]]) -> list[int]:
    """The ids the first run of an answer has written."""
    out: list[int] = []
    for line in found:
        if "round" in line:
            out += [node["id"] for node in line["nodes"] if node["status"] == "accepted"]
            out += [line["emitted"]["id"]] if line["emitted"] else []
        if "finish" in line:
            break
    return out


def filled_caches() -> int:
    """How many cache layers that hold entries are still alive."""
    import gc

    return sum(type(thing) is GrowingLayer and thing.length > 0 for thing in gc.get_objects())
