"""What only a CUDA device can show: graphs compute what passes compute, nothing waits unseen, memory comes back."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from spec_viz.drafters.registry import families
from spec_viz.engine.cache import new_cache
from spec_viz.engine.device import bring
from spec_viz.engine.draws import pick, pick_there
from spec_viz.engine.graphs import release, room_for
from spec_viz.engine.proposal import ROOT, Proposal, chain
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp
from spec_viz.lab.cost import measure
from spec_viz.lab.run import Request, encode_prompt, start
from spec_viz.models.catalogue import DEFAULT
from spec_viz.models.load import load
from spec_viz.models.weights import is_cached
from tests.engine.heads import texts
from tests.engine.test_captured_runs import AHEAD, NEW, WARM, run, told
from tests.engine.tiny import LAYERS, direct, generate, model, prompts

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
TOKENS = prompts(1, 40)[0]
needs_target = pytest.mark.skipif(not is_cached(DEFAULT), reason=f"{DEFAULT} is not in the cache")


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    release()
    yield
    release()


@cache
def there(layers: int = LAYERS) -> Any:
    """The tiny model on the device."""
    return copy.deepcopy(model(layers)).to(DEVICE)


def uncaptured() -> CachedModel:
    # Another maker of caches than the engine's own: nothing is captured over it.
    return CachedModel(there(), lambda: new_cache())


# ---------------------------------------------------------------- what is computed


@pytest.mark.parametrize("name", families())
def test_greedy_text_of_every_drafter_is_transformers_own(name: str) -> None:
    for prompt in prompts(2):
        assert run(name, prompt, None, made=there).output == generate(prompt, NEW)


@pytest.mark.parametrize("name", families())
def test_every_row_of_the_law_is_the_processor_s(name: str) -> None:
    prompt = list(texts()[0][:20])
    for warp in (Warp(), WARM, replace(WARM, repetition_penalty=1.2), replace(WARM, top_k=5)):
        assert told(run(name, prompt, None, warp, made=there)) == told(run(name, prompt, None, warp))


@pytest.mark.parametrize("parents", [chain(1), chain(4), (ROOT, ROOT, 0), (ROOT, 0, 0, 1, 1, 2)], ids=str)
def test_a_captured_pass_is_the_uncaptured_one(parents: tuple[int, ...]) -> None:
    ours, plain = CachedModel(there()), uncaptured()
    assert plain.capture is None
    for each in (ours, plain):
        each.prefill(TOKENS[:10])
    for turn in range(5):
        tokens = tuple((7 * node + turn) % 40 for node in range(len(parents)))
        proposal = Proposal(tokens, parents=parents)
        got, expected = (each.verify(TOKENS[10 + turn], proposal)[0] for each in (ours, plain))
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
        for node in range(len(parents)):
            text = [*TOKENS[: 11 + turn], *(tokens[step] for step in proposal.path(node))]
            torch.testing.assert_close(got[node + 1].cpu(), direct(text)[-1], atol=1e-5, rtol=1e-5)
        for each in (ours, plain):
            each.roll_back(11 + turn)
    assert ours._graphs is not None
    assert len(ours._graphs._graphs) == 1


def test_a_text_that_grows_out_of_its_room_keeps_its_entries() -> None:
    ours, plain = CachedModel(there()), uncaptured()
    text = [(3 * place) % 40 for place in range(600)]
    for each in (ours, plain):
        each.prefill(text[:250])
    for at in range(250, 597, 3):
        got, expected = (each.feed(text[at : at + 3], 3) for each in (ours, plain))
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_a_token_picked_on_the_device_is_the_one_picked_on_the_processor() -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(50):
        law = torch.rand(1000, generator=generator) * (torch.rand(1000, generator=generator) > 0.5)
        law /= law.sum()
        u = float(torch.rand((), generator=generator))
        assert pick_there(law.to(DEVICE), u).tolist() == [pick(law, u)]


# ---------------------------------------------------------------- what is waited for


@pytest.mark.parametrize("name", ["none", "prompt_lookup", *(name for name in AHEAD if name != "window")])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_round_waits_where_it_says_and_nowhere_else(
    name: str, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt, warp = prompts(1)[0], Warp(temperature=temperature)
    # A shape is captured when it comes again, and a capture waits.
    for _ in range(2):
        run(name, prompt, None, warp, made=there)
    waits = []

    def counted(*tensors: Any) -> Any:
        waits.append(1)
        torch.cuda.set_sync_debug_mode("default")
        found = bring(*tensors)
        torch.cuda.set_sync_debug_mode("error")
        return found

    monkeypatch.setattr("spec_viz.engine.decode.bring", counted)
    # PyTorch raises wherever it would wait by itself.
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = run(name, prompt, None, warp, made=there)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(waits) == len(result.rounds)


def test_the_parts_of_a_round_add_up() -> None:
    result = run("draft_model", prompts(1)[0], None, made=there)
    for round_ in result.rounds:
        parts = (round_.ms.propose, round_.ms.verify, round_.ms.judge, round_.ms.rollback)
        assert all(part is not None and part >= 0 for part in parts)


# ---------------------------------------------------------------- what is held


def test_a_closed_run_leaves_one_cache_and_a_released_one_nothing() -> None:
    there()
    release()
    before = torch.cuda.memory_allocated()
    for prompt in prompts(3):
        run("none", prompt, None, made=there)
    per_token = 2 * LAYERS * 2 * 8 * 8
    held = torch.cuda.memory_allocated() - before
    assert held >= room_for(1) * per_token
    run("none", prompts(1)[0], None, made=there)
    assert torch.cuda.memory_allocated() - before <= 2 * held
    release()
    assert torch.cuda.memory_allocated() - before < room_for(1) * per_token


def test_a_full_device_ends_one_run_and_is_empty_again() -> None:
    there()
    release()
    before = torch.cuda.memory_allocated()
    total = torch.cuda.get_device_properties(DEVICE).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**26) / total)
    try:
        with pytest.raises(torch.OutOfMemoryError) as caught:
            CachedModel(there()).prefill([1] * 200_000)
        release(caught.value)
        del caught
        assert torch.cuda.memory_allocated() <= before + 2**20
        assert run("none", prompts(1)[0], None, made=there).output == generate(prompts(1)[0], NEW)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


# ---------------------------------------------------------------- the default target


@needs_target
def test_the_default_target_writes_what_transformers_writes_there() -> None:
    loaded = load(DEFAULT, DEVICE)
    assert loaded.dtype == torch.float32
    for drafter in ("none", "prompt_lookup", "early_exit"):
        request = Request("List three colours, then repeat the list.", drafter=drafter, max_new_tokens=48)
        ids = torch.tensor([encode_prompt(loaded, request)], device=DEVICE)
        theirs = loaded.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=48, do_sample=False, disable_compile=True
        )
        ours = start(loaded, request).collect().output
        assert list(ours) == theirs[0, ids.shape[1] :].tolist()[: len(ours)]


@needs_target
def test_a_roofline_is_measured_there() -> None:
    found = measure(load(DEFAULT, DEVICE), max_n=16, context=64, repeats=3, drafters={})["roofline"]
    assert found is not None
    assert all(value > 0 for value in found.values())
