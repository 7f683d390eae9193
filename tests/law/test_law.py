"""The losslessness tests themselves: they pass what is right, and fail what is planted."""

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from scipy import stats

from spec_viz.drafters.none import NoDrafter
from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.proposal import Drafter, Proposal
from spec_viz.engine.rules import RULES, Judge, Verdict, token
from spec_viz.lab import law
from spec_viz.lab.law import LawTest, TableDrafter, compare_counts, family_wise, sample_toy, toy_tables

FEW = 3_000
MANY = 20_000
LABEL = "toy"
HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)


# ---------------------------------------------------------------- exact


@pytest.mark.parametrize("test", law.enumerate_rules(), ids=lambda test: test.name)
def test_every_rule_keeps_the_law_exactly(test: LawTest) -> None:
    assert test.passed
    assert test.statistic < law.EXACT_TOLERANCE


def test_argmax_drafts_judged_with_a_soft_q_bend_the_law_as_worked_by_hand() -> None:
    planted = law.enumerate_planted()
    assert not planted.passed
    # algorithms §13.2: the first token then has the law (.4, .6, 0) instead of (.5, .3, .2).
    joint = law.emitted_law(law.WORKED, RULES["token"].judge, 1, law.soft_rows(law.WORKED), True, 30)
    first = [sum(mass for tokens, mass in joint.items() if tokens[0] == letter) for letter in range(3)]
    assert first == pytest.approx([0.4, 0.6, 0.0])


def test_the_enumerated_law_has_all_the_mass_and_the_target_s_marginals() -> None:
    joint = law.emitted_law(law.CHAIN, RULES["token"].judge, 2, law.soft_rows(law.CHAIN), False, 4)
    assert math.fsum(joint.values()) == pytest.approx(1.0)
    # By hand: start 0 has (1/2, 1/4, 1/4); 0 → 1 → 2 is 1/2·1/4·1/4 at the second and third place.
    assert joint[(0, 1, 2)] == pytest.approx(1 / 32)
    assert law.CHAIN.probability((0, 1, 2)) == HALF * QUARTER * QUARTER
    assert law.CHAIN.probability((2,), after=1) == QUARTER


def from_p(p: torch.Tensor, proposal: Proposal, draws: Draws) -> Verdict:
    """The rule `token` with a fault: after a rejection it draws from p, not from the residual."""
    verdict = token(p, proposal, draws)
    if verdict.u is None or verdict.kind == "bonus":
        return verdict
    return replace(verdict, token=pick(p[verdict.accepted], verdict.u))


def from_the_wrong_row(p: torch.Tensor, proposal: Proposal, draws: Draws) -> Verdict:
    """The rule `token` with a fault: each draft is judged by the law of the place before it."""
    return token(p[[0, *range(len(proposal))]], proposal, draws)


@pytest.mark.parametrize("fault", [from_p, from_the_wrong_row])
def test_a_faulty_rule_is_seen_by_enumeration(fault: Judge) -> None:
    emitted = law.emitted_law(law.CHAIN, fault, 2, law.soft_rows(law.CHAIN), False, 4)
    assert not law.compare_exact("planted", emitted, law.CHAIN.target_law(3)).passed


# ---------------------------------------------------------------- the real loop on a toy


def toy(drawn: bool) -> TableDrafter:
    return TableDrafter(toy_tables()[1], drawn)


@pytest.mark.parametrize("rounds", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("drafter", "rule"),
    [
        (NoDrafter(), "match"),
        (toy(drawn=False), "match"),
        (toy(drawn=False), "token"),
        (toy(drawn=True), "token"),
    ],
    ids=["none", "match, chosen", "token, chosen", "token, drawn"],
)
def test_what_the_loop_samples_has_the_target_s_law(drafter: Drafter, rule: str, rounds: int) -> None:
    test = sample_toy(LABEL, drafter, rule, rounds)
    assert test.passed
    assert test.rounds == rounds
    assert test.p_value is not None
    assert test.p_value > 0.001


def test_the_planted_lie_is_seen_in_what_the_loop_samples() -> None:
    test = law.sample_planted(FEW)
    assert not test.passed
    assert test.p_value == pytest.approx(0.0, abs=1e-12)


def test_a_faulty_rule_is_seen_in_what_the_loop_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "token", replace(RULES["token"], judge=from_p))
    assert not sample_toy(LABEL, toy(drawn=True), "token", FEW).passed


# ---------------------------------------------------------------- the statistics


LAW: dict[tuple[int, ...], float] = {(0, 0): 0.4, (0, 1): 0.3, (1, 0): 0.2, (1, 1): 0.1}


def counts_of(law_: dict[tuple[int, ...], float], draws: int, seed: int) -> Counter[tuple[int, ...]]:
    """Counts of draws that torch makes, not we."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.multinomial(torch.tensor([*law_.values()]), draws, replacement=True, generator=generator)
    return Counter({cell: int((drawn == index).sum()) for index, cell in enumerate(law_)})


def test_counts_of_the_law_pass_and_a_shift_of_two_percent_fails() -> None:
    shifted: dict[tuple[int, ...], float] = {**LAW, (0, 0): 0.42, (0, 1): 0.28}
    for seed in range(20):
        assert compare_counts("", 0, counts_of(LAW, 40_000, seed), LAW).passed
        assert not compare_counts("", 0, counts_of(shifted, 40_000, seed), LAW).passed


def test_the_statistic_is_scipy_s() -> None:
    seen: dict[tuple[int, ...], int] = {(0, 0): 420, (0, 1): 290, (1, 0): 195, (1, 1): 95}
    expected = stats.chisquare(list(seen.values()), [400, 300, 200, 100])
    test = compare_counts("", 1, seen, LAW)
    assert test.statistic == pytest.approx(expected.statistic)
    assert test.p_value == pytest.approx(expected.pvalue)


def test_rare_cells_are_judged_together() -> None:
    rare: dict[tuple[int, ...], float] = {(0,): 0.97, **{(cell,): 0.001 for cell in range(1, 31)}}
    seen: dict[tuple[int, ...], int] = {(0,): 970, **{(cell,): 1 for cell in range(1, 31)}}
    assert compare_counts("", 1, seen, rare).statistic == pytest.approx(0.0)
    pooled = stats.chisquare([940, 60], [970, 30])
    test = compare_counts("", 1, {(0,): 940, **{(cell,): 2 for cell in range(1, 31)}}, rare)
    assert test.p_value == pytest.approx(pooled.pvalue)


def test_what_the_law_makes_impossible_fails_at_once() -> None:
    for impossible in ({**LAW, (2, 2): 0.0}, LAW):
        test = compare_counts("", 1, {(0, 0): 4000, (2, 2): 1}, impossible)
        assert (test.statistic, test.p_value, test.passed) == (math.inf, 0.0, False)


def test_p_values_of_a_true_law_are_uniform() -> None:
    values = [compare_counts("", 0, counts_of(LAW, 400, seed), LAW).p_value or 0.0 for seed in range(200)]
    assert stats.kstest(values, "uniform").pvalue > 1e-3


def test_a_table_of_many_tests_is_judged_together() -> None:
    def sampled(p_value: float) -> LawTest:
        return LawTest("s", 1, 1.0, p_value, p_value >= law.FAMILY_WISE_ERROR)

    exact = [LawTest("good", 0, 0.0, None, True), LawTest("bad", 0, 1.0, None, False)]
    table = [*exact, sampled(0.0009), sampled(0.0002), *[sampled(0.5)] * 2]
    judged = family_wise(table, error=0.001)
    # Four tests share the error: each must be seen below 0.00025 to fail. An exact test has no error to share.
    assert [test.passed for test in judged] == [True, False, True, False, True, True]
    assert [replace(test, passed=True) for test in judged] == [replace(test, passed=True) for test in table]
    assert family_wise(exact) == exact
    assert not family_wise([sampled(0.0009)])[0].passed
