"""Every drafter with every lossless rule that fits it: the target's law, the greedy text, rounds without a draft."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from spec_viz.drafters.registry import Setup, families
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.length import Fixed
from spec_viz.engine.rules import RULES
from spec_viz.engine.target import CachedModel
from spec_viz.engine.trace import Round
from spec_viz.engine.warp import Warp
from spec_viz.lab import law_tiny
from spec_viz.lab.law_tiny import OPTIONS, every_pair, sample_tiny, tiny_target, variants

ROUNDS = 1500
READY = [family.name for family in families().values() if not family.needs_weights]
VARIANTS = [(name, options) for name in READY for options in OPTIONS.get(name, ({},))]
NEW = 40


@pytest.mark.parametrize(("drafter", "rule"), every_pair())
def test_what_a_drafter_and_a_rule_write_has_the_target_s_law(drafter: str, rule: str) -> None:
    for options in variants(families()[drafter], rule):
        test = sample_tiny(families()[drafter], rule, options, ROUNDS)
        assert test.p_value is not None
        # Some hundred tests run here: one of them may be one in ten thousand.
        assert test.p_value > 1e-5, test


def test_a_law_that_is_not_the_target_s_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    crooked = dict(law_tiny.target_law())
    first, second = sorted(crooked, key=crooked.__getitem__)[-2:]
    crooked[first], crooked[second] = crooked[first] + 0.6 * crooked[second], 0.4 * crooked[second]
    monkeypatch.setattr(law_tiny, "target_law", lambda: crooked)
    assert not sample_tiny(families()["prompt_lookup"], "match", {}, 4 * ROUNDS).passed


def greedy(name: str, options: dict[str, Any], rule: str, length: Any, gamma: int = 4) -> list[int]:
    """The ids a drafter writes behind a prompt that repeats itself, on the real cache at temperature 0."""
    family, prompt = families()[name], [1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2]
    warp, target = Warp(), CachedModel(tiny_target())
    setup = Setup(target, None, law_tiny._read, len(prompt), frozenset(), warp, rule, length)  # type: ignore[arg-type]
    drafter = family.build(setup, family.options(options))
    settings = Settings(gamma, NEW, warp, rule, length=length)
    parts = decode(target, drafter, prompt, settings, lambda: False)
    return [token for part in parts if isinstance(part, Round) for token in part.committed]


@pytest.fixture(scope="module")
def plain() -> list[int]:
    ids = torch.tensor([[1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2]])
    out = tiny_target().generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    return list(out[0, ids.shape[1] :].tolist())


@pytest.mark.parametrize(("drafter", "options"), VARIANTS, ids=lambda value: str(value))
def test_at_temperature_zero_every_drafter_writes_transformers_own_text(
    drafter: str, options: dict[str, Any], plain: list[int]
) -> None:
    for rule in families()[drafter].rules:
        if RULES[rule].lossless:
            assert greedy(drafter, options, rule, Fixed()) == plain, rule


class NowAndThen(Fixed):
    """Drafts in every third round, as a policy that has lost faith does."""

    def __init__(self) -> None:
        self._asked = 0

    def gamma(self, most: int) -> int:
        self._asked += 1
        return most if self._asked % 3 == 0 else 0


@pytest.mark.parametrize(("drafter", "options"), VARIANTS, ids=lambda value: str(value))
def test_rounds_without_a_draft_leave_every_drafter_whole(
    drafter: str, options: dict[str, Any], plain: list[int]
) -> None:
    for gamma in (1, 4):
        assert greedy(drafter, options, families()[drafter].rules[0], NowAndThen(), gamma) == plain
