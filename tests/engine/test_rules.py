"""The accept rules: worked fractions, and what must hold of every verdict."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Drawn, Proposal
from spec_viz.engine.rules import FITS, RULES, Verdict, check_fit, match, residual, token
from spec_viz.lab.law import ListedDraws

P = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
Q = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)


def soft(*drafts: int) -> Proposal:
    return Proposal(drafts, "sampled", Q.expand(len(drafts), 3))


def rows(count: int) -> Tensor:
    return P.expand(count, 3)


# ---------------------------------------------------------------- worked by hand (algorithms §13.1)


def test_token_keeps_a_draft_with_p_over_q() -> None:
    kept = token(rows(2), soft(1), ListedDraws([0.599, 0.49]))
    assert (kept.accepted, kept.token, kept.kind, kept.u) == (1, 0, "bonus", 0.49)
    judged = kept.judged[0]
    assert (judged.status, judged.p, judged.q, judged.u) == ("accepted", 0.3, 0.5, 0.599)
    assert judged.accept == pytest.approx(0.3 / 0.5)
    assert judged.beta == pytest.approx(0.2 + 0.3 + 0.2)
    assert judged.residual is None


def test_token_refuses_above_p_over_q_and_draws_the_residual() -> None:
    verdict = token(rows(3), soft(1, 0), ListedDraws([0.601, 0.999]))
    assert (verdict.accepted, verdict.token, verdict.kind, verdict.u) == (0, 0, "correction", 0.999)
    refused, unjudged = verdict.judged
    assert refused.status == "rejected"
    assert refused.residual is not None
    assert refused.residual.tolist() == pytest.approx([1, 0, 0])
    assert (unjudged.status, unjudged.p, unjudged.q) == ("discarded", 0.5, 0.2)


def test_token_always_keeps_a_draft_that_p_likes_better_than_q() -> None:
    verdict = token(rows(2), soft(0), ListedDraws([1 - 2**-53, 0.0]))
    assert (verdict.accepted, verdict.judged[0].accept) == (1, 1.0)


def test_a_one_hot_draft_is_kept_with_p_of_it_and_its_residual_is_p_without_it() -> None:
    kept = token(rows(2), Proposal((1,)), ListedDraws([0.299, 0.0]))
    assert (kept.accepted, kept.judged[0].accept) == (1, 0.3)
    assert kept.judged[0].beta == pytest.approx(0.3)
    refused = token(rows(2), Proposal((1,)), ListedDraws([0.301, 0.72]))
    assert refused.judged[0].residual is not None
    assert refused.judged[0].residual.tolist() == pytest.approx([5 / 7, 0, 2 / 7])
    # 5/7 = 0.714…: the draw 0.72 falls on the last token.
    assert refused.token == 2


def test_match_keeps_the_draft_that_the_target_draws_itself() -> None:
    # Quantiles of p: token 0 below 0.5, token 1 below 0.8, token 2 above.
    verdict = match(rows(4), Proposal((1, 0, 1)), ListedDraws([0.6, 0.3, 0.9]))
    assert (verdict.accepted, verdict.token, verdict.kind, verdict.u) == (2, 2, "correction", None)
    assert [judged.status for judged in verdict.judged] == ["accepted", "accepted", "rejected"]
    assert [judged.accept for judged in verdict.judged] == [0.3, 0.5, 0.3]
    full = match(rows(2), Proposal((1,)), ListedDraws([0.6, 0.1]))
    assert (full.accepted, full.token, full.kind) == (1, 0, "bonus")


@pytest.mark.parametrize("rule", RULES)
def test_without_a_draft_a_rule_draws_from_p(rule: str) -> None:
    verdict = RULES[rule](rows(1), Proposal(), ListedDraws([0.75]))
    assert (verdict.judged, verdict.accepted, verdict.token, verdict.kind) == ((), 0, 1, "bonus")


@pytest.mark.parametrize("rule", RULES)
def test_at_temperature_zero_a_draft_is_kept_iff_it_is_the_argmax(rule: str) -> None:
    p = torch.eye(3)[[2, 0, 1]]
    for seed in range(20):
        kept = RULES[rule](p, Proposal((2, 0)), Draws(seed, 1, 5))
        assert (kept.accepted, kept.token, kept.kind) == (2, 1, "bonus")
        refused = RULES[rule](p, Proposal((2, 1)), Draws(seed, 1, 5))
        assert (refused.accepted, refused.token, refused.kind) == (1, 0, "correction")


# ---------------------------------------------------------------- the residual


def test_the_residual_of_laws_that_differ_by_rounding_alone_is_p() -> None:
    p = torch.tensor([0.3, 0.7], dtype=torch.float64)
    assert torch.equal(residual(p, p.clone()), p)
    assert torch.equal(residual(p, p + torch.tensor([-1e-12, 1e-12])), p)
    assert torch.equal(residual(torch.eye(2)[0], torch.eye(2)[0]), torch.eye(2)[0])


def test_the_residual_leaves_its_inputs_alone() -> None:
    p, q = P.clone(), Q.clone()
    residual(p, q)
    assert torch.equal(p, P)
    assert torch.equal(q, Q)


def test_a_small_but_true_difference_is_no_rounding() -> None:
    p = torch.tensor([0.5 + 1e-6, 0.5 - 1e-6], dtype=torch.float64)
    assert residual(p, torch.tensor([0.5, 0.5], dtype=torch.float64)).tolist() == pytest.approx([1, 0])


# ---------------------------------------------------------------- every verdict


@dataclass(frozen=True)
class Case:
    """A rule, what it judges, and its verdict."""

    rule: str
    p: Tensor
    proposal: Proposal
    verdict: Verdict


@st.composite
def laws(draw: st.DrawFn, count: int, size: int) -> Tensor:
    """Laws with zeros, ties and one-hots among them."""
    weights = st.lists(st.sampled_from([0, 0, 1, 1, 2, 5, 100]), min_size=size, max_size=size).filter(any)
    table = torch.tensor([draw(weights) for _ in range(count)], dtype=torch.float32).reshape(count, size)
    return table / table.sum(-1, keepdim=True)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    size, drafted = draw(st.integers(2, 5)), draw(st.integers(0, 4))
    p = draw(laws(drafted + 1, size))
    rule = draw(st.sampled_from(sorted(RULES)))
    drawn: Drawn = draw(st.sampled_from([drawn for drawn, fitting in FITS.items() if rule in fitting]))
    if drawn == "one_hot":
        tokens = draw(st.lists(st.integers(0, size - 1), min_size=drafted, max_size=drafted))
        proposal = Proposal(tuple(tokens))
    else:
        q = p[:drafted] if draw(st.booleans()) else draw(laws(drafted, size))
        tokens = [draw(st.sampled_from(row.nonzero()[:, 0].tolist())) for row in q]
        proposal = Proposal(tuple(tokens), "sampled", q)
    draws = Draws(draw(st.integers(0, 2**32)), draw(st.integers(1, 9)), draw(st.integers(1, 99)))
    return Case(rule, p, proposal, RULES[rule](p, proposal, draws))


@given(cases())
def test_statuses_are_accepted_then_at_most_one_rejected_then_discarded(case: Case) -> None:
    verdict, drafted = case.verdict, len(case.proposal)
    refused = verdict.accepted < drafted
    unjudged = drafted - verdict.accepted - refused
    assert [judged.status for judged in verdict.judged] == (
        ["accepted"] * verdict.accepted + ["rejected"] * refused + ["discarded"] * unjudged
    )
    assert verdict.kind == ("correction" if refused else "bonus")


@given(cases())
def test_only_judged_drafts_have_numbers_and_only_the_rejected_a_residual(case: Case) -> None:
    for judged in case.verdict.judged:
        known = judged.status != "discarded"
        assert all((value is not None) == known for value in (judged.accept, judged.beta))
        # `match` compares tokens, not a draw with a chance.
        assert (judged.u is not None) == (known and case.rule != "match")
        assert (judged.residual is not None) == (judged.status == "rejected")


@given(cases())
def test_the_numbers_of_a_draft_are_those_it_was_judged_by(case: Case) -> None:
    for place, judged in enumerate(case.verdict.judged):
        draft = case.proposal.tokens[place]
        q = torch.eye(case.p.shape[1])[draft] if case.proposal.q is None else case.proposal.q[place]
        assert (judged.p, judged.q) == (float(case.p[place, draft]), float(q[draft]))
        if judged.status == "discarded":
            continue
        assert judged.accept == pytest.approx(min(1.0, judged.p / judged.q))
        assert judged.beta == pytest.approx(float(torch.minimum(case.p[place], q).sum()))
        if case.rule == "token":
            assert judged.u is not None
            assert (judged.u * judged.q < judged.p) == (judged.status == "accepted")
        if judged.residual is not None:
            assert float(judged.residual.sum()) == pytest.approx(1.0)
            assert float(judged.residual.min()) >= 0.0
            if judged.p <= judged.q and not torch.equal(case.p[place], q):
                assert float(judged.residual[draft]) == 0.0


@given(cases())
def test_nothing_is_written_that_the_target_would_never_write(case: Case) -> None:
    written = [*case.proposal.tokens[: case.verdict.accepted], case.verdict.token]
    assert all(float(case.p[place, draft]) > 0 for place, draft in enumerate(written))
    if case.verdict.kind == "correction" and case.proposal.drawn == "one_hot":
        assert case.verdict.token != case.proposal.tokens[case.verdict.accepted]


def test_a_rule_that_would_bend_the_law_does_not_fit() -> None:
    check_fit("token", "sampled")
    check_fit("match", "one_hot")
    with pytest.raises(ValueError, match="'match' does not keep the target's law for sampled drafts"):
        check_fit("match", "sampled")


@pytest.mark.parametrize("q", [None, torch.zeros(1, 3)])
def test_a_sampled_proposal_without_a_row_for_every_draft_is_refused(q: Any) -> None:
    with pytest.raises(ValueError, match="one row of q for every draft"):
        Proposal((1, 2), "sampled", q)


def test_a_proposal_is_cut_behind_its_first_end_of_text() -> None:
    q = torch.arange(12.0).reshape(4, 3)
    proposal = Proposal((5, 7, 8, 7), "sampled", q, q + 1, ({"n": 1}, None, {"n": 3}, None))
    cut = proposal.cut_after({7})
    assert cut.tokens == (5, 7)
    assert cut.why == ({"n": 1}, None)
    assert cut.q is not None
    assert cut.q_raw is not None
    assert torch.equal(cut.q, q[:2])
    assert torch.equal(cut.q_raw, q[:2] + 1)
    assert proposal.cut_after({9}) is proposal
    assert Proposal((7, 7)).cut_after({7}).tokens == (7,)
