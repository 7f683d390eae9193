import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.lab import theory

ALPHAS = st.floats(0.0, 1.0)
GAMMAS = st.integers(0, 16)

# (α, c) → (γ*, S)
BEST = {
    (0.5, 0.01): (5, 1.88),
    (0.5, 0.05): (3, 1.63),
    (0.5, 0.10): (2, 1.46),
    (0.5, 0.20): (1, 1.25),
    (0.5, 0.30): (1, 1.15),
    (0.6, 0.01): (7, 2.30),
    (0.6, 0.05): (4, 1.92),
    (0.6, 0.10): (3, 1.67),
    (0.6, 0.20): (2, 1.40),
    (0.6, 0.30): (1, 1.23),
    (0.7, 0.01): (9, 2.97),
    (0.7, 0.05): (6, 2.35),
    (0.7, 0.10): (4, 1.98),
    (0.7, 0.20): (3, 1.58),
    (0.7, 0.30): (2, 1.37),
    (0.8, 0.01): (14, 4.23),
    (0.8, 0.05): (8, 3.09),
    (0.8, 0.10): (6, 2.47),
    (0.8, 0.20): (4, 1.87),
    (0.8, 0.30): (3, 1.55),
    (0.9, 0.01): (24, 7.49),
    (0.9, 0.05): (13, 4.67),
    (0.9, 0.10): (10, 3.43),
    (0.9, 0.20): (7, 2.37),
    (0.9, 0.30): (5, 1.87),
    (0.95, 0.05): (21, 6.60),
    (0.95, 0.10): (15, 4.48),
    (0.95, 0.20): (10, 2.87),
    (0.95, 0.30): (8, 2.18),
}


@pytest.mark.parametrize(("alpha", "c"), BEST)
def test_best_gamma_matches_the_published_table(alpha: float, c: float) -> None:
    gamma, gain = BEST[alpha, c]
    found, found_gain = theory.best_gamma(alpha, c)
    assert round(found_gain, 2) == gain
    # At the flat top two neighbours can share the second decimal, and the table names one of them.
    assert found == gamma or round(theory.speedup(alpha, gamma, c), 2) == gain


def test_best_gamma_at_the_edge_of_the_table() -> None:
    gamma, gain = theory.best_gamma(0.95, 0.01, max_gamma=30)
    assert gamma == 30
    assert gain == pytest.approx(12.25, abs=0.005)
    assert theory.best_gamma(0.3, 0.5) == (0, 1.0)


@pytest.mark.parametrize(
    ("alpha", "tokens"), [(0.5, 1.97), (0.6, 2.38), (0.7, 2.94), (0.8, 3.69), (0.9, 4.69), (0.95, 5.30)]
)
def test_expected_tokens_at_gamma_five(alpha: float, tokens: float) -> None:
    assert theory.expected_tokens(alpha, 5) == pytest.approx(tokens, abs=0.005)


def test_the_worked_example_of_alpha_eight_tenths() -> None:
    assert theory.expected_tokens(0.8, 4) == pytest.approx(3.3616)
    gains = [theory.speedup(0.8, 4, c) for c in (0.0, 0.05, 0.10, 0.20)]
    assert gains == pytest.approx([3.362, 2.801, 2.401, 1.868], abs=0.0006)
    assert theory.wrong_expected_tokens(0.8, 4) == pytest.approx(1.694, abs=0.0005)


def test_the_mean_of_a_mixture_is_missed_by_either_single_alpha() -> None:
    truth = (theory.expected_tokens(0.5, 4) + theory.expected_tokens(0.9, 4)) / 2
    assert truth == pytest.approx(3.016, abs=0.001)
    assert theory.expected_tokens(0.7, 4) == pytest.approx(2.773, abs=0.001)
    pooled = _pooled(0.5, 0.9)
    assert pooled == pytest.approx(0.759, abs=0.001)
    assert theory.expected_tokens(pooled, 4) == pytest.approx(3.10, abs=0.005)


def _judged(alpha: float) -> float:
    # Position i is judged when the i − 1 before it were accepted.
    return sum(alpha**i for i in range(4))


def _pooled(*alphas: float) -> float:
    return sum(alpha * _judged(alpha) for alpha in alphas) / sum(_judged(alpha) for alpha in alphas)


@given(ALPHAS, GAMMAS)
def test_the_law_of_accepted_lengths_sums_to_one_and_gives_the_mean(alpha: float, gamma: int) -> None:
    law = theory.accepted_length_law(alpha, gamma)
    assert len(law) == gamma + 1
    assert math.isclose(sum(law), 1.0, abs_tol=1e-9)
    mean = sum(k * mass for k, mass in enumerate(law))
    assert math.isclose(mean + 1, theory.expected_tokens(alpha, gamma), abs_tol=1e-9)


@given(ALPHAS, GAMMAS)
def test_equal_rates_at_every_position_are_the_iid_formula(alpha: float, gamma: int) -> None:
    assert math.isclose(
        theory.expected_tokens_by_position([alpha] * gamma), theory.expected_tokens(alpha, gamma), abs_tol=1e-9
    )


@given(ALPHAS, GAMMAS)
def test_a_round_emits_between_one_and_gamma_plus_one(alpha: float, gamma: int) -> None:
    assert 1.0 <= theory.expected_tokens(alpha, gamma) <= gamma + 1


@given(st.integers(1, 12), st.floats(0.0, 1.0), st.floats(1.0, 3.0), st.floats(0.0, 0.5))
def test_break_even_is_where_the_speedup_is_one(gamma: int, c: float, v: float, overhead: float) -> None:
    alpha = theory.break_even(gamma, c, v, overhead)
    if alpha is None:
        assert theory.speedup(1.0, gamma, c, v, overhead) < 1.0
    elif alpha == 0.0:
        assert theory.speedup(0.0, gamma, c, v, overhead) >= 1.0 - 1e-9
    else:
        assert theory.speedup(alpha, gamma, c, v, overhead) == pytest.approx(1.0)


def test_drafting_one_token_at_cost_c_breaks_even_at_alpha_equal_c() -> None:
    # 1 + α = 1 + c (Corollary 3.9).
    assert theory.break_even(1, 0.3) == pytest.approx(0.3)
    assert theory.break_even(1, 0.3, v=1.8) is None


def test_the_wrong_formula_falls_with_gamma_and_passes_the_ceiling() -> None:
    assert theory.wrong_expected_tokens(0.8, 8) < theory.wrong_expected_tokens(0.8, 4)
    assert theory.wrong_expected_tokens(0.8, 1) > 2


def test_operations_grow_when_drafts_are_refused() -> None:
    assert theory.operations_ratio(0.0, 4, 0.1) == pytest.approx(5.4)
    assert theory.operations_ratio(1.0, 4, 0.0) == pytest.approx(1.0)
    assert theory.operations_ratio(0.8, 4, 0.1) == pytest.approx((1 - 0.8) * 5.4 / (1 - 0.8**5))


def test_the_roofline_ridge_of_known_machines() -> None:
    assert theory.ridge_tokens(989e12, 4.8e12, 2) == pytest.approx(206, abs=0.5)
    assert theory.ridge_tokens(100e9, 20e9, 4) == pytest.approx(10)
