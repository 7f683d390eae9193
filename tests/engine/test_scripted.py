"""Scripted drafts: parts, how they go on, and what ends them."""

from typing import Any

import pytest

from spec_viz.drafters.registry import Setup, families
from spec_viz.drafters.scripted import Scripted
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Outcome
from spec_viz.engine.warp import Warp
from tests.engine.tiny import generate, prompts, run

DRAWS = Draws(0, 1, 1)


def play(drafter: Scripted, gamma: int, *verdicts: tuple[int, int]) -> list[tuple[int, ...]]:
    """The drafts of every round when each keeps so many drafts and then the target writes a token of its own."""
    context, drafted = [99], []
    for accepted, own in verdicts:
        tokens = drafter.propose(context, gamma, DRAWS).tokens
        drafted.append(tokens)
        context = [*context, *tokens[:accepted], own]
        drafter.observe(Outcome(tuple(range(accepted)), context))
    return drafted


def test_a_part_a_round() -> None:
    assert play(Scripted([[1, 2], [3], [4, 5]]), 4, (1, 9), (1, 9), (0, 9), (0, 9)) == [(1, 2), (3,), (4, 5), ()]


def test_a_long_part_goes_on_where_the_target_follows_it_to_the_letter() -> None:
    # All drafts are kept and the target's own token is the next letter: the part goes on behind it.
    assert play(Scripted([[1, 2, 3, 4, 5, 6], [7]]), 2, (2, 3), (2, 6), (1, 9)) == [(1, 2), (4, 5), (7,)]


def test_a_long_part_ends_where_the_target_leaves_it() -> None:
    assert play(Scripted([[1, 2, 3, 4, 5], [7]]), 2, (2, 9), (0, 9)) == [(1, 2), (7,)]
    assert play(Scripted([[1, 2, 3, 4, 5], [7]]), 2, (1, 9), (0, 9)) == [(1, 2), (7,)]
    assert play(Scripted([[1, 2, 3, 4, 5], [7]]), 2, (0, 9), (0, 9)) == [(1, 2), (7,)]


def test_a_part_that_the_target_finishes_itself_is_over() -> None:
    assert play(Scripted([[1, 2, 3], [7]]), 2, (2, 3), (0, 9)) == [(1, 2), (7,)]


def test_empty_parts_are_no_rounds() -> None:
    assert play(Scripted([[], [1], [], [2]]), 4, (1, 9), (1, 9), (0, 9)) == [(1,), (2,), ()]
    assert play(Scripted([]), 4, (0, 9)) == [()]


def test_the_prefill_and_a_round_without_a_proposal_use_no_part_up() -> None:
    drafter = Scripted([[1, 2]])
    drafter.observe(Outcome((), [5, 6]))
    assert drafter.propose([5, 6], 4, DRAWS).tokens == (1, 2)
    drafter.observe(Outcome((), [5, 6, 7]))
    drafter.observe(Outcome((), [5, 6, 7, 8]))
    assert drafter.propose([5, 6, 7, 8], 4, DRAWS).tokens == ()


def test_a_script_splits_at_bars_and_is_encoded_part_by_part() -> None:
    encoded = {" in": [1], " Hà Nội": [2, 3], "": []}
    setup: Any = Setup(None, None, encoded.__getitem__, 1, frozenset(), Warp())  # type: ignore[arg-type]
    drafter = families()["scripted"].build(setup, {"script": " in|| Hà Nội"})
    assert isinstance(drafter, Scripted)
    assert play(drafter, 4, (0, 9), (0, 9), (0, 9)) == [(1,), (2, 3), ()]


@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_a_script_of_the_target_s_own_text_is_accepted_whole(gamma: int) -> None:
    prompt = prompts(1)[0]
    text = generate(prompt, 20)
    # The first token comes from the prefill, so the script begins after it.
    result = run(prompt, Scripted([text[1:]]), gamma=gamma, max_new_tokens=20)
    assert result.output == text
    assert {node.status for round_ in result.rounds for node in round_.nodes} == {"accepted"}
    assert [len(round_.nodes) for round_ in result.decoding[:-1]] == [gamma] * (len(result.decoding) - 1)
