import json
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.content.files import PRESETS
from spec_viz.engine.trace import Emitted, Node, Round, Trace, dumps, loads
from spec_viz.lab import metrics, theory
from spec_viz.lab.metrics import Ratio, summarise, what_if
from tests.unit.traces import chain, chains, plain, run, trace

# Three rounds of four drafts and one without a draft.
WORKED = run("aard", "aaaa", "rddd", "", ms=(4.0, 30.0, 1.0, 1.0))
BASELINE = plain(10, ms=(0.0, 20.0, 1.0, 0.0))


def test_counts_and_rates_of_a_worked_example() -> None:
    summary = summarise(WORKED)
    assert (summary.accepted, summary.rejected, summary.discarded) == (6, 2, 4)
    assert (summary.judged, summary.drafted) == (8, 12)
    assert (summary.rounds, summary.drafting_rounds, summary.emitted) == (4, 3, 10)
    assert summary.alpha == Ratio(6, 8)
    assert summary.efficiency == Ratio(6, 12)
    assert summary.tau == Ratio(10, 4)
    assert summary.coverage == Ratio(3, 4)
    assert summary.lengths == (1, 0, 1, 0, 1)


def test_positions_of_a_worked_example() -> None:
    positions = summarise(WORKED).positions
    assert [position.conditional for position in positions] == [Ratio(2, 3), Ratio(2, 2), Ratio(1, 2), Ratio(1, 1)]
    assert [position.survival for position in positions] == [Ratio(2, 4), Ratio(2, 2), Ratio(1, 2), Ratio(1, 1)]
    assert [summarise(WORKED).unconditional(position).numerator for position in positions] == [2, 2, 1, 1]


def test_times_speed_and_costs_of_a_worked_example() -> None:
    summary = summarise(WORKED, BASELINE)
    assert summary.prefill_ms == 50.0
    assert summary.ms["total"].mean == 36.0
    assert summary.tokens_per_second == Ratio(10, 4 * 36 / 1000)
    assert summary.speedup is not None
    assert summary.speedup.value == pytest.approx((10 / (4 * 36)) / (10 / (10 * 21)))
    # 16 ms of drafting over 12 tokens, against a pass of 20 ms.
    assert summary.c is not None
    assert summary.c.value == pytest.approx(16 / 12 / 20)
    assert summary.v == Ratio(30.0, 20.0)
    assert summary.v_tokens == 5


def test_percentiles_are_over_rounds() -> None:
    rounds = [chain(n, "r", (0.0, float(n), 0.0, 0.0)) for n in range(1, 101)]
    spread = summarise(trace(*rounds)).ms["verify"]
    assert (spread.p50, spread.mean, spread.total) == (50.5, 50.5, 5050.0)
    assert spread.p95 == pytest.approx(95.05)
    assert spread.p99 == pytest.approx(99.01)


def test_what_a_trace_does_not_tell_is_none() -> None:
    untimed = summarise(run("aard"))
    assert untimed.ms == {}
    assert untimed.tokens_per_second is None
    assert (untimed.c, untimed.v, untimed.speedup) == (None, None, None)
    assert summarise(WORKED).speedup is None
    alone = summarise(BASELINE)
    assert alone.alpha is not None
    assert alone.alpha.value is None
    assert alone.tau.value == 1.0


def test_the_prefill_is_never_counted() -> None:
    assert summarise(trace()).rounds == 0
    assert summarise(trace()).tau.value is None


def test_an_accepted_end_of_text_emits_nothing_more() -> None:
    summary = summarise(trace(chain(1, "aa", ended=True)))
    assert summary.emitted == 2
    assert summary.tau == Ratio(2, 1)


def test_a_tree_has_depths_but_no_alpha() -> None:
    nodes = (
        Node(1, -1, 1, "rejected"),
        Node(2, -1, 1, "accepted"),
        Node(3, 0, 2, "discarded"),
        Node(4, 1, 2, "accepted"),
    )
    summary = summarise(trace(Round(1, nodes, Emitted(7, "bonus"))))
    assert summary.is_tree
    assert summary.alpha is None
    assert [(p.judged, p.accepted) for p in summary.positions] == [(1, 1), (1, 1)]
    assert summary.tau == Ratio(3, 1)
    assert what_if(summary, [1, 2]) == ()
    assert [position.conditional for position in summary.positions] == [Ratio(1, 1), Ratio(1, 1)]
    assert summary.coverage == Ratio(1, 1)


def test_candidates_cover_the_target_s_law_at_every_place_the_rule_came_to() -> None:
    first = (
        Node(1, -1, 1, "rejected", p=0.25),
        Node(2, -1, 1, "accepted", p=0.5),
        # Its parent was refused: the rule never came here.
        Node(3, 0, 2, "discarded", p=0.9),
        Node(4, 1, 2, "rejected", p=0.125),
        # Two siblings that say the same cover it once.
        Node(4, 1, 2, "rejected", p=0.125),
    )
    second = (Node(5, -1, 1, "accepted", p=1.0),)
    rounds = (Round(1, first, Emitted(7, "correction")), Round(2, second, Emitted(7, "bonus")), chain(3, ""))
    assert summarise(trace(*rounds)).candidates == Ratio(0.75 + 0.125 + 1.0, 3)


def test_candidates_are_unknown_where_a_trace_holds_no_p() -> None:
    assert summarise(WORKED).candidates is None
    assert summarise(BASELINE).candidates == Ratio(0, 0)


def test_tokens_a_round_have_percentiles() -> None:
    tokens = summarise(WORKED).tokens
    assert tokens is not None
    # Rounds of 3, 5, 1 and 1 tokens.
    assert (tokens.total, tokens.mean, tokens.p50) == (10, 2.5, 2.0)
    assert tokens.p95 == pytest.approx(4.7)
    assert summarise(trace()).tokens is None


# ---------------------------------------------------------------- several runs


def test_a_pool_is_a_ratio_of_totals_and_not_a_mean_of_ratios() -> None:
    good, bad = run("aaaa", "aaaa", "aaaa"), run("rddd")
    pooled = metrics.pool([good, bad])
    assert pooled.runs == 2
    assert pooled.alpha is not None
    assert pooled.alpha.total == Ratio(12, 13)
    assert pooled.alpha.each == (1.0, 0.0)
    assert (pooled.alpha.low, pooled.alpha.mean, pooled.alpha.high) == (0.0, 0.5, 1.0)
    assert pooled.alpha.deviation == pytest.approx(0.5**0.5)
    assert pooled.tau.total == Ratio(16, 4)
    assert pooled.tau.each == (5.0, 1.0)
    assert pooled.efficiency.total == Ratio(12, 16)
    assert pooled.coverage.total == Ratio(4, 4)


def test_a_pool_leaves_out_what_one_of_its_runs_does_not_have() -> None:
    tree = trace(Round(1, (Node(1, -1, 1, "rejected"), Node(2, -1, 1, "accepted")), Emitted(7, "bonus")))
    pooled = metrics.pool([WORKED, tree])
    assert pooled.alpha is None
    assert pooled.tokens_per_second is None
    assert pooled.tau.total == Ratio(12, 5)
    # A run without a draft has a rate of nothing: it is in the totals, not in the spread.
    with_plain = metrics.pool([WORKED, BASELINE])
    assert with_plain.alpha is not None
    assert with_plain.alpha.total == Ratio(6, 8)
    assert with_plain.alpha.each == (0.75,)
    assert with_plain.alpha.deviation is None
    assert with_plain.tokens_per_second is not None
    assert with_plain.tokens_per_second.total.value == pytest.approx(20 / (0.144 + 0.21))


@given(st.lists(chains(), min_size=1, max_size=4))
def test_a_pool_lies_within_its_spread(subjects: list[Trace]) -> None:
    pooled = metrics.pool(subjects)
    for rate in (pooled.alpha, pooled.efficiency, pooled.tau, pooled.coverage, pooled.tokens_per_second):
        assert rate is not None
        if rate.total.value is not None:
            assert rate.low is not None
            assert rate.high is not None
            assert rate.low - 1e-9 <= rate.total.value <= rate.high + 1e-9


# ---------------------------------------------------------------- recorded runs


@pytest.mark.parametrize("path", sorted(PRESETS.glob("*.ndjson")), ids=lambda path: path.stem)
def test_identities_hold_for_every_recorded_run(path: Path) -> None:
    for recorded in loads(path.read_text(encoding="utf-8")):
        summary = summarise(recorded)
        assert sum(position.accepted for position in summary.positions) == summary.accepted
        assert sum(k * count for k, count in enumerate(summary.lengths)) == summary.accepted
        assert sum(summary.lengths) == summary.drafting_rounds
        assert summary.tau.value is not None
        assert summary.tau.value * summary.rounds == pytest.approx(summary.emitted)
        # All that was written, but for the token of the prefill.
        assert summary.emitted == len(recorded.output) - 1
        # Every round ends with a token of the target, but one that an accepted end of text closed.
        assert summary.emitted == summary.accepted + sum(r.emitted is not None for r in recorded.decoding)
        assert summary.tokens is not None
        assert summary.tokens.total == summary.emitted
        assert summary.candidates is not None
        assert 0 <= summary.candidates.numerator <= summary.candidates.denominator
        if not summary.is_tree and summary.candidates.value is not None:
            # On a chain the place and its one candidate are a judged draft.
            assert summary.candidates.denominator == summary.judged


@given(chains())
def test_identities_hold_for_every_trace(subject: Trace) -> None:
    summary = summarise(subject)
    assert sum(position.accepted for position in summary.positions) == summary.accepted
    assert sum(position.judged for position in summary.positions) == summary.judged
    assert sum(position.drafted for position in summary.positions) == summary.drafted
    assert sum(summary.lengths) == summary.drafting_rounds
    assert sum(k * count for k, count in enumerate(summary.lengths)) == summary.accepted
    assert summary.emitted == summary.accepted + summary.rounds == len(subject.output) - 1
    assert summary.rejected <= summary.drafting_rounds <= summary.rounds
    shares = [summary.unconditional(position).numerator for position in summary.positions]
    assert all(later <= earlier for earlier, later in pairwise(shares))
    assert all(p.judged <= min(p.reached, p.drafted) and p.accepted <= p.judged for p in summary.positions)


@given(chains())
def test_what_if_reproduces_the_run_at_its_own_gamma(subject: Trace) -> None:
    baseline = plain(5, ms=(0.0, 0.1, 0.05, 0.0))
    summary = summarise(subject, baseline)
    for predicted in what_if(summary, [summary.gamma]):
        assert predicted.tokens == pytest.approx(summary.tau.value)
        assert summary.speedup is not None
        assert predicted.speedup == pytest.approx(summary.speedup.value)


@given(chains(full=True))
def test_per_position_rates_give_tau_when_every_round_drafts_gamma(subject: Trace) -> None:
    summary = summarise(subject)
    rates = [position.conditional.value or 0.0 for position in summary.positions]
    assert theory.expected_tokens_by_position(rates) == pytest.approx(summary.tau.value)


@given(chains())
def test_more_drafts_never_mean_fewer_tokens_a_round(subject: Trace) -> None:
    tokens = [predicted.tokens for predicted in what_if(summarise(subject), range(13))]
    assert tokens == sorted(tokens)
    assert all(1.0 <= value <= gamma + 1 for gamma, value in enumerate(tokens))


@given(chains())
def test_a_trace_read_back_has_the_same_summary(subject: Trace) -> None:
    (again,) = loads(dumps(subject))
    assert replace(summarise(again), ms={}, prefill_ms=None) == replace(summarise(subject), ms={}, prefill_ms=None)


def test_the_baseline_must_come_from_the_same_machine() -> None:
    elsewhere = plain(10, ms=(0.0, 20.0, 1.0, 0.0), device="cuda")
    assert metrics.find_baseline(WORKED, [WORKED, elsewhere]) is None
    assert metrics.find_baseline(WORKED, [WORKED, elsewhere, BASELINE]) is BASELINE


def test_deeper_than_the_run_the_pooled_rate_stands_in() -> None:
    summary = summarise(run("aaaa", "aaaa", "rddd", "aard"))
    rates = metrics.survival_rates(summary, 6)
    assert rates[:4] == [3 / 4, 3 / 3, 2 / 3, 2 / 2]
    assert rates[4:] == [10 / 12, 10 / 12]


def test_a_summary_is_plain_data() -> None:
    assert json.loads(json.dumps(asdict(summarise(WORKED, BASELINE))))["accepted"] == 6
