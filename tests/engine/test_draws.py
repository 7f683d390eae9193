"""Draws by key: pure, uniform, and never the same one twice in a round."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from spec_viz.engine.draws import Draws, pick, race, uniform

PURPOSES = ("draft", "accept", "residual", "bonus")
SEEDS = st.integers(0, 2**53 - 1)
SMALL = st.integers(0, 500)


@given(SEEDS, SMALL, SMALL, SMALL)
def test_a_draw_depends_on_its_key_alone(seed: int, number: int, length: int, offset: int) -> None:
    one, other = Draws(seed, number, length), Draws(seed, number, length)
    uniform(seed, "somebody else's")
    assert one.by_round("accept", offset) == other.by_round("accept", offset)
    assert 0.0 <= one.by_round("accept", offset) < 1.0
    # By position: the same place in the text, met in another round as another draft.
    law = torch.ones(1000)
    assert one.own(law, offset) == Draws(seed, number + 7, length + offset).own(law, 0)
    # By round: the same place in the text is another draw in another round.
    assert one.by_round("accept", offset) != Draws(seed, number + 7, length + offset).by_round("accept", 0)


def test_no_two_draws_of_a_run_are_the_same() -> None:
    seen: list[float] = []
    for number in range(20):
        draws = Draws(0, number, 2 * number)
        seen += [draws.by_round(purpose, offset) for purpose in PURPOSES for offset in range(13)]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("purpose", PURPOSES)
@pytest.mark.parametrize("along", ["seed", "round", "place"])
def test_draws_are_uniform_and_unrelated(purpose: str, along: str) -> None:
    def draw(step: int) -> float:
        seed, number, place = (step if name == along else 3 for name in ("seed", "round", "place"))
        return Draws(seed, number, place).by_round(purpose, 0)

    values = [draw(step) for step in range(4000)]
    assert stats.kstest(values, "uniform").pvalue > 1e-4
    earlier, later = zip(*pairwise(values), strict=True)
    assert stats.pearsonr(earlier, later).pvalue > 1e-4


def test_purposes_of_one_place_are_unrelated() -> None:
    rows = [[Draws(seed, 1, 9).by_round(purpose, 0) for purpose in PURPOSES] for seed in range(4000)]
    for first, second in pairwise(zip(*rows, strict=True)):
        assert stats.pearsonr(first, second).pvalue > 1e-4


@given(
    st.lists(st.sampled_from([0.0, 0.0, 1e-30, 0.1, 0.25, 1.0, 7.0]), min_size=1, max_size=8).filter(any),
    st.floats(0, 1, exclude_max=True),
)
def test_pick_never_takes_what_has_no_mass(weights: list[float], u: float) -> None:
    for dtype in (torch.float32, torch.float64):
        token = pick(torch.tensor(weights, dtype=dtype), u)
        assert weights[token] > 0


def test_pick_is_the_quantile_of_the_law() -> None:
    law = torch.tensor([0.25, 0.0, 0.5, 0.25])
    quantiles = {0.0: 0, 0.24: 0, 0.25: 2, 0.74: 2, 0.75: 3, 1 - 2**-53: 3}
    assert {u: pick(law, u) for u in quantiles} == quantiles
    assert [pick(8 * law, u) for u in quantiles] == list(quantiles.values())


def test_pick_at_the_very_end_of_a_law_with_a_massless_tail() -> None:
    assert pick(torch.tensor([0.1, 0.2, 0.0, 0.0]), 1 - 2**-53) == 1


@pytest.mark.parametrize("along", ["seed", "place"])
def test_the_target_s_own_tokens_follow_the_law_and_are_unrelated(along: str) -> None:
    law = torch.tensor([0.02, 0.0, 0.5, 0.3, 0.18])
    tokens = [
        Draws(step, 3, 5).own(law, 0) if along == "seed" else Draws(3, 3, step).own(law, 0) for step in range(6000)
    ]
    seen = np.bincount(tokens, minlength=5)
    assert seen[1] == 0
    kept = law.numpy() > 0
    assert stats.chisquare(seen[kept], 6000 * law.double().numpy()[kept] / law.double().sum().item()).pvalue > 1e-4
    table = np.zeros((5, 5))
    for pair in pairwise(tokens):
        table[pair] += 1
    assert stats.chi2_contingency(table[kept][:, kept]).pvalue > 1e-4


def test_the_winner_hangs_on_the_law_s_ratios_alone() -> None:
    law = torch.rand(300, generator=torch.Generator().manual_seed(0))
    assert {race(law, 5), race(8 * law, 5), race(law.double() / 7, 5)} == {race(law, 5)}
    # A token that cannot come does not shift the others: truncating a law keeps every winner that survives it.
    cut = law.clone()
    cut[:100] = 0
    winners = [(race(law, seed), race(cut, seed)) for seed in range(300)]
    assert all(short == full for full, short in winners if full >= 100)
    assert race(torch.tensor([0.0, 0.0, 1e-30]), 1) == 2


def test_rounding_of_a_flat_law_almost_never_changes_the_own_token() -> None:
    # A vocabulary of rare tokens with the rounding that a pass with other rows beside it has (measured: 1e-6).
    law = torch.rand(50_000, generator=torch.Generator().manual_seed(1)).double()
    law[0] = 4 * law.sum()
    noise = 1 + 2e-6 * torch.rand(50_000, generator=torch.Generator().manual_seed(2)).double()
    same = sum(race(law, seed) == race(law * noise, seed) for seed in range(400))
    assert same >= 399
