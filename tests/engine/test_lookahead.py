"""Lookahead: what rides along in a pass, the window against the published code's loop, and the drafts of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.drafters.lookahead import FAMILY, Lookahead, Pool
from spec_viz.drafters.registry import Setup
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import ROOT, Drafter, Needs, Outcome, Proposal, Seen
from spec_viz.engine.target import CachedModel
from spec_viz.lab.law_tiny import sample_tiny
from tests.engine.tiny import GREEDY, VOCABULARY, collect, direct, generate, model, never, prompts, run

DRAWS = Draws(0, 1, 1)
# Small logits of a float64 model, compared in float32.
close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)


def drafter(ends: frozenset[int] = frozenset(), **options: Any) -> Lookahead:
    setup = Setup(CachedModel(model()), None, lambda _: [], 0, ends, GREEDY)  # type: ignore[arg-type]
    made = FAMILY.build(setup, FAMILY.options(options))
    assert isinstance(made, Lookahead)
    return made


# ---------------------------------------------------------------- extras in the engine's pass

CONTEXT = [3, 1, 4, 1, 5, 9, 2, 6]
TREES = [
    Proposal((), extra=((7, ROOT), (8, 0), (9, 1))),
    Proposal((10, 11), extra=((7, ROOT), (8, 0), (9, ROOT), (12, 0), (13, 1))),
    Proposal((10, 11, 12, 13), parents=(ROOT, ROOT, 0, 1), extra=((7, ROOT), (8, 0), (9, ROOT), (10, 2))),
    Proposal((10, 11, 12), parents=(ROOT, 0, ROOT)),
]


def path_of_extra(extra: Sequence[tuple[int, int]], place: int) -> list[int]:
    token, parent = extra[place]
    return [*([] if parent == ROOT else path_of_extra(extra, parent)), token]


@pytest.mark.parametrize("proposal", TREES)
def test_every_row_of_a_pass_is_that_of_a_plain_pass_over_its_own_path(proposal: Proposal) -> None:
    target = CachedModel(model())
    target.prefill(CONTEXT[:-1])
    logits, seen = target.verify(CONTEXT[-1], proposal, Needs(logits=True))
    paths = [[proposal.tokens[step] for step in proposal.path(node)] for node in range(ROOT, len(proposal))]
    every = paths + [path_of_extra(proposal.extra, place) for place in range(len(proposal.extra))]
    assert seen.logits is not None
    assert len(logits) == len(paths)
    assert len(seen.logits) == len(every)
    for row, path in zip(seen.logits, every, strict=True):
        close(row, direct([*CONTEXT, *path])[-1])
    torch.testing.assert_close(logits, seen.logits[: len(paths)], rtol=0, atol=0)


@pytest.mark.parametrize("proposal", TREES)
def test_nothing_of_the_extras_stays_in_the_cache(proposal: Proposal) -> None:
    for node in range(ROOT, len(proposal)):
        path = proposal.path(node)
        target = CachedModel(model())
        target.prefill(CONTEXT[:-1])
        before = target.length
        target.verify(CONTEXT[-1], proposal)
        assert target.length == before + 1 + len(proposal) + len(proposal.extra)
        target.roll_back(before + 1, path)
        kept = [proposal.tokens[step] for step in path]
        assert target.length == before + 1 + len(kept)
        # Whatever comes next sees the kept tokens alone.
        after, _ = target.verify(20, Proposal((21, 22), extra=((23, ROOT),)))
        close(after, direct([*CONTEXT, *kept, 20, 21, 22])[-3:])


def test_drafts_are_judged_the_same_with_and_without_extras() -> None:
    bare, laden = CachedModel(model()), CachedModel(model())
    for target in (bare, laden):
        target.prefill(CONTEXT[:-1])
    alone, _ = bare.verify(CONTEXT[-1], Proposal((10, 11, 12), parents=(ROOT, 0, ROOT)))
    beside, _ = laden.verify(
        CONTEXT[-1], Proposal((10, 11, 12), parents=(ROOT, 0, ROOT), extra=((7, ROOT), (8, 0), (9, 1)))
    )
    close(alone, beside)


# ---------------------------------------------------------------- the window


class Published:
    """The window and the pool as hao-ai-lab/LookaheadDecoding moves them (`jacobi_greedy_search_multilevel`).

    LEVEL is n, WINDOW_SIZE w, GUESS_SET_SIZE g; `past` are its past_tokens, `pool` its token_map. Each guess is the
    argmax of a plain pass over the tokens that its attention mask lets it see.
    """

    def __init__(self, first: list[int], w: int, n: int, g: int) -> None:
        self.w, self.n, self.g = w, n, g
        self.past: list[list[int] | None] = [first, *([None] * (n - 2))]
        self.pool: dict[int, list[tuple[int, ...]]] = {}

    def step(self, context: Sequence[int]) -> None:
        levels = [level for level in self.past if level is not None]
        chain = [context[-1], *levels[0]]
        last = levels[-1] if len(levels) > 1 else chain
        results = []
        for column in range(len(last)):
            sees = [*context[:-1], *chain[: column + 1], *(level[column] for level in levels[1:])]
            results.append(int(direct(sees)[-1].argmax()))
        if self.past[1] is None:
            self.past[0] = levels[0][1:]
            self.past[1] = results[1:]
        elif self.past[self.n - 2] is None:
            for index, level in enumerate(levels):
                self.past[index] = level[1:]
            self.past[len(levels)] = results[1:]
        else:
            for column in range(self.w):
                rest = (*(level[column] for level in levels[1:]), results[column])
                known = self.pool.setdefault(chain[column], [])
                if rest in known:
                    known.remove(rest)
                known.append(rest)
                self.pool[chain[column]] = known[-self.g :]
            self.past = [levels[1][1:], *levels[2:], results]


@pytest.mark.parametrize(("w", "n", "g"), [(5, 4, 4), (2, 3, 1), (4, 5, 2)])
def test_window_and_pool_move_as_in_the_published_code(w: int, n: int, g: int) -> None:
    prompt = prompts(1)[0]
    made = drafter(window=w, ngram=n, guesses=g)
    sent: list[Proposal] = []

    class Overheard:
        needs = made.needs
        cache_length = made.cache_length
        observe = made.observe
        close = made.close

        def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
            sent.append(made.propose(context, gamma, draws))
            return sent[-1]

    settings = Settings(gamma=8, max_new_tokens=24)
    result = collect(prompt, decode(CachedModel(model()), Overheard(), prompt, settings, never))
    assert result.output == generate(prompt, 24)
    published = Published([token for token, _ in sent[0].extra], w, n, g)
    assert len(sent[0].extra) == w + n - 3
    drafted = 0
    for proposal, (context, _) in zip(sent, result.starts(), strict=False):
        window = [token for level in published.past if level is not None for token in level]
        assert [token for token, _ in proposal.extra] == window
        expected = {rest[: 24 - (len(context) - len(prompt)) - 1] for rest in published.pool.get(context[-1], [])}
        paths = {
            tuple(proposal.tokens[step] for step in proposal.path(node))
            for node in range(len(proposal))
            if not proposal.children(node)
        }
        assert paths == expected
        drafted += len(paths)
        published.step(context)
    assert drafted > 0
    assert len(sent[-1].extra) == w * (n - 1) - 1


def test_the_window_begins_with_tokens_of_the_text_drawn_by_key() -> None:
    text = [3, 1, 4]
    extra = drafter().propose(text, 4, DRAWS).extra
    assert {token for token, _ in extra} <= set(text)
    assert [parent for _, parent in extra] == list(range(ROOT, len(extra) - 1))
    assert drafter().propose(text, 4, DRAWS).extra == extra


def test_a_round_without_a_draft_does_not_move_the_window() -> None:
    made = drafter()
    before = made.propose([3, 1, 4], 4, DRAWS).extra
    made.observe(Outcome((), [3, 1, 4, 5], Seen(torch.zeros(1 + len(before), VOCABULARY))))
    after = made.propose([3, 1, 4, 5], 4, DRAWS).extra
    assert after != before
    lazy = drafter()
    lazy.propose([3, 1, 4], 4, DRAWS)
    lazy.observe(Outcome((), [3, 1, 4, 5], Seen(torch.zeros(1 + len(before), VOCABULARY))))
    lazy.observe(Outcome((), [3, 1, 4, 5, 9], Seen(torch.zeros(1, VOCABULARY))))
    assert lazy.propose([3, 1, 4, 5, 9], 4, DRAWS).extra == after


# ---------------------------------------------------------------- the pool


def test_the_pool_keeps_the_youngest_of_each_first_token() -> None:
    pool = Pool(2)
    for round_, gram in enumerate([(1, 2, 3), (1, 4, 5), (1, 2, 3), (1, 6, 7), (8, 9, 9)]):
        pool.collect(gram, round_)
    assert pool.behind(1) == [((6, 7), 3), ((2, 3), 2)]
    assert pool.behind(8) == [((9, 9), 4)]
    assert pool.behind(2) == []


def told(text: Sequence[int], **options: Any) -> Lookahead:
    """A drafter whose pool holds the n-grams of a text."""
    made = drafter(pool="text", **options)
    made.observe(Outcome((), text, Seen(torch.zeros(1, VOCABULARY))))
    return made


def test_n_grams_with_a_common_beginning_share_their_nodes() -> None:
    text = [1, 2, 3, 4, 1, 2, 3, 5, 1, 6, 7, 8, 1]
    proposal = told(text, ngram=4).propose(text, 4, DRAWS)
    # The youngest n-gram stands first: 1 6 7 8, then 1 2 3 5, of which 1 2 3 4 shares the beginning.
    assert proposal.tokens == (6, 7, 8, 2, 3, 5, 4)
    assert proposal.parents == (ROOT, 0, 1, ROOT, 3, 4, 4)
    assert [why["ngram"] for why in proposal.why if why] == [[1, 6, 7, 8]] * 3 + [[1, 2, 3, 5]] * 3 + [[1, 2, 3, 4]]
    assert [why["age"] for why in proposal.why if why] == [0] * 7


def test_the_text_is_collected_once_as_it_grows() -> None:
    text = [1, 2, 3]
    made = told(text, ngram=3)
    assert made.propose([*text, 1], 4, DRAWS).tokens == (2, 3)
    made.observe(Outcome((), [*text, 1, 9, 9], Seen(torch.zeros(1 + 5 + 3 - 3, VOCABULARY))))
    proposal = made.propose([*text, 1, 9, 9, 1], 4, DRAWS)
    assert proposal.tokens == (9, 9, 2, 3)
    assert [why["age"] for why in proposal.why if why] == [1, 1, 1, 1]


def test_nothing_is_drafted_behind_an_end_of_text_or_deeper_than_gamma() -> None:
    text = [1, 2, 3, 4, 1]
    made = drafter(ends=frozenset([3]), pool="text", ngram=4)
    made.observe(Outcome((), text, Seen(torch.zeros(1, VOCABULARY))))
    assert made.propose(text, 4, DRAWS).tokens == (2, 3)
    assert told(text, ngram=4).propose(text, 1, DRAWS).tokens == (2,)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.integers(1, 12),
    st.integers(2, 8),
    st.integers(3, 5),
    st.integers(1, 8),
)
def test_drafts_are_valid_trees_within_their_measure(
    text: list[int], gamma: int, window: int, ngram: int, guesses: int
) -> None:
    proposal = told(text, window=window, ngram=ngram, guesses=guesses).propose(text, gamma, DRAWS)
    assert len(proposal) <= guesses * (ngram - 1) <= 64
    assert max(proposal.depths, default=0) <= min(gamma, ngram - 1)
    assert len(proposal.why) == len(proposal)
    for at in range(ROOT, len(proposal)):
        siblings = [proposal.tokens[child] for child in proposal.children(at)]
        assert len(set(siblings)) == len(siblings)
    for node, why in enumerate(proposal.why):
        assert why is not None
        path = [text[-1], *(proposal.tokens[step] for step in proposal.path(node))]
        assert why["ngram"][: len(path)] == path


# ---------------------------------------------------------------- whole runs


@pytest.mark.parametrize("options", [{}, {"pool": "text"}, {"window": 2, "ngram": 3, "guesses": 1}])
@pytest.mark.parametrize("gamma", [1, 4])
def test_greedy_writes_what_transformers_writes(options: dict[str, Any], gamma: int) -> None:
    kept = 0
    for prompt in prompts(3):
        result = run(prompt, drafter(**options), gamma=gamma)
        assert result.output == generate(prompt, 24)
        kept += sum(len(round_.path) for round_ in result.rounds)
    assert kept > 0


def test_the_cache_holds_no_more_than_what_is_committed() -> None:
    prompt = prompts(1)[0]
    result = run(prompt, drafter())
    committed = len(prompt)
    for round_ in result.rounds:
        committed += len(round_.committed)
        assert round_.kv.target is not None
        assert round_.kv.target[-1] == committed - 1


@pytest.mark.parametrize("options", [{}, {"pool": "text", "ngram": 3, "window": 3}])
def test_the_law_is_the_target_s(options: dict[str, Any]) -> None:
    assert sample_tiny(FAMILY, "match", options, 1_500).passed


def test_the_drafter_is_one_by_protocol() -> None:
    made: Drafter = drafter()
    assert made.cache_length is None
    assert made.needs == Needs(logits=True)
