"""The accept rules: worked fractions, and what must hold of every verdict."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Drawn, Proposal
from spec_viz.engine.rules import RULES, Verdict, check_fit, match, residual, token
from spec_viz.engine.trace import Status
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


LOSSLESS = [name for name, rule in RULES.items() if rule.lossless]


@pytest.mark.parametrize("rule", LOSSLESS)
def test_without_a_draft_a_rule_draws_from_p(rule: str) -> None:
    verdict = RULES[rule].judge(rows(1), Proposal(), ListedDraws([0.75]))
    assert (verdict.judged, verdict.path, verdict.token, verdict.kind) == ((), (), 1, "bonus")


# A forced acceptance asks no target.
@pytest.mark.parametrize("rule", [name for name in RULES if name != "synthetic"])
def test_at_temperature_zero_a_draft_is_kept_iff_it_is_the_argmax(rule: str) -> None:
    p, eye = torch.eye(3)[[2, 0, 1]], torch.eye(3)
    for seed in range(20):
        for drafts, path, own in (((2, 0), (0, 1), 1), ((2, 1), (0,), 0), ((1, 0), (), 2)):
            drawn = RULES[rule].drawn[0]
            proposal = Proposal(drafts, drawn, None if drawn == "one_hot" else eye[list(drafts)])
            verdict = RULES[rule].with_strength(1.0 if rule == "ensemble" else None)(p, proposal, Draws(seed, 1, 5))
            assert (verdict.path, verdict.token) == (path, own)
            assert verdict.kind == ("bonus" if len(path) == 2 else "correction")


# ---------------------------------------------------------------- values of algorithms §9


def chance_to_keep_one(rule: str, count: int) -> float:
    """The exact chance that one of `count` children of a node is kept, over all children that q can draw."""
    emitted = 0.0
    for children in itertools.product(range(3), repeat=count):
        weight, left = 1.0, Q.clone()
        for child in children:
            weight *= float(left[child] / left.sum())
            if rule == "without_replacement":
                left[child] = 0.0
        if weight == 0 or (rule == "without_replacement" and len({*children}) < count):
            continue
        drawn = RULES[rule].drawn[0]
        proposal = Proposal(children, drawn, Q.expand(count, 3), parents=(-1,) * count)
        none_kept, none_yet = 1.0, ListedDraws([1 - 2**-53] * (count + 1))
        for judged in RULES[rule].judge(rows(count + 1), proposal, none_yet).judged:
            none_kept *= 1 - (judged.accept or 0.0) if judged.status != "discarded" else 1.0
        emitted += weight * (1 - none_kept)
    return emitted


@pytest.mark.parametrize(
    ("rule", "chances"),
    [
        ("specinfer", (0.70, 0.76, 0.808)),
        ("without_replacement", (0.70, 0.8086, 1.0)),
        ("kseq", (0.70, 0.7914, 0.8585)),
    ],
)
def test_the_chance_to_keep_one_of_several_children_is_the_reference_s(rule: str, chances: tuple[float, ...]) -> None:
    assert [chance_to_keep_one(rule, count) for count in (1, 2, 3)] == pytest.approx(chances, abs=5e-5)


@pytest.mark.parametrize(
    ("gamma", "by_token", "by_block"), [(2, 10 / 9, 11 / 9), (3, 38 / 27, 5 / 3), (4, 130 / 81, 166 / 81)]
)
def test_block_keeps_as_many_as_the_reference_says(gamma: int, by_token: float, by_block: float) -> None:
    p = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64).expand(gamma + 1, 2)
    q = torch.tensor([2 / 3, 1 / 3], dtype=torch.float64).expand(gamma, 2)
    expected = {"token": 0.0, "block": 0.0}
    for drafts in itertools.product(range(2), repeat=gamma):
        weight = float(torch.stack([q[0, draft] for draft in drafts]).prod())
        for rule in expected:
            # With every draw 0 each draft's own chance is told; a draft's u is compared with that chance alone.
            fates = RULES[rule].judge(p, Proposal(drafts, "sampled", q), ListedDraws([0.0] * (gamma + 1))).judged
            chances = [fate.accept or 0.0 for fate in fates]
            for kept in itertools.product((True, False), repeat=gamma):
                share = math.prod(c if keep else 1 - c for c, keep in zip(chances, kept, strict=True))
                longest = max((place + 1 for place in range(gamma) if kept[place]), default=0)
                leading = next((place for place in range(gamma) if not kept[place]), gamma)
                expected[rule] += weight * share * (longest if rule == "block" else leading)
    assert expected["token"] == pytest.approx(by_token)
    assert expected["block"] == pytest.approx(by_block)


# ---------------------------------------------------------------- lossy rules say so and do what they say


def test_typical_keeps_what_is_over_the_bar_of_its_own_entropy() -> None:
    p = torch.tensor([[0.05, 0.9, 0.05], [0.34, 0.33, 0.33], [1.0, 0.0, 0.0]])
    entropy = torch.special.entr(p).sum(-1)
    bars = torch.minimum(torch.tensor(0.09), 0.3 * torch.exp(-entropy))
    verdict = RULES["typical"].judge(p, Proposal((1, 2)), ListedDraws([0.5]))
    assert verdict.path == (0, 1)
    assert float(bars[1]) < 0.33
    assert RULES["typical"].judge(p, Proposal((0, 2)), ListedDraws([0.5])).path == ()
    assert float(p[0, 0]) < float(bars[0])


def test_synthetic_keeps_its_share_whatever_the_target_thinks() -> None:
    p = torch.eye(3)[[0] * 4]
    kept = sum(RULES["synthetic"].judge(p, Proposal((1,)), Draws(seed, 1, 4)).accepted for seed in range(4000))
    assert kept == pytest.approx(0.8 * 4000, abs=4 * 40 * 0.4 * 2.6)


def test_ensemble_lies_between_target_and_drafter() -> None:
    judge = RULES["ensemble"]
    certain = judge.with_strength(0.0)(rows(2), soft(1), ListedDraws([1 - 2**-53, 0.5]))
    assert certain.path == (0,)
    assert certain.judged[0].p == 0.3
    strict = judge.with_strength(1.0)(rows(2), soft(1), ListedDraws([0.601, 0.5]))
    assert strict.path == ()


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan")])
def test_a_strength_out_of_range_is_refused(strength: float) -> None:
    with pytest.raises(ValueError, match=r"takes a number from 0\.0 to 1\.0"):
        RULES["synthetic"].with_strength(strength)


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
    size, drafted = draw(st.integers(2, 5)), draw(st.integers(0, 5))
    p = draw(laws(drafted + 1, size))
    rule = draw(st.sampled_from(LOSSLESS))
    drawn: Drawn = draw(st.sampled_from(RULES[rule].drawn))
    shape = tuple(range(-1, drafted - 1))
    if RULES[rule].trees:
        shape = tuple(draw(st.integers(-1, node - 1)) for node in range(drafted))
    if drawn == "one_hot":
        tokens = [draw(st.integers(0, size - 1)) for _ in shape]
        proposal = Proposal(tuple(tokens), parents=shape)
    else:
        # A family is drawn from one law; now and then it is the target's own.
        families = p[1:] if draw(st.booleans()) else draw(laws(drafted + 1, size))
        q = families[[parent + 1 for parent in shape]] if drafted else families[:0]
        if drafted and draw(st.booleans()):
            q = p[[parent + 1 for parent in shape]]
        tokens = [draw(st.sampled_from(row.nonzero()[:, 0].tolist())) for row in q]
        proposal = Proposal(tuple(tokens), drawn, q, parents=shape)
    draws = Draws(draw(st.integers(0, 2**32)), draw(st.integers(1, 9)), draw(st.integers(1, 99)))
    return Case(rule, p, proposal, RULES[rule].judge(p, proposal, draws))


@given(cases())
def test_what_is_kept_is_a_path_and_its_elder_siblings_were_refused(case: Case) -> None:
    verdict, proposal = case.verdict, case.proposal
    expected: list[Status] = ["discarded"] * len(proposal)
    at = -1
    for kept in (*verdict.path, None):
        children = proposal.children(at)
        for child in children[: children.index(kept)] if kept is not None else children:
            expected[child] = "rejected"
        if kept is not None:
            assert proposal.parents[kept] == at
            expected[kept], at = "accepted", kept
    assert [judged.status for judged in verdict.judged] == expected
    assert verdict.kind == ("correction" if proposal.children(at) else "bonus")


@given(cases())
def test_only_judged_drafts_have_numbers_and_only_the_last_refused_the_residual(case: Case) -> None:
    for judged in case.verdict.judged:
        known = judged.status != "discarded"
        assert all((value is not None) == known for value in (judged.accept, judged.beta))
        # `match` compares tokens, not a draw with a chance.
        assert (judged.u is not None) == (known and case.rule != "match")
    end = case.verdict.path[-1] if case.verdict.path else -1
    holders = [node for node, judged in enumerate(case.verdict.judged) if judged.residual is not None]
    assert holders == ([case.proposal.children(end)[-1]] if case.verdict.kind == "correction" else [])


@given(cases())
def test_the_numbers_of_a_draft_are_those_it_was_judged_by(case: Case) -> None:
    for node, judged in enumerate(case.verdict.judged):
        draft, row = case.proposal.tokens[node], case.proposal.parents[node] + 1
        q = torch.eye(case.p.shape[1])[draft] if case.proposal.q is None else case.proposal.q[node]
        assert (judged.p, judged.q) == (float(case.p[row, draft]), float(q[draft]))
        if judged.status == "discarded":
            continue
        if case.rule in ("match", "token"):
            assert judged.accept == pytest.approx(min(1.0, judged.p / judged.q))
            assert judged.beta == pytest.approx(float(torch.minimum(case.p[row], q).sum()))
        if case.rule == "token":
            assert judged.u is not None
            assert (judged.u * judged.q < judged.p) == (judged.status == "accepted")
        elif case.rule not in ("match", "block"):
            # The chance that is told is the one the draw is compared with.
            assert judged.u is not None
            assert judged.accept is not None
            if abs(judged.u - judged.accept) > 1e-6:
                assert (judged.u < judged.accept) == (judged.status == "accepted")
        if judged.residual is not None:
            assert float(judged.residual.sum()) == pytest.approx(1.0)
            assert float(judged.residual.min()) >= 0.0


@given(cases())
def test_nothing_is_written_that_the_target_would_never_write(case: Case) -> None:
    at = 0
    for node in case.verdict.path:
        assert float(case.p[at, case.proposal.tokens[node]]) > 0
        at = node + 1
    assert float(case.p[at, case.verdict.token]) > 0
    if case.verdict.kind == "correction" and case.proposal.drawn == "one_hot":
        refused = {case.proposal.tokens[child] for child in case.proposal.children(at - 1)}
        assert case.verdict.token not in refused


def test_a_rule_that_would_bend_the_law_does_not_fit() -> None:
    tree, q = (-1, -1), Q.expand(2, 3)
    check_fit("token", soft(0, 1))
    check_fit("match", Proposal((0, 1), parents=tree))
    check_fit("without_replacement", Proposal())
    for rule, proposal, words in (
        ("match", soft(0, 1), "'match' cannot judge sampled drafts in a chain"),
        ("token", Proposal((0, 1), "sampled", q, parents=tree), "'token' cannot judge sampled drafts in a tree"),
        ("specinfer", Proposal((0, 1), parents=tree), "'specinfer' cannot judge one_hot drafts in a tree"),
        ("kseq", Proposal((0, 1), "without_replacement", q, parents=tree), "cannot judge without_replacement drafts"),
    ):
        with pytest.raises(ValueError, match=words):
            check_fit(rule, proposal)


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


def test_a_tree_loses_only_what_hangs_behind_an_end_of_text() -> None:
    #  5 ─ 7(end) ─ 9 ─ 1      6 ─ 2
    tree = Proposal((5, 6, 7, 2, 9, 1), parents=(-1, -1, 0, 1, 2, 4))
    cut = tree.cut_after({7})
    assert cut.tokens == (5, 6, 7, 2)
    assert cut.parents == (-1, -1, 0, 1)
    assert tree.depths == (1, 1, 2, 2, 3, 4)
    assert tree.path(5) == (0, 2, 4, 5)
    assert not tree.is_chain


@pytest.mark.parametrize("parents", [(0,), (-1, 1), (-2, 0), (-1,)])
def test_a_tree_whose_parents_do_not_come_first_is_refused(parents: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="follows the last committed token or an earlier draft"):
        Proposal((1, 2), parents=parents) if len(parents) != 1 or parents == (-1,) else Proposal((1,), parents=parents)
