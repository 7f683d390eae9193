"""Requests side by side write what each writes alone: the same text, verdicts, draws and cache lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from spec_viz.drafters.none import NoDrafter, Stateless
from spec_viz.engine.batch import Asked, Pass, decode_batch
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.draws import Draws
from spec_viz.engine.length import LENGTHS
from spec_viz.engine.proposal import Drafter, Drawn, Needs, Outcome, Pending, Proposal
from spec_viz.engine.rows import Rows
from spec_viz.engine.schedule import ByBatchSize, Goodput, Load, Schedule, Unlimited
from spec_viz.engine.target import CachedModel
from spec_viz.engine.trace import Finish, Ms, Round
from spec_viz.engine.warp import Warp
from tests.engine.tiny import (
    GREEDY,
    LAYERS,
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
    spoiled,
    stop_at,
)

NEW = 18
# Of uneven lengths, so that no two rows end at the same place.
PROMPTS = [prompt[: 5 + 3 * place] for place, prompt in enumerate(prompts(6, 24))]
WARM = Warp(temperature=0.9, top_k=20, top_p=0.95)

Build = Callable[[list[int]], Drafter]


def settings(place: int, rule: str, warp: Warp, **more: Any) -> Settings:
    """Requests that differ in seed, gamma and length."""
    return Settings(
        **{"gamma": 1 + place % 5, "max_new_tokens": NEW - place, "warp": warp, "rule": rule, "seed": place, **more}
    )


def together(
    asked: Sequence[Asked],
    size: int,
    stop: Callable[[], bool] = never,
    schedule: Schedule | None = None,
    target: Any = None,
) -> tuple[list[Result], list[Pass]]:
    passes = list(decode_batch(CachedModel(target or model()), asked, size, stop, schedule))
    rounds: list[list[Round]] = [[] for _ in asked]
    finish: dict[int, Finish] = {}
    for each in passes:
        for number, round_ in each.rounds.items():
            assert number not in finish
            rounds[number].append(round_)
        assert not finish.keys() & each.finished.keys()
        finish.update(each.finished)
    return [Result(list(a.prompt), rounds[n], finish[n]) for n, a in enumerate(asked)], passes


def alone(asked: Asked, target: Any = None) -> Result:
    return collect(
        asked.prompt, decode(CachedModel(target or model()), asked.drafter, asked.prompt, asked.settings, never)
    )


def untimed(result: Result) -> Any:
    return result.finish, [replace(round_, ms=Ms()) for round_ in result.rounds]


def requests(build: Build, rule: str, warp: Warp, **more: Any) -> list[Asked]:
    return [Asked(build(prompt), prompt, settings(place, rule, warp, **more)) for place, prompt in enumerate(PROMPTS)]


def copyist(prompt: list[int]) -> Drafter:
    return Copyist(len(prompt), spoiled(generate(prompt, NEW), 4))


def exit_of(warp: Warp, drawn: Drawn) -> Build:
    return lambda _: early_exit(LAYERS - 1, warp, drawn)


# ---------------------------------------------------------------- the same text


@pytest.mark.parametrize("size", [1, 2, 4, 6, 9])
def test_greedy_rows_are_transformers_greedy_generate(size: int) -> None:
    for build in (lambda _: NoDrafter(), lookup, copyist, exit_of(GREEDY, "one_hot")):
        results, _ = together(requests(build, "match", GREEDY), size)
        for place, result in enumerate(results):
            assert result.output == generate(result.prompt, NEW - place)
            assert result.finish == "length"


# None stands for a model that draws its drafts as `drawn` says.
CASES: list[tuple[str, Build | None, Drawn]] = [
    *(
        (rule, build, "one_hot")
        for rule in ("match", "token", "block", "typical", "synthetic")
        for build in (lookup, copyist)
    ),
    *((rule, None, "sampled") for rule in ("token", "block", "specinfer", "kseq", "ensemble", "typical", "synthetic")),
    ("without_replacement", None, "without_replacement"),
    ("match", None, "one_hot"),
]


@pytest.mark.parametrize("warp", [GREEDY, WARM, Warp(1.0, repetition_penalty=1.3)], ids=["greedy", "warm", "penalised"])
@pytest.mark.parametrize(("rule", "build", "drawn"), CASES)
def test_every_round_is_that_of_the_request_alone(rule: str, build: Build | None, drawn: Drawn, warp: Warp) -> None:
    make = build or exit_of(warp, drawn)
    results, _ = together(requests(make, rule, warp), 4)
    apart = [alone(asked) for asked in requests(make, rule, warp)]
    assert [untimed(result) for result in results] == [untimed(result) for result in apart]
    fates = [node.status for result in results for round_ in result.decoding for node in round_.nodes]
    assert "rejected" in fates
    # What a greedy target wrote before is seldom what a warm one draws.
    assert "accepted" in fates or (build and warp is not GREEDY)


def test_requests_of_different_kinds_share_a_pass() -> None:
    def mixed() -> list[Asked]:
        kinds: list[tuple[Drafter, str, Warp]] = [
            (NoDrafter(), "match", WARM),
            (lookup(PROMPTS[1]), "block", WARM),
            (early_exit(2, WARM), "token", WARM),
            (copyist(PROMPTS[3]), "match", GREEDY),
            (early_exit(1, GREEDY, "one_hot"), "match", GREEDY),
            (early_exit(LAYERS, WARM), "block", WARM),
        ]
        return [
            Asked(drafter, prompt, settings(place, rule, warp))
            for place, (prompt, (drafter, rule, warp)) in enumerate(zip(PROMPTS, kinds, strict=True))
        ]

    results, passes = together(mixed(), len(PROMPTS))
    assert [untimed(result) for result in results] == [untimed(alone(asked)) for asked in mixed()]
    assert max(len(each.rounds) for each in passes) == len(PROMPTS)


@pytest.mark.parametrize("policy", ["heuristic", "confident"])
def test_each_request_has_its_own_length(policy: str) -> None:
    def ask() -> list[Asked]:
        return [
            Asked(
                copyist(prompt) if place % 2 else early_exit(2, WARM),
                prompt,
                settings(place, "match" if place % 2 else "token", WARM, length=LENGTHS[policy](), gamma=5),
            )
            for place, prompt in enumerate(PROMPTS)
        ]

    assert [untimed(result) for result in together(ask(), 6)[0]] == [untimed(alone(asked)) for asked in ask()]


# ---------------------------------------------------------------- what drafters hear


class Listener(Stateless):
    """Copies a text, asks for the target's logits and some states, and keeps all it hears."""

    def __init__(self, inner: Drafter, needs: Needs) -> None:
        self._inner = inner
        self.needs = needs
        self.heard: list[tuple[tuple[int, ...], list[int], Tensor | None, dict[int, Tensor]]] = []

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal | Pending:
        return self._inner.propose(context, gamma, draws)

    def observe(self, outcome: Outcome) -> None:
        seen = outcome.seen
        self.heard.append((outcome.path, list(outcome.context), seen.logits, dict(seen.hidden)))


def test_a_drafter_hears_its_own_row_alone() -> None:
    needs = [Needs(), Needs(logits=True), Needs(True, (0, LAYERS)), Needs(layers=(1,)), Needs(), Needs(True, (2,))]

    def ask() -> tuple[list[Listener], list[Asked]]:
        ears = [Listener(copyist(prompt), need) for prompt, need in zip(PROMPTS, needs, strict=True)]
        return ears, [
            Asked(ear, prompt, settings(place, "match", GREEDY))
            for place, (prompt, ear) in enumerate(zip(PROMPTS, ears, strict=True))
        ]

    ears, asked = ask()
    together(asked, 4)
    others, asked = ask()
    for each in asked:
        alone(each)
    for ear, other in zip(ears, others, strict=True):
        assert len(ear.heard) == len(other.heard) > 3
        for mine, its in zip(ear.heard, other.heard, strict=True):
            assert mine[:2] == its[:2]
            assert (mine[2] is None) == (its[2] is None) == (not ear.needs.logits)
            assert mine[3].keys() == its[3].keys() == set(ear.needs.layers)
            pairs = [(mine[2], its[2])] if mine[2] is not None and its[2] is not None else []
            for one, two in [*pairs, *((mine[3][layer], its[3][layer]) for layer in mine[3])]:
                assert one.shape == two.shape
                assert torch.allclose(one, two, atol=1e-6)


# ---------------------------------------------------------------- joining and leaving


def test_places_are_taken_over_as_soon_as_they_are_free() -> None:
    asked = requests(copyist, "match", GREEDY)
    _, passes = together(asked, 3)
    begun = [number for each in passes if each.prefill for number in each.rounds]
    assert begun == list(range(len(PROMPTS)))
    left: set[int] = set()
    inside: set[int] = set()
    for each in passes:
        assert not inside & left
        if each.prefill:
            inside |= each.rounds.keys()
        else:
            # Nobody is left out of a pass, and nobody waits while a place is empty.
            assert each.rounds.keys() == inside
            assert len(inside) == 3 or len(inside | left) == len(PROMPTS)
        left |= each.finished.keys()
        inside -= each.finished.keys()
    assert left == set(range(len(PROMPTS)))


@pytest.mark.parametrize("place", range(6))
def test_an_end_of_text_ends_one_row_only(place: int) -> None:
    text = generate(PROMPTS[place], NEW)
    end = frozenset({text[4]})
    asked = [
        Asked(copyist(prompt), prompt, settings(number, "match", GREEDY, ends=end if number == place else frozenset()))
        for number, prompt in enumerate(PROMPTS)
    ]
    results, _ = together(asked, 6)
    assert [result.finish for result in results] == ["eos" if n == place else "length" for n in range(6)]
    for number, result in enumerate(results):
        whole = generate(PROMPTS[number], NEW - number)
        assert result.output == (text[: text.index(text[4]) + 1] if number == place else whole)


@pytest.mark.parametrize("asked", [0, 2, 7, 11])
def test_a_stopped_batch_keeps_what_was_made(asked: int) -> None:
    ask = requests(lambda _: early_exit(2), "token", GREEDY)
    results, passes = together(ask, 3, stop_at(asked))
    assert [result.finish for result in results].count("stopped") >= 3
    for place, result in enumerate(results):
        assert result.output == generate(result.prompt, NEW - place)[: len(result.output)]
    assert sum(bool(each.rounds) for each in passes) == asked
    assert [each.drafter.cache_length for each in ask] == [0] * len(ask)


def test_the_context_limit_ends_a_row_though_its_neighbours_draft_behind_it() -> None:
    # The row at the limit is padded to its neighbour's draft, for which the model has no position.
    small = model(positions=28)
    ask = [
        Asked(Copyist(len(prompt), generate(prompt, NEW)), prompt, Settings(gamma, NEW))
        for prompt, gamma in zip(PROMPTS, (12, 1, 12, 1, 12, 1), strict=True)
    ]
    places: list[int] = []
    hook = small.model.register_forward_pre_hook(
        lambda _, __, given: places.append(int(given.get("position_ids", torch.zeros(1)).max())), with_kwargs=True
    )
    results, _ = together(ask, 6, target=small)
    hook.remove()
    assert max(places) == 28 - 2
    for result in results:
        room = 28 - len(result.prompt)
        assert result.output == generate(result.prompt, NEW)[:room]
        assert result.finish == ("context" if room < NEW else "length")


def test_a_prompt_that_fills_the_context_is_never_read() -> None:
    small = model(positions=20)
    ask = [Asked(NoDrafter(), prompt, Settings(4, 3)) for prompt in (PROMPTS[5], PROMPTS[0])]
    results, _ = together(ask, 2, target=small)
    assert [(result.output, result.finish) for result in results] == [
        ([], "context"),
        (generate(PROMPTS[0], 3), "length"),
    ]


class Breaking(Stateless):
    """Fails in the middle of a run."""

    closed = False

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        raise RuntimeError("out of ideas")

    def close(self) -> None:
        self.closed = True


def test_a_failure_closes_every_drafter_and_is_passed_on() -> None:
    drafters: list[Drafter] = [early_exit(2), Breaking(), Breaking()]
    ask = [Asked(d, p, Settings(4, NEW, rule="token")) for d, p in zip(drafters, PROMPTS[:3], strict=True)]
    with pytest.raises(RuntimeError, match="out of ideas"):
        together(ask, 2)
    assert drafters[0].cache_length == 0
    assert all(drafter.closed for drafter in drafters if isinstance(drafter, Breaking))


class Wide(Stateless):
    """Drafts what no row can hold."""

    def __init__(self, proposal: Proposal) -> None:
        self._proposal = proposal

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        return self._proposal


@pytest.mark.parametrize("proposal", [Proposal((1, 2), parents=(-1, -1)), Proposal((1,), extra=((2, -1),))])
def test_trees_and_extras_are_refused(proposal: Proposal) -> None:
    with pytest.raises(ValueError, match="a batch verifies chains"):
        together([Asked(Wide(proposal), PROMPTS[0], Settings(4, NEW))], 1)


# ---------------------------------------------------------------- times


def test_a_pass_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(100_000))
    monkeypatch.setattr(CachedModel, "now", lambda _: float(next(ticks)))
    _, passes = together(requests(copyist, "match", GREEDY), 3)
    assert any(len(each.rounds) == 3 for each in passes)
    for each in passes:
        times = [round_.ms for round_ in each.rounds.values()]
        assert [ms.verify for ms in times] == [1000.0, *[None] * (len(times) - 1)]
        assert {(ms.propose, ms.judge, ms.rollback) for ms in times} == {(1000.0, 1000.0, 1000.0)}
        assert each.ms == Ms(1000.0 * len(times), 1000.0, 1000.0 * len(times), 1000.0 * len(times))


# ---------------------------------------------------------------- the cache


def test_padding_and_old_entries_are_never_looked_at() -> None:
    rows = Rows(model(), 3)
    texts = [list(prompt) for prompt in PROMPTS[:3]]
    for text in texts:
        rows.read(text)
    generator = torch.Generator().manual_seed(1)
    for step in range(12):
        counts = [1 + (step * place + place) % 5 for place in range(1, 4)]
        chains = [torch.randint(1, VOCABULARY, (count,), generator=generator).tolist() for count in counts]
        for row, (logits, _) in enumerate(rows.verify(chains, [Needs()] * 3)):
            want = direct([*texts[row], *chains[row]])[len(texts[row]) :]
            assert torch.allclose(logits, want, atol=1e-5)
            kept = step % (counts[row] + 1)
            texts[row] += chains[row][:kept]
            rows.roll_back(row, len(texts[row]))
    assert rows.lengths == [len(text) for text in texts]


def test_what_two_prompts_have_in_common_is_read_once_but_for_hidden_states() -> None:
    rows = Rows(model(), 2)
    prompt = PROMPTS[4]
    rows.read(prompt)
    logits, _ = rows.read([*prompt[:9], 3, 4])
    assert torch.allclose(logits, direct([*prompt[:9], 3, 4])[-1:], atol=1e-5)
    rows.drop(0)
    _, seen = rows.read(prompt, Needs(layers=(1,)))
    assert seen.hidden[1].shape[0] == len(prompt)


def test_a_model_that_caps_its_logits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model().config, "final_logit_softcapping", 30.0, raising=False)
    with pytest.raises(ValueError, match="caps"):
        Rows(model(), 1)


# ---------------------------------------------------------------- schedules


def test_a_table_reads_as_vllm_reads_it() -> None:
    table = ByBatchSize([[129, 512, 0], [1, 3, 4], [10, 20, 2]])
    # Gaps and the tail carry the K before on.
    assert [table.most(rows) for rows in (1, 3, 4, 9, 10, 20, 21, 128, 129, 9999)] == [4, 4, 4, 4, 2, 2, 2, 2, 0, 0]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ([], "a list of"),
        ([[1, 2]], "a list of"),
        ([[2, 4, 1]], "starts at 1"),
        ([[1, 4, 1], [4, 6, 1]], "overlap"),
        ([[1, 4, -1]], "at least"),
        ([[3, 2, 1]], "at least"),
        ([[0, 2, 1]], "at least"),
    ],
)
def test_a_table_that_vllm_refuses_is_refused(table: list[list[int]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ByBatchSize(table)


def test_a_schedule_caps_drafts_by_the_rows_in_the_pass_and_changes_no_text() -> None:
    schedule = ByBatchSize([[1, 2, 5], [3, 4, 2], [5, 6, 0]])
    results, passes = together(requests(copyist, "match", GREEDY, gamma=5), 6, schedule=schedule)
    seen = set()
    for each in passes:
        if not each.prefill:
            most = schedule.most(len(each.rounds))
            assert most is not None
            seen.add(most)
            assert all(len(round_.nodes) <= most for round_ in each.rounds.values())
    assert seen == {0, 2, 5}
    for place, result in enumerate(results):
        assert result.output == generate(result.prompt, NEW - place)


def busy(rows: int, k: int, alpha: float, growth: float) -> Load:
    """A pass of 10 ms and `growth` a token, in which a share `alpha` of the judged drafts is kept."""
    drafted = rows * k
    return Load(rows, k, drafted, rows if k else 0, drafted, round(alpha * drafted), 0.0, 10 + growth * rows * (1 + k))


def test_goodput_drafts_while_a_wider_pass_is_cheap_and_not_where_it_is_dear() -> None:
    schedule = Goodput(deepest=5)
    assert schedule.most(8) == 5
    schedule.observe(busy(8, 5, 0.75, 0.01))
    assert schedule.most(8) == 0, "one width tells no slope"
    schedule.observe(busy(8, 0, 0.75, 0.01))
    assert schedule.most(8) == 5
    # 64 rows on the same line are dear: 10 ms and 0.01 a token is not, 1 a token is.
    dear = Goodput(deepest=5)
    for k in (5, 0):
        dear.most(64)
        dear.observe(busy(64, k, 0.75, 1.0))
    assert dear.most(64) == 0
    # (1 + 0.75)/(10 + 2·2) against 1/(10 + 2) and (1 + .75 + .5625)/(10 + 6): two rows still gain.
    costs = {k: sum(0.75**i for i in range(k + 1)) / (10 + 2 * (1 + k)) for k in range(6)}
    assert dear.most(2) == max(costs, key=lambda k: costs[k]) > 0


def test_goodput_probes_again_when_it_has_forgotten() -> None:
    schedule = Goodput(deepest=3, memory=4)
    for k in (3, 0, 0, 0):
        schedule.most(4)
        schedule.observe(busy(4, k, 0.1, 5.0))
    assert schedule.most(4) == 0
    schedule.observe(busy(4, 0, 0.1, 5.0))
    assert schedule.most(4) == 3


@pytest.mark.parametrize("schedule", [Unlimited(), Goodput(4)])
def test_no_schedule_changes_a_text(schedule: Schedule) -> None:
    asked = requests(copyist, "match", WARM)
    results, _ = together(asked, 4, schedule=schedule)
    plain = [alone(replace(each, drafter=NoDrafter())) for each in asked]
    assert [result.output for result in results] == [result.output for result in plain]
