"""The warped law against transformers' own processors, in their own order."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from spec_viz.engine import warp as warp_module
from spec_viz.engine.warp import Warp

WARPS = [
    Warp(1.0),
    Warp(0.3),
    Warp(1.7),
    Warp(1.0, top_k=1),
    Warp(0.8, top_k=7),
    Warp(0.8, top_k=10_000),
    Warp(1.0, top_p=0.9),
    Warp(1.3, top_p=0.05),
    Warp(0.9, top_k=12, top_p=0.8),
    Warp(0.9, top_k=30, top_p=0.95, repetition_penalty=1.3),
    Warp(1.1, repetition_penalty=0.7),
]


def processors(warp: Warp) -> LogitsProcessorList:
    """What transformers' generate builds for these settings."""
    chain = LogitsProcessorList()
    if warp.repetition_penalty != 1.0:
        chain.append(RepetitionPenaltyLogitsProcessor(warp.repetition_penalty))
    chain.append(TemperatureLogitsWarper(warp.temperature))
    if warp.top_k:
        chain.append(TopKLogitsWarper(warp.top_k))
    if warp.top_p < 1.0:
        chain.append(TopPLogitsWarper(warp.top_p))
    return chain


def theirs(warp: Warp, logits: Tensor, prefix: Sequence[int], drafts: Sequence[int]) -> Tensor:
    """Row by row, each with its own prefix."""
    rows = []
    for row in range(len(logits)):
        seen: Any = torch.tensor([[*prefix, *drafts[:row]]])
        scores: Any = logits[row : row + 1].clone()
        rows.append(processors(warp)(seen, scores).softmax(-1))
    return torch.cat(rows)


def random_logits(rows: int, size: int, seed: int, scale: float = 3.0) -> Tensor:
    return scale * torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("warp", WARPS, ids=repr)
@pytest.mark.parametrize("size", [5, 97, 5000])
def test_the_law_is_transformers_law(warp: Warp, size: int) -> None:
    for seed in range(5):
        logits = random_logits(4, size, seed)
        prefix, drafts = [1, 3, 3, 0], [2, 3, 4]
        ours = warp.law(logits, prefix, drafts)
        expected = theirs(warp, logits, prefix, drafts)
        assert torch.equal(ours > 0, expected > 0)
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("warp", [Warp(1.0, top_p=0.9), Warp(1.0, top_k=5000, top_p=0.95), Warp(3.0, top_p=0.99)])
def test_a_nucleus_wider_than_the_first_guess_is_transformers_nucleus(warp: Warp) -> None:
    logits = random_logits(3, 6000, 1, scale=0.2)
    # One sharp row among flat ones: each must get its own nucleus.
    logits[1, 17] += 20
    ours = warp.law(logits, [1])
    assert int((ours[0] > 0).sum()) > warp_module.NUCLEUS_GUESS
    assert int((ours[1] > 0).sum()) < 10 or warp.temperature > 1
    torch.testing.assert_close(ours, theirs(warp, logits, [1], []), rtol=2e-4, atol=1e-8)


def test_ties_at_the_edge_of_top_k_are_all_kept_as_transformers_keeps_them() -> None:
    logits = torch.tensor([[2.0, 1.0, 3.0, 1.0, 1.0, 0.0]])
    warp = Warp(1.0, top_k=3)
    assert (warp.law(logits, [0]) > 0).tolist() == [[True, True, True, True, True, False]]
    torch.testing.assert_close(warp.law(logits, [0]), theirs(warp, logits, [0], []))


def test_ties_at_the_edge_of_a_nucleus_keep_as_many_as_transformers_keeps() -> None:
    # Which of equal tokens stays is the sort's choice; how many stay, and with what mass, is not.
    for top_p in (0.25, 0.4, 0.6, 0.85):
        warp = Warp(1.0, top_p=top_p)
        logits = torch.tensor([[1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 0.0, 0.0]])
        ours, expected = warp.law(logits, [0]), theirs(warp, logits, [0], [])
        torch.testing.assert_close(ours.sort().values, expected.sort().values)


def test_one_token_survives_every_cut() -> None:
    law = Warp(1.0, top_k=1, top_p=0.01).law(torch.tensor([[0.0, 1.0, 0.5]]), [0])
    assert law.tolist() == [[0.0, 1.0, 0.0]]


def test_temperature_zero_puts_everything_on_the_penalised_argmax() -> None:
    logits = torch.tensor([[2.0, 1.9, -1.0], [2.0, 1.9, -1.0]])
    assert Warp().law(logits, [0]).tolist() == [[1, 0, 0]] * 2
    # The first row has seen token 0 alone, the second also the draft 1: 2/1.5 < 1.9, but 2/1.5 > 1.9/1.5.
    assert Warp(repetition_penalty=1.5).law(logits, [0], [1]).tolist() == [[0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("temperature", [5e-324, 1.084e-177, 1e-45, 1e-40, 1.2e-38, 1e-36, 1e-31, 1e-30, 1e-29, 1e-10])
@pytest.mark.parametrize("more", [{}, {"top_k": 2}, {"top_p": 0.5}, {"repetition_penalty": 1.3}])
def test_a_temperature_however_small_has_a_law(temperature: float, more: dict[str, Any]) -> None:
    logits = torch.tensor([[3.0, -900.0, 2.999, 0.0], [-5.0, -4.0, -4.5, -1e4], [0.0, 0.0, -1.0, -2.0]])
    law = Warp(temperature, **more).law(logits, [1], [1, 3])
    assert torch.isfinite(law).all()
    assert law.sum(-1).tolist() == pytest.approx([1, 1, 1])
    assert law[0].tolist() == [1, 0, 0, 0]
    # Two that are equal share, but where a nucleus of half the mass keeps one.
    assert sorted(law[2].tolist(), reverse=True) in ([0.5, 0.5, 0, 0], [1, 0, 0, 0])


def test_a_token_seen_twice_is_penalised_once_and_a_negative_logit_is_multiplied() -> None:
    logits = torch.tensor([[4.0, -1.0, 0.5]])
    warp = Warp(1.0, repetition_penalty=2.0)
    torch.testing.assert_close(warp.law(logits, [0, 0, 1]), torch.tensor([[2.0, -2.0, 0.5]]).softmax(-1))


def test_a_law_leaves_the_logits_alone() -> None:
    logits = random_logits(2, 50, 3)
    before = logits.clone()
    Warp(0.7, 5, 0.9, 1.4).law(logits, [1, 2], [3])
    assert torch.equal(logits, before)


@pytest.mark.parametrize(
    "bad",
    [{"temperature": -0.1}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}, {"repetition_penalty": 0.0}],
    ids=str,
)
def test_settings_without_a_law_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="are needed"):
        Warp(**bad)  # type: ignore[arg-type]


def test_nan_is_no_setting() -> None:
    for name in ("temperature", "top_p", "repetition_penalty"):
        with pytest.raises(ValueError, match="are needed"):
            Warp(**{name: float("nan")})  # type: ignore[arg-type]
