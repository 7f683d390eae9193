"""Length policies: what each does round by round, that the loop asks them, and that none of them bends the law."""

from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.drafters.early_exit import first_layers
from spec_viz.drafters.model import ModelDrafter
from spec_viz.drafters.registry import families
from spec_viz.engine.length import LENGTHS, Confident, Drafted, Fixed, Goodput, Heuristic, Length
from spec_viz.engine.proposal import Proposal
from spec_viz.engine.rules import RULES
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp
from spec_viz.lab import law
from spec_viz.lab.law_tiny import LENGTHS_UNDER, sample_tiny
from tests.engine.tiny import GREEDY, Copyist, generate, lookup, model, prompts, run, spoiled

VARYING = [name for name in LENGTHS if name != "fixed"]
PROMPT = prompts(1)[0]
NEW = 24


def shallow(length: Length, warp: Warp = GREEDY) -> ModelDrafter:
    return ModelDrafter(CachedModel(first_layers(model(), 2)), warp, "sampled", 1, length, frozenset())


def heard(depth: int, accepted: int, propose_ms: float = 0.0, verify_ms: float = 1.0) -> Drafted:
    return Drafted(depth, accepted, propose_ms, verify_ms)


class Noting(Fixed):
    """Fixed, and keeps what it was told."""

    def __init__(self) -> None:
        self.rounds: list[Drafted] = []
        self.qs: list[float] = []

    def stops(self, q: float) -> bool:
        self.qs.append(q)
        return False

    def observe(self, round_: Drafted) -> None:
        self.rounds.append(round_)


# ---------------------------------------------------------------- each policy by hand


@pytest.mark.parametrize("make", LENGTHS.values(), ids=LENGTHS)
@given(
    rounds=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.floats(0, 50), st.floats(0, 50)), max_size=40)
)
def test_a_length_is_never_longer_than_it_may_be(
    make: Callable[[], Length], rounds: list[tuple[int, int, float, float]]
) -> None:
    length = make()
    for place, (depth, accepted, propose, verify) in enumerate(rounds):
        most = max(8 - place // 4, 0)
        assert 0 <= length.gamma(most) <= most
        length.observe(Drafted(depth, min(accepted, depth), propose, verify))


def test_what_was_judged_is_what_was_kept_and_the_refusal() -> None:
    assert [heard(4, kept).judged for kept in range(5)] == [1, 2, 3, 4, 4]
    assert heard(0, 0).judged == 0


def test_the_heuristic_is_transformers_schedule_below_a_ceiling() -> None:
    length = Heuristic()
    asked = [length.gamma(5)]
    for accepted in ("no", "no", "no", "no", "no", "all", "no", "all", "all"):
        depth = asked[-1]
        length.observe(heard(depth, depth if accepted == "all" else 0))
        asked.append(length.gamma(5))
    assert asked == [5, 4, 3, 2, 1, 1, 3, 2, 4, 5]


def test_the_heuristic_learns_nothing_from_a_round_without_a_draft_nor_from_the_end_of_the_run() -> None:
    length = Heuristic()
    assert length.gamma(6) == 6
    length.observe(heard(6, 1))
    length.observe(heard(0, 0))
    assert length.gamma(2) == 2
    assert length.gamma(6) == 5


def test_confident_stops_below_its_threshold_only() -> None:
    assert [Confident(0.4).stops(q) for q in (0.39, 0.4, 0.9)] == [True, False, False]
    assert [Confident(0.0).stops(q) for q in (0.0, 1.0)] == [False, False]
    assert Confident().gamma(7) == 7


def best(alpha: float, draft: float, step: float, growth: float, most: int) -> int:
    """TurboSpec's argmax with the closed form of the sum."""
    return max(range(most + 1), key=lambda k: (1 - alpha ** (k + 1)) / (1 - alpha) / (draft * k + step + growth * k))


@pytest.mark.parametrize("kept", [1, 2, 3])
@pytest.mark.parametrize("draft", [0.0, 0.5, 2.0, 40.0])
@pytest.mark.parametrize("growth", [0.0, 1.0, 6.0])
def test_goodput_takes_the_best_length_of_what_it_has_seen(kept: int, draft: float, growth: float) -> None:
    length = Goodput()
    for _ in range(5):
        length.observe(heard(4, kept, 4 * draft, 20 + 4 * growth))
        length.observe(heard(0, 0, 0.0, 20))
    assert length.gamma(12) == best(kept / (kept + 1), draft, 20, growth, 12)


def test_goodput_measures_before_it_chooses() -> None:
    length = Goodput()
    assert length.gamma(4) == 4
    length.observe(heard(0, 0, 0.0, 9.0))  # the drafter found nothing
    assert length.gamma(4) == 4
    length.observe(heard(4, 4, 1.0, 10.0))
    fresh = Goodput()
    fresh.observe(heard(4, 4, 1.0, 10.0))
    assert fresh.gamma(4) == 0
    assert length.gamma(4) == 4


def test_goodput_gives_up_a_drafter_that_never_pays_and_looks_again_later() -> None:
    length = Goodput(memory=8)
    asked = []
    for _ in range(40):
        depth = length.gamma(3)
        asked.append(depth)
        length.observe(heard(depth, 0, 5.0 * depth, 10.0 + depth))
    assert asked[0] == 3
    # One probe, forgotten after eight rounds, then another.
    assert asked == [3 if place % 9 == 0 else 0 for place in range(40)]


def test_goodput_follows_a_drafter_that_becomes_good() -> None:
    length = Goodput(memory=8)
    for place in range(60):
        depth = length.gamma(4)
        good = place > 30
        length.observe(heard(depth, depth if good else 0, 0.1 * depth, 10.0 + 0.1 * depth))
    assert length.gamma(4) in (0, 4)
    late = [length.gamma(4)]
    for _ in range(16):
        length.observe(heard(late[-1], late[-1], 0.1 * late[-1], 10.0 + 0.1 * late[-1]))
        late.append(length.gamma(4))
    assert late.count(4) > 12


# ---------------------------------------------------------------- in the loop


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("spoil", [2, 3, 100])
def test_greedy_text_is_transformers_own_under_every_policy(name: str, spoil: int) -> None:
    own = generate(PROMPT, NEW)
    for drafter in (Copyist(len(PROMPT), spoiled(own, spoil)), lookup(PROMPT)):
        assert run(PROMPT, drafter, length=LENGTHS[name]()).output == own
    length = LENGTHS[name]()
    assert run(PROMPT, shallow(length), rule="token", length=length).output == own


class Alternating(Fixed):
    """Drafts in every second round, so that a drafter's state must outlive a round it was not asked in."""

    def __init__(self) -> None:
        self._turn = False

    def gamma(self, most: int) -> int:
        self._turn = not self._turn
        return most if self._turn else 0


def test_a_drafter_with_a_cache_outlives_rounds_without_a_draft() -> None:
    length = Alternating()
    result = run(PROMPT, shallow(length), rule="token", length=length)
    assert result.output == generate(PROMPT, NEW)
    assert [len(round_.nodes) > 0 for round_ in result.decoding[:6]] == [True, False] * 3


def test_the_loop_tells_every_round_but_the_prefill() -> None:
    length = Noting()
    result = run(PROMPT, Copyist(len(PROMPT), spoiled(generate(PROMPT, NEW), 3)), length=length)
    assert [(told.depth, told.accepted) for told in length.rounds] == [
        (len(round_.nodes), len(round_.path)) for round_ in result.decoding
    ]
    assert all(told.verify_ms == round_.ms.verify for told, round_ in zip(length.rounds, result.decoding, strict=True))


def test_the_heuristic_shapes_the_rounds() -> None:
    own = generate(PROMPT, NEW)
    right = run(PROMPT, Copyist(len(PROMPT), own), length=Heuristic())
    wrong = run(PROMPT, Copyist(len(PROMPT), spoiled(own, 1)), length=Heuristic())
    assert [len(round_.nodes) for round_ in right.decoding][:3] == [4, 4, 4]
    assert [len(round_.nodes) for round_ in wrong.decoding][:6] == [4, 3, 2, 1, 1, 1]


def test_a_doubtful_token_stays_and_is_judged_and_nothing_is_drafted_behind_it() -> None:
    warp = Warp(temperature=1.5)
    length = Confident(0.6)
    result = run(PROMPT, shallow(length, warp), rule="token", warp=warp, seed=4, length=length)
    short = [round_ for round_ in result.decoding[:-2] if 0 < len(round_.nodes) < 4]
    assert short
    for round_ in short:
        *sure, last = (node.q_raw for node in round_.nodes)
        assert last is not None
        assert last < 0.6
        assert all(q is not None and q >= 0.6 for q in sure)
    assert any(round_.nodes[-1].status == "accepted" for round_ in short)


def test_at_temperature_zero_a_drafter_still_has_doubts() -> None:
    length = Noting()
    result = run(PROMPT, shallow(length), rule="token", length=length)
    assert {node.q for round_ in result.rounds for node in round_.nodes} == {1.0}
    assert length.qs
    assert min(length.qs) < 1.0


def test_a_lookup_never_stops_for_doubt() -> None:
    whole = run(PROMPT, lookup(PROMPT))
    doubting = run(PROMPT, lookup(PROMPT), length=Confident(1.1))
    assert [round_.nodes for round_ in whole.rounds] == [round_.nodes for round_ in doubting.rounds]


# ---------------------------------------------------------------- the law


def stopped(threshold: Fraction) -> Callable[[Sequence[int]], Proposal]:
    """Chains on `law.CHAIN` that end behind a token whose q is below the threshold."""
    whole = law.soft_rows(law.CHAIN)

    def propose(drafts: Sequence[int]) -> Proposal:
        doubt = law.CHAIN.q[law.CHAIN.start][drafts[0]] < threshold
        return whole(drafts).only(range(1 if doubt else 2))

    return propose


def test_stopping_behind_a_doubtful_token_keeps_the_law_exactly() -> None:
    emitted = law.emitted_law(law.CHAIN, RULES["token"].judge, 2, stopped(Fraction(1, 3)), False, 4)
    assert law.compare_exact("", emitted, law.CHAIN.target_law(3)).passed


def marginals(emitted: law.Law, tokens: int) -> list[float]:
    return [sum(mass for text, mass in emitted.items() if text[0] == first) for first in range(tokens)]


def test_dropping_a_token_for_its_own_low_q_bends_the_law_as_worked_by_hand() -> None:
    # algorithms §13.3: q = (.2, .5, .3) and a threshold between .2 and .3.
    propose = law.dropped(law.WORKED, Fraction(1, 4))
    emitted = law.emitted_law(law.WORKED, RULES["token"].judge, 1, propose, False, 30)
    assert marginals(emitted, 3) == pytest.approx([0.4, 0.36, 0.24])
    assert not law.compare_exact("", emitted, law.WORKED.target_law(2)).passed


def test_a_scheduler_that_looks_back_bends_the_law_and_one_that_stops_at_the_first_drop_does_not() -> None:
    # algorithms §13.7.
    back, early = (
        law.emitted_law(law.SCHEDULED, RULES["token"].judge, 2, law.scheduled(looks_back), False, 10)
        for looks_back in (True, False)
    )
    assert marginals(back, 2) == pytest.approx([0.85, 0.15])
    assert not law.compare_exact("", back, law.SCHEDULED.target_law(3)).passed
    assert law.compare_exact("", early, law.SCHEDULED.target_law(3)).passed


def test_every_planted_fault_is_found() -> None:
    planted = law.planted(law.FEWEST_ROUNDS)
    assert len({test.name for test in planted}) == len(planted) == 6
    assert not any(test.passed for test in planted)


@pytest.mark.parametrize("name", VARYING)
@pytest.mark.parametrize(("drafter", "rule", "options"), LENGTHS_UNDER, ids=[under[0] for under in LENGTHS_UNDER])
def test_every_policy_keeps_the_law(name: str, drafter: str, rule: str, options: dict[str, int]) -> None:
    length, gammas = LENGTHS[name](), set[int]()

    class Watched:
        def gamma(self, most: int) -> int:
            gamma = length.gamma(most)
            gammas.add(gamma - most)
            return gamma

        def stops(self, q: float) -> bool:
            return length.stops(q)

        def observe(self, round_: Drafted) -> None:
            length.observe(round_)

    assert sample_tiny(families()[drafter], rule, options, law.FEWEST_ROUNDS, length=Watched).passed
    # A policy that asked for the same each time would have shown nothing.
    assert len(gammas) > 1 or name == "confident"


def test_stopping_for_doubt_keeps_the_law_of_a_block_too() -> None:
    assert sample_tiny(
        families()["early_exit"], "block", {"layers": 2}, law.FEWEST_ROUNDS, length=lambda: Confident(0.5)
    ).passed
