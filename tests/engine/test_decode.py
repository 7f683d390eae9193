"""The loop against transformers' own generate, and its book-keeping against the formulas of algorithms §1.6."""

import gc
import weakref
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, cast

import pytest
import torch

from spec_viz.drafters.none import NoDrafter, Stateless
from spec_viz.drafters.scripted import Scripted
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import NOTHING, Drafter, Outcome, Pending, Proposal
from spec_viz.engine.target import CachedModel
from spec_viz.engine.trace import Finish, Round
from spec_viz.engine.warp import Warp
from tests.engine.tiny import (
    GREEDY,
    LAYERS,
    LOOKUPS,
    VOCABULARY,
    Copyist,
    Result,
    collect,
    direct,
    early_exit,
    generate,
    lookup,
    model,
    never,
    prompts,
    run,
    spoiled,
    stop_at,
)

NEW = 20
PROMPTS = prompts(3)
WARM = Warp(temperature=0.9, top_k=40, top_p=0.95)


def scripts(text: Sequence[int], gamma: int) -> Scripted:
    """Parts of uneven lengths cut from a half right text, so that some end inside a round and some outlast it."""
    wrong = spoiled(text, 5)
    return Scripted([wrong[i : i + 1 + i % (gamma + 3)] for i in range(0, len(wrong), 3)])


# ---------------------------------------------------------------- greedy identity


def test_plain_decoding_is_transformers_greedy_generate() -> None:
    for prompt in PROMPTS:
        assert run(prompt, max_new_tokens=NEW).output == generate(prompt, NEW)


@pytest.mark.parametrize("variant", LOOKUPS)
@pytest.mark.parametrize("gamma", [1, 6])
def test_greedy_prompt_lookup_is_transformers_greedy_generate(gamma: int, variant: tuple[str, str, str]) -> None:
    kept = 0
    for prompt in PROMPTS[::2]:
        result = run(prompt, lookup(prompt, *variant), gamma=gamma, max_new_tokens=NEW)
        assert result.output == generate(prompt, NEW)
        kept += accepted(result)
    if variant[2] == "all":
        assert kept > 0


@pytest.mark.parametrize("layers", [1, LAYERS - 1, LAYERS])
@pytest.mark.parametrize("gamma", [1, 5])
def test_greedy_early_exit_is_transformers_greedy_generate(gamma: int, layers: int) -> None:
    for prompt in PROMPTS[:2]:
        result = run(prompt, early_exit(layers), gamma=gamma, max_new_tokens=NEW, rule="token")
        assert result.output == generate(prompt, NEW)


@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_greedy_scripted_drafts_leave_generate_s_text(gamma: int) -> None:
    for prompt in PROMPTS:
        text = generate(prompt, NEW)
        for drafter in (scripts(text[1:], gamma), Copyist(len(prompt), spoiled(text, 4)), Copyist(len(prompt), text)):
            assert run(prompt, drafter, gamma=gamma, max_new_tokens=NEW).output == text


@pytest.mark.parametrize("rule", ["match", "token"])
def test_a_repetition_penalty_follows_the_hypothetical_prefix(rule: str) -> None:
    for prompt in PROMPTS[:1]:
        text = generate(prompt, NEW, repetition_penalty=1.4)
        assert text != generate(prompt, NEW)
        warp = Warp(repetition_penalty=1.4)
        drafters: list[Drafter] = [lookup(prompt), Copyist(len(prompt), text), Copyist(len(prompt), spoiled(text, 4))]
        for drafter in drafters:
            assert run(prompt, drafter, warp=warp, rule=rule, max_new_tokens=NEW).output == text
        assert run(prompt, early_exit(2, warp), warp=warp, rule="token", max_new_tokens=NEW).output == text


# ---------------------------------------------------------------- keyed draws


@pytest.mark.parametrize(("seed", "prompt"), [(0, PROMPTS[0]), (2**53 - 1, PROMPTS[1])])
def test_every_one_hot_drafter_writes_the_baseline_s_own_text(seed: int, prompt: list[int]) -> None:
    shared: dict[str, Any] = {"warp": WARM, "seed": seed, "max_new_tokens": NEW}
    text = run(prompt, **shared).output
    drafters: list[Drafter] = [
        *(lookup(prompt, *variant) for variant in LOOKUPS),
        scripts(text[1:], 4),
        Copyist(len(prompt), spoiled(text, 3)),
    ]
    for drafter in drafters:
        assert run(prompt, drafter, gamma=5, **shared).output == text


def test_another_seed_writes_another_text_and_the_same_seed_the_same_rounds() -> None:
    def once(seed: int) -> Result:
        drafter = early_exit(2, WARM)
        return run(PROMPTS[0], drafter, warp=WARM, rule="token", seed=seed)

    assert untimed(once(1)) == untimed(once(1))
    assert once(1).output != once(2).output


# ---------------------------------------------------------------- caches


def expected_kv(result: Result, drafter_caches: bool) -> list[Any]:
    """Cache lengths before, at the peak and after, by algorithms §1.6 alone."""
    rows: list[Any] = []
    full = False
    for committed, round_ in result.starts():
        length, drafted = len(committed), len(round_.nodes)
        then = length + len(round_.committed)
        target = (length - 1, length + drafted, then - 1)
        if drafter_caches:
            # d_γ was drawn, not fed: after a round that kept every draft the drafter lacks one entry more.
            before = length - 2 if full else length - 1
            peak = length + drafted - 1 if drafted else before
            rows.append((target, (before, peak, min(peak, then - 1))))
        else:
            rows.append((target, None))
        full = drafted > 0 and len(round_.path) == drafted
    return rows


def cache_rows(result: Result) -> list[Any]:
    return [(round_.kv.target, round_.kv.drafter) for round_ in result.decoding]


def test_cache_lengths_of_a_drafter_without_a_cache() -> None:
    for prompt in PROMPTS:
        text = generate(prompt, NEW)
        for drafter in (NoDrafter(), lookup(prompt), Copyist(len(prompt), spoiled(text, 5))):
            result = run(prompt, drafter, max_new_tokens=NEW)
            assert result.rounds[0].kv.target == (0, len(prompt), len(prompt))
            assert cache_rows(result) == expected_kv(result, drafter_caches=False)


@pytest.mark.parametrize("layers", [LAYERS - 1, LAYERS])
@pytest.mark.parametrize("gamma", [1, 3])
def test_cache_lengths_of_a_drafter_with_a_cache(gamma: int, layers: int) -> None:
    for prompt in PROMPTS:
        result = run(prompt, early_exit(layers, WARM), warp=WARM, rule="token", gamma=gamma, max_new_tokens=NEW)
        assert result.rounds[0].kv.drafter == (0, 0, len(prompt))
        assert cache_rows(result) == expected_kv(result, drafter_caches=True)
        fully = [round_ for round_ in result.decoding if round_.nodes and len(round_.path) == len(round_.nodes)]
        assert fully or layers < LAYERS


# ---------------------------------------------------------------- p and q are what they say


def largest_error(result: Result, warp: Warp, layers: int | None = None) -> float:
    """How far p (or q, of a drafter of so many layers) in the rounds is from plain passes over the whole prefix."""
    errors = [0.0]
    for committed, round_ in result.starts():
        drafts = [node.id for node in round_.nodes if node.id is not None]
        logits = direct([*committed, *drafts], layers or LAYERS)[len(committed) - 1 :]
        for place, node in enumerate(round_.nodes):
            prefix = [*committed, *drafts[:place]]
            law, raw = warp.law(logits[place : place + 1], prefix)[0], logits[place].softmax(-1)
            seen, seen_raw, tops = (
                (node.p, node.p_raw, node.p_top) if layers is None else (node.q, node.q_raw, node.q_top)
            )
            assert seen is not None
            assert seen_raw is not None
            assert node.id is not None
            errors += [abs(seen - float(law[node.id])), abs(seen_raw - float(raw[node.id]))]
            errors += [abs(probability - float(law[token])) for token, probability in tops or ()]
        if layers is None and round_.emitted is not None:
            place = len(round_.path)
            law = warp.law(logits[place : place + 1], [*committed, *drafts[:place]])[0]
            assert round_.emitted.p is not None
            errors.append(abs(round_.emitted.p - float(law[round_.emitted.id])))
    return max(errors)


PENALISED = Warp(temperature=0.9, top_p=0.9, repetition_penalty=1.2)


@pytest.mark.parametrize("warp", [Warp(temperature=1.0), WARM, PENALISED])
def test_p_in_the_rounds_is_a_plain_pass_s(warp: Warp) -> None:
    for prompt in PROMPTS[:2]:
        text = run(prompt, warp=warp, seed=3).output
        result = run(prompt, Copyist(len(prompt), spoiled(text, 4)), warp=warp, seed=3)
        assert any(node.status == "discarded" for round_ in result.rounds for node in round_.nodes)
        assert largest_error(result, warp) < 5e-6


@pytest.mark.parametrize("layers", [LAYERS - 1, LAYERS])
@pytest.mark.parametrize("warp", [Warp(temperature=1.0), PENALISED])
def test_q_in_the_rounds_is_a_plain_pass_s(warp: Warp, layers: int) -> None:
    result = run(PROMPTS[0], early_exit(layers, warp), warp=warp, rule="token", seed=5)
    assert largest_error(result, warp, layers) < 5e-6
    assert largest_error(result, warp) < 5e-6


class Forgetful:
    """An early exit that feeds only the last token: the entry that a fully accepted round lacks is never made up."""

    needs = NOTHING

    def __init__(self, warp: Warp) -> None:
        self._inner = early_exit(LAYERS, warp)
        self._warp = warp

    @property
    def cache_length(self) -> int | None:
        return self._inner.cache_length

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal | Pending:
        known = self._inner.cache_length or 0
        return self._inner.propose([*context[:known], context[-1]], gamma, draws)

    def observe(self, outcome: Outcome) -> None:
        self._inner.observe(outcome)

    def close(self) -> None:
        self._inner.close()


def test_a_drafter_that_forgets_the_missing_entry_is_caught_by_its_q() -> None:
    warp = Warp(temperature=1.0)
    result = run(PROMPTS[0], Forgetful(warp), warp=warp, rule="token", seed=5)
    assert largest_error(result, warp, LAYERS) > 0.01


def test_a_drafter_with_the_target_s_own_law_is_always_accepted() -> None:
    warp = Warp(temperature=1.0)
    result = run(PROMPTS[0], early_exit(LAYERS, warp), warp=warp, rule="token", gamma=3, max_new_tokens=21)
    assert [len(round_.committed) for round_ in result.rounds] == [1, *[4] * 5]
    assert {round_.emitted.kind for round_ in result.decoding if round_.emitted} == {"bonus"}


# ---------------------------------------------------------------- how a run ends


@pytest.mark.parametrize("gamma", range(1, 13))
def test_max_new_tokens_is_met_exactly(gamma: int) -> None:
    prompt = PROMPTS[0]
    text = generate(prompt, 14)
    for new in (1, 2, 3, gamma, gamma + 1, gamma + 2, 14):
        for drafter in (Copyist(len(prompt), text), Copyist(len(prompt), spoiled(text, 3))):
            result = run(prompt, drafter, gamma=gamma, max_new_tokens=new)
            assert result.output == text[:new]
            assert result.finish == "length"
            assert all(len(round_.nodes) <= gamma for round_ in result.rounds)
    exits = run(prompt, early_exit(LAYERS), gamma=gamma, max_new_tokens=14, rule="token")
    assert exits.output == text


def end_of(text: Sequence[int], place: int) -> int:
    """The token at `place`, which must be the first of its kind in the text."""
    assert text.index(text[place]) == place
    return text[place]


def first_new(text: Sequence[int], after: int) -> int:
    """The first place behind `after` whose token has not been before."""
    return next(place for place in range(after, len(text)) if text.index(text[place]) == place)


def test_an_end_of_text_among_accepted_drafts_ends_the_run_without_a_bonus() -> None:
    prompt = PROMPTS[0]
    text = generate(prompt, NEW)
    place = first_new(text, 3)
    end = end_of(text, place)
    assert generate(prompt, NEW, eos_token_id=end) == text[: place + 1]
    for gamma in range(place, 13):
        result = run(prompt, Copyist(len(prompt), text), gamma=gamma, max_new_tokens=NEW, ends=frozenset({end}))
        assert result.output == text[: place + 1]
        assert result.finish == "eos"
        last = result.rounds[-1]
        assert last.emitted is None
        assert [node.status for node in last.nodes] == ["accepted"] * place
        assert last.nodes[-1].id == end
        # All of it was fed, the end included, and nothing had to go.
        assert last.kv.target == (len(prompt), len(prompt) + place + 1, len(prompt) + place + 1)


def test_an_end_of_text_as_correction_or_bonus_or_first_token_is_emitted() -> None:
    prompt = PROMPTS[0]
    text = generate(prompt, NEW)
    place = first_new(text, 3)
    end = frozenset({end_of(text, place)})
    wrong = [*text[:place], (text[place] + 1) % VOCABULARY, *text[place + 1 :]]
    for draft, gamma, kind in ((wrong, 12, "correction"), (text, place - 1, "bonus"), ([], 4, "plain")):
        result = run(prompt, Copyist(len(prompt), draft), gamma=gamma, max_new_tokens=NEW, ends=end)
        assert result.output == text[: place + 1]
        assert result.finish == "eos"
        emitted = result.rounds[-1].emitted
        assert emitted is not None
        assert (emitted.kind, emitted.id) == (kind, text[place])
    result = run(prompt, Copyist(len(prompt), text), max_new_tokens=NEW, ends=frozenset({text[0]}))
    assert (result.output, result.finish, len(result.rounds)) == (text[:1], "eos", 1)


def test_a_rejected_end_of_text_does_not_end_the_run() -> None:
    prompt = PROMPTS[0]
    text = generate(prompt, NEW)
    end = next(token for token in range(VOCABULARY) if token not in text)
    draft = [*text[:3], end, *text[4:]]
    result = run(prompt, Copyist(len(prompt), draft), gamma=6, max_new_tokens=NEW, ends=frozenset({end}))
    assert (result.output, result.finish) == (text, "length")
    assert [node.status for node in result.rounds[1].nodes] == ["accepted", "accepted", "rejected"]


@pytest.mark.parametrize("warp", [GREEDY, WARM])
def test_an_end_of_text_stops_early_exit_where_it_stops_the_baseline(warp: Warp) -> None:
    prompt = PROMPTS[0]
    text = run(prompt, early_exit(LAYERS, warp), warp=warp, rule="token", gamma=6, max_new_tokens=NEW).output
    place = first_new(text, 2)
    result = run(
        prompt,
        early_exit(LAYERS, warp),
        warp=warp,
        rule="token",
        gamma=6,
        max_new_tokens=NEW,
        ends=frozenset({text[place]}),
    )
    assert (result.output, result.finish) == (text[: place + 1], "eos")


@pytest.mark.parametrize("gamma", [1, 4, 12])
def test_the_context_limit_ends_the_run_with_its_own_reason(gamma: int) -> None:
    small = model(positions=28)
    prompt = PROMPTS[0]
    text = generate(prompt, NEW)
    for drafter in (NoDrafter(), Copyist(len(prompt), text), lookup(prompt)):
        settings = Settings(gamma, NEW)
        result = collect(prompt, decode(CachedModel(small), drafter, prompt, settings, never))
        assert result.output == text[: 28 - len(prompt)]
        assert result.finish == "context"
        assert all(round_.kv.target and round_.kv.target[1] <= 28 for round_ in result.rounds)


def test_a_run_that_exactly_fills_the_context_ends_by_its_length() -> None:
    prompt = PROMPTS[0]
    result = collect(prompt, decode(CachedModel(model(positions=28)), NoDrafter(), prompt, Settings(4, 8), never))
    assert (len(result.output), result.finish) == (8, "length")


@pytest.mark.parametrize("asked", [0, 1, 3])
def test_a_stop_flag_is_honoured_before_the_next_round_and_keeps_what_was_made(asked: int) -> None:
    prompt = PROMPTS[0]
    target, drafter = CachedModel(model()), early_exit(2)
    settings = Settings(4, NEW, rule="token")
    result = collect(prompt, decode(target, drafter, prompt, settings, stop_at(asked)))
    assert result.finish == "stopped"
    assert len(result.rounds) == asked
    assert result.output == generate(prompt, NEW)[: len(result.output)]
    assert (target.length, drafter.cache_length) == (0, 0)


# ---------------------------------------------------------------- nothing is held, nothing is shared


def test_closing_the_generator_early_frees_both_caches() -> None:
    target, drafter = CachedModel(model()), early_exit(2)
    parts = decode(target, drafter, PROMPTS[0], Settings(4, NEW, rule="token"), never)
    for _ in range(3):
        next(parts)
    caches = [weakref.ref(each._cache) for each in (target, cast(CachedModel, drafter._model))]
    assert target.length > len(PROMPTS[0])
    parts.close()  # type: ignore[attr-defined]
    gc.collect()
    assert (target.length, drafter.cache_length) == (0, 0)
    assert [cache() for cache in caches] == [None, None]


class Breaking(Stateless):
    """Fails in the middle of a run."""

    closed = False

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        raise RuntimeError("out of ideas")

    def close(self) -> None:
        self.closed = True


def test_a_failure_frees_the_caches_and_is_passed_on() -> None:
    target, drafter = CachedModel(model()), Breaking()
    parts = decode(target, drafter, PROMPTS[0], Settings(4, NEW), never)
    assert isinstance(next(parts), Round)
    with pytest.raises(RuntimeError, match="out of ideas"):
        next(parts)
    assert target.length == 0
    assert drafter.closed


def test_a_rule_that_does_not_fit_the_drafts_is_refused() -> None:
    with pytest.raises(ValueError, match="'match' cannot judge sampled drafts"):
        run(PROMPTS[0], early_exit(2, WARM), warp=WARM, rule="match")


def test_two_interleaved_runs_are_the_two_runs_apart() -> None:
    def start(prompt: list[int], seed: int) -> Any:
        settings = Settings(4, NEW, WARM, "token", seed)
        return decode(CachedModel(model()), early_exit(2, WARM), prompt, settings, never)

    apart = [untimed(collect(prompt, start(prompt, seed))) for seed, prompt in enumerate(PROMPTS[:2])]
    together: tuple[list[Round | Finish], list[Round | Finish]] = ([], [])
    for pair in zip_longest(*(start(prompt, seed) for seed, prompt in enumerate(PROMPTS[:2]))):
        for parts, part in zip(together, pair, strict=True):
            if part is not None:
                parts.append(part)
    assert [untimed(collect(PROMPTS[i], iter(parts))) for i, parts in enumerate(together)] == apart


def test_a_prompt_of_one_token_decodes() -> None:
    for drafter, rule in ((NoDrafter(), "match"), (lookup([7]), "match"), (early_exit(2), "token")):
        assert run([7], drafter, rule=rule, max_new_tokens=NEW).output == generate([7], NEW)


def test_times_are_what_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr(CachedModel, "now", lambda _: float(next(ticks)))
    for round_ in run(PROMPTS[0], lookup(PROMPTS[0])).rounds:
        ms = round_.ms
        assert (ms.propose, ms.verify, ms.judge, ms.rollback) == (1000.0,) * 4


def accepted(result: Result) -> int:
    return sum(len(round_.path) for round_ in result.rounds)


def untimed(result: Result) -> Any:
    return result.finish, [(round_.nodes, round_.emitted, round_.kv) for round_ in result.rounds]


def test_no_gradient_is_kept() -> None:
    target = CachedModel(model())
    assert not target.prefill(PROMPTS[0])[0].requires_grad
    assert torch.is_inference_mode_enabled() is False
