"""Heads as files: what is written is read again, whole or not at all, and only beside its own target."""

from __future__ import annotations

import gc
import weakref
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from spec_viz.content.files import ASSETS
from spec_viz.drafters.head import Head
from spec_viz.drafters.readout import placed
from spec_viz.drafters.registry import families
from spec_viz.lab.law_heads import open_head
from spec_viz.lab.law_second import tiny_llama
from spec_viz.lab.run import Request, RequestError, start
from spec_viz.models import heads
from spec_viz.models.catalogue import DEFAULT, TRAINED
from spec_viz.models.heads import check_head, read_head, write_head
from spec_viz.models.load import Loaded
from spec_viz.models.weights import WeightsError, find
from spec_viz.ui.wording import words
from tests.engine.vocabularies import byte_level

CONFIG: dict[str, Any] = {"method": "eagle3", "target": "tiny", "layers": [1, 2, 3], "llama": {"hidden_size": 16}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(heads, "HEADS", tmp_path / "heads")
    return tmp_path / "heads"


def tensors() -> dict[str, Tensor]:
    return dict(open_head("eagle3").tensors)


def test_what_is_written_is_read_in_float32(folder: Path) -> None:
    write_head(folder / "eagle3", CONFIG, tensors())
    head = read_head("eagle3", "tiny")
    assert (head.name, dict(head.config)) == ("eagle3", CONFIG)
    assert head.tensors.keys() == tensors().keys()
    for name, tensor in tensors().items():
        read = head.tensors[name]
        if tensor.is_floating_point():
            assert read.dtype == torch.float32
            assert torch.equal(read, tensor.bfloat16().float())
        else:
            assert torch.equal(read, tensor)
            assert read.dtype == tensor.dtype
    assert torch.equal(head.draft_ids, open_head("eagle3").draft_ids)
    assert read_head("eagle3", "tiny") is head


@pytest.mark.parametrize("int8", [True, frozenset({"fc.weight"})], ids=str)
def test_matrices_may_be_stored_in_int8(folder: Path, int8: bool | frozenset[str]) -> None:
    given = tensors() | {"fc.weight": torch.cat([tensors()["fc.weight"][1:], torch.zeros(1, 48)])}
    write_head(folder / "eagle3", CONFIG, given, int8)
    stored = load_file(folder / "eagle3" / "head.safetensors")
    small = {name for name, tensor in stored.items() if tensor.dtype == torch.int8}
    matrices = {name for name, tensor in given.items() if tensor.dim() == 2}
    assert small == (matrices if int8 is True else {"fc.weight"})
    read = read_head("eagle3", "tiny").tensors
    assert read.keys() == given.keys()
    for name in small:
        scale = stored[f"{name}.scale"]
        assert (scale.dtype, scale.shape) == (torch.float32, given[name].shape[:1])
        # Half a step, and what float32 rounds away.
        assert ((read[name] - given[name]).abs() <= 0.5001 * scale[:, None]).all()
    assert torch.equal(read["fc.weight"][-1], torch.zeros(48))


def test_a_head_written_again_is_read_again(folder: Path) -> None:
    write_head(folder / "eagle3", CONFIG, tensors())
    (folder / "eagle3" / "provenance.json").write_text("{}", encoding="utf-8")
    first = read_head("eagle3", "tiny")
    write_head(folder / "eagle3", CONFIG, {name: tensor * 2 for name, tensor in tensors().items() if "norm" in name})
    second = read_head("eagle3", "tiny")
    assert torch.equal(second.tensors["norm.weight"], 2 * first.tensors["norm.weight"])
    # What was known of the old weights is not known of the new ones.
    assert sorted(file.name for file in (folder / "eagle3").iterdir()) == ["config.json", "head.safetensors"]
    assert [place.name for place in folder.iterdir()] == ["eagle3"]


def test_a_head_too_large_leaves_the_old_one_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_head(folder / "eagle3", CONFIG, tensors())
    before = (folder / "eagle3" / "head.safetensors").read_bytes()
    monkeypatch.setattr(heads, "LARGEST", 1000)
    with pytest.raises(ValueError, match="1,000 are too many"):
        write_head(folder / "eagle3", CONFIG, {"x.weight": torch.ones(40, 40)})
    assert (folder / "eagle3" / "head.safetensors").read_bytes() == before
    assert [place.name for place in folder.iterdir()] == ["eagle3"]


def test_a_missing_head_and_one_of_another_target_are_refused_in_a_sentence(folder: Path) -> None:
    assert heads.heads() == []
    (folder / "medusa").mkdir(parents=True)
    (folder / "medusa" / "config.json").write_text("{}", encoding="utf-8")
    write_head(folder / "eagle3", CONFIG, tensors())
    assert heads.heads() == ["eagle3"]
    for name, target, key in (
        ("medusa", "tiny", "error.head_missing"),
        ("bigram", "tiny", "error.head_missing"),
        ("eagle3", "smollm2-1.7b", "error.head_other_target"),
    ):
        with pytest.raises(WeightsError) as refusal:
            read_head(name, target)
        assert refusal.value.key == key
        sentence = words("en")(key, **refusal.value.fields)
        assert name in sentence
        assert "{" not in sentence


def test_every_drafter_with_a_head_says_which_one_it_lacks(folder: Path) -> None:
    lacking = [family for family in families().values() if family.head]
    assert {family.name for family in lacking} == {*TRAINED}
    for family in lacking:
        assert family.needs_weights
        assert family.head
        with pytest.raises(WeightsError, match=r"error\.head_missing") as refusal:
            check_head(family.head, "tiny")
        assert refusal.value.fields["folder"] == f"assets/heads/{family.head}"
        write_head(folder / family.head, {"target": "tiny"}, {"x": torch.ones(1)})
        check_head(family.head, "tiny")
        with pytest.raises(WeightsError, match="head_other_target"):
            check_head(family.head, "smollm2-135m")


@cache
def loaded() -> Loaded:
    """A tiny random model in the place of the default target."""
    tokenizer = byte_level()
    model = tiny_llama(len(tokenizer), layers=2, seed=1)
    return Loaded(model, tokenizer, find(DEFAULT), torch.device("cpu"), "test", torch.float32, 1234, False)


def test_a_run_opens_the_head_of_its_own_target(folder: Path) -> None:
    request = Request("rất đẹp", chat=False, drafter="bigram", temperature=0.0, max_new_tokens=12)
    with pytest.raises(RequestError) as refusal:
        start(loaded(), request)
    assert (refusal.value.key, refusal.value.fields["name"]) == ("error.head_missing", "bigram")

    plain = start(loaded(), request.baseline()).collect()
    width = len(loaded().tokenizer)
    table = {"next": torch.arange(width, dtype=torch.int32)[:, None], "chance": torch.ones(width, 1)}
    table["next"][list(plain.output[:-1])] = torch.tensor(plain.output[1:], dtype=torch.int32)[:, None]
    write_head(folder / "bigram", {"target": "smollm2-1.7b"}, table)
    with pytest.raises(RequestError) as refusal:
        start(loaded(), request)
    assert (refusal.value.key, refusal.value.fields["trained"]) == ("error.head_other_target", "smollm2-1.7b")

    write_head(folder / "bigram", {"target": DEFAULT}, table)
    trace = start(loaded(), request).collect()
    assert trace.output == plain.output
    assert sum(len(round_.path) for round_ in trace.decoding) > 0
    assert trace.meta["weight_bytes"] == {"target": 1234, "drafter": 8 * width}
    assert trace.meta["kv_bytes_per_token"]["drafter"] == 0


# ---------------------------------------------------------------- what is kept of heads


def test_a_head_that_is_no_longer_kept_takes_what_was_made_of_it_along() -> None:
    model, head = tiny_llama(8, 1, 0), Head("h", {}, tensors())
    made = placed(head, model, lambda head, _: torch.nn.Linear(1, len(head.tensors)))
    # Not made twice.
    assert placed(head, model, lambda *_: torch.nn.Linear(1, 1)) is made
    kept = weakref.ref(made)
    del head, made
    gc.collect()
    assert kept() is None


def test_heads_read_by_turns_for_long_leave_none_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are kept: the oldest go, with what was made of them."""
    monkeypatch.setattr(heads, "_read", lru_cache(maxsize=3)(heads._read.__wrapped__))
    names = [f"eagle3_{number}" for number in range(5)]
    for name in names:
        write_head(folder / name, CONFIG, tensors())
    model, alive = tiny_llama(8, 1, 0), []
    for name in names * 4:
        made = placed(read_head(name, "tiny"), model, lambda head, _: torch.nn.Linear(1, len(head.tensors)))
        alive.append(weakref.ref(made))
    del made
    gc.collect()
    assert sum(each() is not None for each in alive) == 3


def test_every_head_of_ours_is_kept_once_it_is_read() -> None:
    ours = list(ASSETS.glob(f"heads/*/{heads.CONFIG}"))
    assert heads._read.cache_parameters()["maxsize"] >= len(ours) > 0
