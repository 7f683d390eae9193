"""Concurrency: what speculation gains when B requests share every target pass, and where it stops paying.

A lone request leaves the target waiting for its weights, so a few more tokens a pass are almost free. Requests side by
side fill that gap themselves, and then every draft that is thrown away costs what a kept one costs (algorithms §10.1).
Everything here is decoded by the real batch of `spec_viz.engine.batch`; tokens count in *full* passes only: those in
which all B requests still decode.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from spec_viz.drafters.none import Stateless
from spec_viz.engine.batch import Asked, Pass, decode_batch
from spec_viz.engine.decode import Settings
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Proposal
from spec_viz.engine.rules import RULES
from spec_viz.engine.schedule import ByBatchSize, Goodput, Schedule
from spec_viz.engine.target import CachedModel
from spec_viz.lab.batch import asked
from spec_viz.lab.bench import SCHEMA, Question
from spec_viz.lab.metrics import PARTS
from spec_viz.lab.run import Request, conditions, encode_prompt, prepare
from spec_viz.models.load import Loaded

PLAIN = "none"
SYNTHETIC = RULES["synthetic"]
CROSSING = "straight line in log2 B between the last batch where it is faster and the first where it is not"

Policy = Literal["fixed", "table", "goodput"]
Table = list[list[int]]


class Coin(Stateless):
    """Drafts gamma tokens at no cost, for the rule `synthetic`, which never looks at them: a speed, no text."""

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        return Proposal((context[-1],) * gamma)


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to decode: a drafter with its gamma, or a coin of chance `alpha`; the policy may cap gamma by the load."""

    drafter: str
    gamma: int
    alpha: float | None = None
    policy: Policy = "fixed"

    @property
    def family(self) -> str:
        """What gamma and policy are chosen for: the drafter, or the coin with its chance."""
        return self.drafter if self.alpha is None else f"{SYNTHETIC.name} α = {self.alpha:g} (lossy)"


PLAIN_MODE = Mode(PLAIN, 0)


@dataclass(frozen=True, slots=True)
class Sample:
    """One batch, decoded once: tokens and milliseconds of its full passes, and each user's milliseconds a token.

    `rounds` are passes × rows; `differs` are (row, token, lead) where a lossless row left the plain text: the lead of
    the target's best next logit there tells a near-tie from a fault. `ratio` is its speed ÷ that of the plain batch
    beside it in time.
    """

    batch: int
    drafter: str
    gamma: int
    alpha: float | None
    policy: Policy
    repeat: int
    passes: int
    rounds: int
    tokens: int
    accepted: int
    judged: int
    ms: Mapping[str, float]
    users: tuple[float, ...]
    differs: tuple[tuple[int, int, float], ...]
    ratio: float

    @property
    def mode(self) -> Mode:
        return Mode(self.drafter, self.gamma, self.alpha, self.policy)

    @property
    def rate(self) -> float:
        """Tokens a second, of all users together."""
        return 1000 * self.tokens / self.ms["total"]


# ---------------------------------------------------------------- arithmetic


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where speculation stops paying: the smallest measured batch at which it is no faster, and the point before it.

    `batch` is None where it was faster everywhere; `between` is None where no smaller batch was faster.
    """

    batch: int | None
    between: float | None


def crossing(speedups: Mapping[int, float]) -> Crossing:
    """The crossing point of speedups by batch size: a straight line in log2 B between the two batches around it."""
    before: int | None = None
    for batch in sorted(speedups):
        if speedups[batch] <= 1:
            if before is None:
                return Crossing(batch, None)
            share = (speedups[before] - 1) / (speedups[before] - speedups[batch])
            return Crossing(batch, 2 ** (math.log2(before) + share * math.log2(batch / before)))
        before = batch
    return Crossing(None, None)


def make_table(speeds: Mapping[int, Mapping[int, float]]) -> Table:
    """K by batch size from measured speeds[B][K], as vLLM writes it: [[first, last, K], …] (algorithms §10.2).

    The fastest K of a measured batch holds up to the next measured one, the smaller of equals; 0 is plain decoding.
    The first range starts at 1, as vLLM asks, and what lies behind the last keeps its K.
    """
    batches = sorted(speeds)
    table: Table = []
    for place, batch in enumerate(batches):
        best = min(speeds[batch], key=lambda k: (-speeds[batch][k], k))
        last = batches[place + 1] - 1 if place + 1 < len(batches) else batch
        if table and table[-1][2] == best:
            table[-1][1] = last
        else:
            table.append([batch if table else 1, last, best])
    return table


def vllm_config(table: Table) -> dict[str, Any] | None:
    """The keys that vLLM's `--speculative-config` takes for a table; None where no batch is better off drafting."""
    most = max(k for _, _, k in table)
    return {"num_speculative_tokens": most, "num_speculative_tokens_per_batch_size": table} if most else None


# ---------------------------------------------------------------- measuring


def measure(
    loaded: Loaded,
    questions: Sequence[Question],
    drafters: Mapping[str, Mapping[str, Any]],
    *,
    batches: Sequence[int],
    gammas: Sequence[int],
    alphas: Sequence[float],
    max_new_tokens: int,
    repeats: int,
    progress: Callable[[Sequence[Any]], Iterable[Any]] = lambda items: items,
) -> dict[str, Any]:
    """Decode batches of every size in every way, greedily, as a `specviz.result/1` record.

    First every drafter and every α with every gamma, each repeat in turn with plain decoding; then, with the table of K
    by batch size that these times give, the table itself and goodput. Drafts are made one request after another, as
    each request has a drafter of its own, so a drafter that is a model costs B times what it costs one.
    """
    if not gammas or min(*batches, *gammas, repeats) < 1 or max_new_tokens < max(gammas) + 3:
        raise ValueError("batches, gammas and repeats are at least 1, max_new_tokens at least the longest gamma and 3")
    if PLAIN in drafters:
        raise ValueError("plain decoding is measured beside every drafter; it is none itself")
    bench = Bench(loaded, questions, drafters, max_new_tokens)
    fixed = [Mode(name, gamma) for name in drafters for gamma in gammas]
    fixed += [Mode(SYNTHETIC.name, gamma, alpha) for alpha in alphas for gamma in gammas]
    bench.sample(PLAIN_MODE, min(batches), 0, {})  # the first passes of a process are slow
    turns = [(batch, repeat) for batch in sorted(set(batches)) for repeat in range(repeats)]
    samples = [
        sample for batch, repeat in progress(turns) for sample in bench.turn([PLAIN_MODE, *fixed], batch, repeat, {})
    ]
    tables = {family: make_table(_speeds(samples, family)) for family in dict.fromkeys(mode.family for mode in fixed)}
    adaptive = [
        Mode(mode.drafter, max(gammas), mode.alpha, policy)
        for mode in fixed
        if mode.gamma == max(gammas)
        for policy in ("table", "goodput")
    ]
    for batch, repeat in progress(turns):
        samples += bench.turn([PLAIN_MODE, *adaptive], batch, repeat, tables)[1:]
    return {
        "schema": SCHEMA,
        "kind": "concurrency",
        "conditions": {
            **conditions(loaded),
            "target": loaded.entry.name,
            "batches": sorted(set(batches)),
            "gammas": list(gammas),
            "alphas": list(alphas),
            "drafters": {name: dict(options) for name, options in drafters.items()},
            "temperature": 0,
            "max_new_tokens": max_new_tokens,
            "end_of_text": "ignored",
            "repeats": repeats,
            "questions": len(questions),
            "clock": "full passes: no prefill, and every request still decodes",
            "drafting": "one request after another",
        },
        "crossing_method": CROSSING,
        "samples": [asdict(sample) for sample in samples],
        "schedules": [{"name": family, "table": table, "vllm": vllm_config(table)} for family, table in tables.items()],
    }


class Bench:
    """Decodes batches of the same questions in one way after another."""

    def __init__(
        self, loaded: Loaded, questions: Sequence[Question], drafters: Mapping[str, Mapping[str, Any]], tokens: int
    ) -> None:
        self._loaded = loaded
        self._questions = questions
        self._options = {PLAIN: {}, **drafters}
        self._tokens = tokens
        self._target = CachedModel(loaded.model)
        longest = max(len(self._encode(question)) for question in questions)
        if longest + tokens > self._target.context_limit:
            limit = self._target.context_limit
            raise ValueError(f"a prompt of {longest} tokens and {tokens} more do not fit into {limit}")

    def turn(self, modes: Sequence[Mode], batch: int, repeat: int, tables: Mapping[str, Table]) -> list[Sample]:
        """Every mode once, plain decoding first among `modes`; forwards, and in every other repeat backwards.

        So a slow drift of the machine touches every mode alike.
        """
        drawn = {mode: self.sample(mode, batch, repeat, tables) for mode in modes[:: 1 if repeat % 2 == 0 else -1]}
        plain_texts, plain = drawn[PLAIN_MODE]
        rate = 1000 * plain["tokens"] / plain["ms"]["total"]
        return [
            Sample(
                batch,
                mode.drafter,
                mode.gamma,
                mode.alpha,
                mode.policy,
                repeat,
                differs=self._differences(texts, plain_texts, batch, repeat) if mode.alpha is None else (),
                ratio=1000 * counts["tokens"] / counts["ms"]["total"] / rate,
                **counts,
            )
            for mode, (texts, counts) in ((mode, drawn[mode]) for mode in modes)
        ]

    def sample(
        self, mode: Mode, batch: int, repeat: int, tables: Mapping[str, Table]
    ) -> tuple[list[list[int]], dict[str, Any]]:
        """Decode a batch in one way: each request's text, and the counts and times of its full passes."""
        # No two requests toss the same coins.
        seeds = itertools.count(repeat * batch)
        requests = [self._ask(mode, question, next(seeds)) for question in self._chosen(batch, repeat)]
        schedule: Schedule | None = None
        if mode.policy == "table":
            schedule = ByBatchSize(tables[mode.family])
        elif mode.policy == "goodput":
            schedule = Goodput(mode.gamma)
        texts: list[list[int]] = [[] for _ in requests]
        full: list[Pass] = []
        for each in decode_batch(self._target, requests, batch, lambda: False, schedule):
            for row, round_ in each.rounds.items():
                texts[row] += round_.committed
            if len(each.rounds) == batch and not each.prefill:
                full.append(each)
        return texts, count(full, batch)

    def _chosen(self, batch: int, repeat: int) -> list[Question]:
        """The questions of a batch: each repeat goes on where the one before stopped."""
        return [self._questions[(repeat * batch + row) % len(self._questions)] for row in range(batch)]

    def _ask(self, mode: Mode, question: Question, seed: int) -> Asked:
        # Every request writes as many tokens, whatever it says, so that the batch stays full.
        if mode.alpha is not None:
            settings = Settings(mode.gamma, self._tokens, rule=SYNTHETIC.name, seed=seed, strength=mode.alpha)
            return Asked(Coin(), self._encode(question), settings)
        request = Request(
            question.prompt,
            mode.drafter,
            self._options[mode.drafter],
            gamma=max(mode.gamma, 1),
            max_new_tokens=self._tokens,
            chat=question.chat,
        )
        made = prepare(self._loaded, request)
        return asked(replace(made, settings=replace(made.settings, ends=frozenset())))

    def _encode(self, question: Question) -> list[int]:
        return encode_prompt(self._loaded, Request(question.prompt, chat=question.chat))

    def _differences(
        self, texts: Sequence[list[int]], plain: Sequence[list[int]], batch: int, repeat: int
    ) -> tuple[tuple[int, int, float], ...]:
        found = []
        for row, question in enumerate(self._chosen(batch, repeat)):
            pairs = enumerate(zip(texts[row], plain[row], strict=True))
            place = next((place for place, (mine, its) in pairs if mine != its), None)
            if place is not None:
                found.append((row, place, self._lead([*self._encode(question), *plain[row][:place]])))
        return tuple(found)

    @torch.inference_mode()
    def _lead(self, tokens: Sequence[int]) -> float:
        """By how much the target's best next logit leads the second."""
        logits, _ = self._target.prefill(tokens)
        self._target.close()
        best = logits[0].topk(2).values
        return float(best[0] - best[1])


def count(full: Sequence[Pass], batch: int) -> dict[str, Any]:
    """Counts and times of a batch's full passes; ValueError where there are none."""
    if not full:
        raise ValueError("no pass was full: ask for more tokens")
    times = [each.ms for each in full]
    ms = {part: sum(getattr(each, part) for each in times) for part in PARTS}
    total = sum(ms.values())
    rows = sorted(full[0].rounds)
    own = [sum(len(each.rounds[row].committed) for each in full) for row in rows]
    fates = [node.status for each in full for round_ in each.rounds.values() for node in round_.nodes]
    return {
        "passes": len(full),
        "rounds": len(full) * batch,
        "tokens": sum(own),
        "accepted": fates.count("accepted"),
        "judged": len(fates) - fates.count("discarded"),
        "ms": {**ms, "total": total},
        # A user waits for every pass, whoever it serves.
        "users": tuple(total / tokens for tokens in own),
    }


def _speeds(samples: Sequence[Sample], family: str) -> dict[int, dict[int, float]]:
    """Speed ÷ plain by batch and K of a family, medians over repeats; K = 0 is plain decoding."""
    ratios: dict[int, dict[int, list[float]]] = {}
    for sample in samples:
        if sample.mode == PLAIN_MODE or sample.mode.family == family:
            ratios.setdefault(sample.batch, {}).setdefault(sample.gamma, []).append(sample.ratio)
    return {batch: {k: statistics.median(each) for k, each in by_k.items()} for batch, by_k in ratios.items()}


# ---------------------------------------------------------------- reading


def samples_of(result: Mapping[str, Any]) -> list[Sample]:
    """The samples of a record."""
    return [Sample(**sample) for sample in result["samples"]]


def rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The table: a row a mode and batch; medians over repeats, latency percentiles over the users of all repeats.

    `pass %` is the target's share of the time, `differs` how many rows left the plain text (the record says where, and
    by how much the target's best logit led).
    """
    table = []
    samples = samples_of(result)
    for mode in dict.fromkeys(sample.mode for sample in samples):
        for batch in dict.fromkeys(sample.batch for sample in samples):
            mine = [sample for sample in samples if sample.mode == mode and sample.batch == batch]
            users = [ms for sample in mine for ms in sample.users]
            p50, p95, p99 = (round(float(value), 1) for value in np.percentile(users, (50, 95, 99)))
            ratios = [sample.ratio for sample in mine]
            judged = sum(sample.judged for sample in mine)
            table.append(
                {
                    "mode": mode.family,
                    "γ": mode.gamma if mode.drafter != PLAIN else None,
                    "policy": mode.policy,
                    "B": batch,
                    "tokens/s": round(statistics.median(sample.rate for sample in mine), 1),
                    "÷ plain": f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})",
                    "ms/token p50": p50,
                    "p95": p95,
                    "p99": p99,
                    "τ": round(sum(s.tokens for s in mine) / sum(s.rounds for s in mine), 2),
                    "α": round(sum(s.accepted for s in mine) / judged, 2) if judged else None,
                    "pass %": round(100 * sum(s.ms["verify"] for s in mine) / sum(s.ms["total"] for s in mine)),
                    "differs": sum(len(sample.differs) for sample in mine),
                }
            )
    return table


def crossings(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where each mode stops paying, by the medians over repeats of its speed ÷ plain decoding's."""
    samples = samples_of(result)
    table = []
    for mode in dict.fromkeys(sample.mode for sample in samples if sample.mode != PLAIN_MODE):
        mine = [sample for sample in samples if sample.mode == mode]
        found = crossing(
            {
                batch: statistics.median(sample.ratio for sample in mine if sample.batch == batch)
                for batch in dict.fromkeys(sample.batch for sample in mine)
            }
        )
        table.append(
            {
                "mode": mode.family,
                "γ": mode.gamma,
                "policy": mode.policy,
                "no faster from B": found.batch,
                "between": None if found.between is None else round(found.between, 1),
            }
        )
    return table


def conditions_line(result: Mapping[str, Any]) -> str:
    """The conditions in one line, to stand under the table."""
    told = result["conditions"]
    versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
    return (
        f"{told['target']}, {told['device_name']}, {told['threads']} threads, {told['dtype']}, greedy, "
        f"{told['max_new_tokens']} tokens, {told['questions']} prompts × {told['repeats']}; clock: {told['clock']}; "
        f"drafts made {told['drafting']}; between: {result['crossing_method']}; {versions}; {told['created']}"
    )
