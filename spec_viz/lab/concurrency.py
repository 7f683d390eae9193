"""Concurrency: what speculation gains when B requests share every target pass, and where it stops paying.

A lone request leaves the target waiting for its weights, so a few more tokens a pass are almost free. Requests side by
side fill that gap themselves, and then every draft that is thrown away costs what a kept one costs (algorithms §10.1).
Everything here is decoded by the real batch of `spec_viz.engine.batch`; tokens count in *full* passes only: those in
which all B requests still decode.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import statistics
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, Literal

import torch
from pydantic import ConfigDict, Field, TypeAdapter, with_config

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
from spec_viz.lab.metrics import PARTS, PERCENTILES, percentiles
from spec_viz.lab.run import Request, RequestError, check, conditions, encode_prompt, prepare
from spec_viz.lab.sweep import (
    MOST_POINTS,
    Amount,
    Choice,
    Count,
    Finish,
    Keep,
    Name,
    Positive,
    Progress,
    ResultError,
    check_choices,
    check_size,
    check_twice,
    gather,
    read_as,
)
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


# A user's token needs a round after the prefill, and a pass in which all still decode one more.
FEWEST_BEYOND = 3
MOST_BATCH = 1024
Batch = Annotated[int, Field(ge=1, le=MOST_BATCH)]
AtLeastOne = Annotated[int, Field(ge=1, le=10**9)]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured: every drafter and every coin of chance α with every γ, at every batch size.

    The policies choose γ by the load, with what the fixed ones have shown; they double the time.
    """

    drafters: tuple[Choice, ...]
    questions: tuple[Question, ...]
    batches: tuple[Batch, ...] = (1, 2, 4, 8, 16)
    gammas: tuple[AtLeastOne, ...] = (2, 4)
    alphas: tuple[Amount, ...] = (0.6, 0.8)
    max_new_tokens: int = 24
    repeats: int = 1
    policies: tuple[Policy, ...] = ()

    @property
    def fixed(self) -> tuple[Mode, ...]:
        """Every way whose γ is the same at every load, plain decoding left out."""
        modes = [Mode(choice.label, gamma) for choice in self.drafters for gamma in self.gammas]
        return (*modes, *(Mode(SYNTHETIC.name, gamma, alpha) for alpha in self.alphas for gamma in self.gammas))

    @property
    def adaptive(self) -> tuple[Mode, ...]:
        """Every way whose γ follows the load."""
        most = max(self.gammas)
        return tuple(
            Mode(mode.drafter, most, mode.alpha, policy)
            for mode in self.fixed
            if mode.gamma == most
            for policy in self.policies
        )


def size(plan: Plan) -> int:
    """How many samples a whole run brings."""
    return len(set(plan.batches)) * plan.repeats * (1 + len(plan.fixed) + len(plan.adaptive))


def validate(plan: Plan) -> Plan:
    """The plan where it can be run; RequestError or ValueError where a part of it cannot."""
    if not plan.gammas or not plan.batches or min(*plan.batches, *plan.gammas, plan.repeats) < 1:
        raise ValueError("batches, gammas and repeats are at least 1")
    if not plan.questions or not plan.fixed:
        raise ValueError("a drafter or a chance, and a prompt, are needed")
    if not all(0 <= alpha <= 1 for alpha in plan.alphas):
        raise ValueError("a chance lies between 0 and 1")
    for what in (plan.batches, plan.gammas, plan.alphas):
        check_twice(what)
    check_choices(plan.drafters)
    check_size(size(plan), MOST_POINTS)
    if max(plan.batches) > MOST_BATCH:
        raise ValueError(f"at most {MOST_BATCH} requests share a pass")
    # Coins take the same γ as drafters do.
    for choice in (Choice(PLAIN), *plan.drafters):
        check(
            Request(
                "-",
                choice.drafter,
                choice.options,
                choice.rule,
                gamma=max(plan.gammas),
                max_new_tokens=plan.max_new_tokens,
            )
        )
    least = max(plan.gammas) + FEWEST_BEYOND
    if plan.max_new_tokens < least:
        raise RequestError("error.load_tokens", gamma=max(plan.gammas), least=least)
    return plan


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class Sample:
    """One batch, decoded once: tokens and milliseconds of its full passes, and each user's milliseconds a token.

    `rounds` are passes × rows; `differs` are (row, token, lead) where a lossless row left the plain text: the lead of
    the target's best next logit there tells a near-tie from a fault. `ratio` is its speed ÷ that of the plain batch
    beside it in time.
    """

    batch: Batch
    drafter: Name
    gamma: Count
    alpha: Amount | None
    policy: Policy
    repeat: Count
    passes: AtLeastOne
    rounds: AtLeastOne
    tokens: AtLeastOne
    accepted: Count
    judged: Count
    ms: Mapping[str, Amount]
    users: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=MOST_BATCH)]
    differs: Annotated[tuple[tuple[Count, Count, float], ...], Field(max_length=MOST_BATCH)]
    ratio: Positive

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


def begin(loaded: Loaded, plan: Plan) -> dict[str, Any]:
    """A record without samples: what is measured and under which conditions. It counts as stopped until it is done."""
    return {
        "schema": SCHEMA,
        "kind": "concurrency",
        "plan": asdict(plan),
        "conditions": {
            **conditions(loaded),
            "target": loaded.entry.name,
            "batches": sorted(set(plan.batches)),
            "gammas": list(plan.gammas),
            "alphas": list(plan.alphas),
            "drafters": {choice.label: dict(choice.options) for choice in plan.drafters},
            "temperature": 0,
            "max_new_tokens": plan.max_new_tokens,
            "end_of_text": "ignored",
            "repeats": plan.repeats,
            "questions": len(plan.questions),
            "clock": "full passes: no prefill, and every request still decodes",
            "drafting": "one request after another",
        },
        "crossing_method": CROSSING,
        "samples": [],
        "schedules": [],
        "finish": "stopped",
    }


def run(
    loaded: Loaded, plan: Plan, stop: Callable[[], bool] = lambda: False, progress: Progress = iter
) -> Generator[Sample]:
    """Decode batches of every size in every way, greedily; a sample as soon as its plain neighbour is there.

    First every drafter and every α with every gamma, each repeat in turn with plain decoding; then, with the table of K
    by batch size that these times give, the policies of the plan. Drafts are made one request after another, as each
    request has a drafter of its own, so a drafter that is a model costs B times what it costs one. Ends early, with
    whole samples, once `stop` says so.
    """
    bench = Bench(loaded, validate(plan), stop)
    samples: list[Sample] = []
    turns = [(batch, repeat) for batch in sorted(set(plan.batches)) for repeat in range(plan.repeats)]
    bench.warm()
    for batch, repeat in progress(turns):
        for sample in bench.turn([PLAIN_MODE, *plan.fixed], batch, repeat, {}):
            samples.append(sample)
            yield sample
    if not plan.adaptive or stop():
        return
    tables = {family: make_table(_speeds(samples, family)) for family in _families(samples)}
    for batch, repeat in progress(turns):
        for sample in bench.turn([PLAIN_MODE, *plan.adaptive], batch, repeat, tables):
            if sample.mode != PLAIN_MODE:
                yield sample


def schedules(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """K by batch size for every drafter and coin, and the same as vLLM takes it."""
    fixed = [sample for sample in samples if sample.policy == "fixed"]
    tables = {family: make_table(_speeds(fixed, family)) for family in _families(fixed)}
    return [{"name": family, "table": table, "vllm": vllm_config(table)} for family, table in tables.items()]


def measure(
    loaded: Loaded,
    plan: Plan,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = iter,
    keep: Keep = lambda _: None,
) -> dict[str, Any]:
    """A whole plan as a `specviz.result/1` record; what came before `stop` said so is kept.

    `keep` gets the record however it ends, even where a batch fails.
    """
    record = begin(loaded, validate(plan))

    def whole(found: dict[str, Any]) -> None:
        found["schedules"] = schedules(samples_of(found))
        keep(found)

    return gather(record, record["samples"], run(loaded, plan, stop, progress), stop, whole)


class Bench:
    """Decodes batches of a plan's questions in one way after another."""

    def __init__(self, loaded: Loaded, plan: Plan, stop: Callable[[], bool] = lambda: False) -> None:
        self._loaded = loaded
        self._plan = plan
        self._stop = stop
        self._choices = {PLAIN: Choice(PLAIN), **{choice.label: choice for choice in plan.drafters}}
        self._target = CachedModel(loaded.model)
        longest = max(len(self._encode(question)) for question in plan.questions)
        limit = self._target.context_limit - plan.max_new_tokens
        if longest > limit:
            raise RequestError("error.prompt_too_long", tokens=longest, limit=limit)

    def warm(self) -> None:
        """Every drafter once before it is timed: the first pass allocates, and a second model is read from its file."""
        most = max(self._plan.gammas)
        for mode in (PLAIN_MODE, *(Mode(choice.label, most) for choice in self._plan.drafters)):
            if not self._stop():
                self.sample(mode, min(self._plan.batches), 0, {})

    def turn(self, modes: Sequence[Mode], batch: int, repeat: int, tables: Mapping[str, Table]) -> Generator[Sample]:
        """Every mode once, plain decoding first among `modes`; forwards, and in every other repeat backwards.

        So a slow drift of the machine touches every mode alike.
        """
        drawn: dict[Mode, tuple[list[list[int]], dict[str, Any]]] = {}
        waiting: list[Mode] = []
        for mode in modes[:: 1 if repeat % 2 == 0 else -1]:
            found = self.sample(mode, batch, repeat, tables)
            if found is None:
                return
            drawn[mode] = found
            waiting.append(mode)
            if PLAIN_MODE in drawn:
                yield from (self._judge(each, drawn[each], drawn[PLAIN_MODE], batch, repeat) for each in waiting)
                waiting = []

    def _judge(
        self,
        mode: Mode,
        found: tuple[list[list[int]], dict[str, Any]],
        beside: tuple[list[list[int]], dict[str, Any]],
        batch: int,
        repeat: int,
    ) -> Sample:
        (texts, counts), (plain_texts, plain) = found, beside
        return Sample(
            batch,
            mode.drafter,
            mode.gamma,
            mode.alpha,
            mode.policy,
            repeat,
            differs=self._differences(texts, plain_texts, batch, repeat) if mode.alpha is None else (),
            ratio=counts["tokens"] / counts["ms"]["total"] / (plain["tokens"] / plain["ms"]["total"]),
            **counts,
        )

    def sample(
        self, mode: Mode, batch: int, repeat: int, tables: Mapping[str, Table]
    ) -> tuple[list[list[int]], dict[str, Any]] | None:
        """Decode a batch in one way: each request's text, and the counts and times of its full passes.

        None where it was stopped. RequestError for a drafter that cannot share a pass.
        """
        # No two requests toss the same coins.
        seeds = itertools.count(repeat * batch)
        schedule: Schedule | None = None
        if mode.policy == "table":
            schedule = ByBatchSize(tables[mode.family])
        elif mode.policy == "goodput":
            schedule = Goodput(mode.gamma)
        texts: list[list[int]] = [[] for _ in range(batch)]
        full: list[Pass] = []
        requests = [self._ask(mode, question, next(seeds)) for question in self._chosen(batch, repeat)]
        try:
            for each in decode_batch(self._target, requests, batch, self._stop, schedule):
                for row, round_ in each.rounds.items():
                    texts[row] += round_.committed
                if len(each.rounds) == batch and not each.prefill:
                    full.append(each)
        except RequestError:
            raise
        except ValueError:
            raise RequestError("error.load_tree", drafter=_titled(mode)) from None
        return None if self._stop() else (texts, count(full, batch))

    def _chosen(self, batch: int, repeat: int) -> list[Question]:
        """The questions of a batch: each repeat goes on where the one before stopped."""
        questions = self._plan.questions
        return [questions[(repeat * batch + row) % len(questions)] for row in range(batch)]

    def _ask(self, mode: Mode, question: Question, seed: int) -> Asked:
        # Every request writes as many tokens, whatever it says, so that the batch stays full.
        tokens = self._plan.max_new_tokens
        if mode.alpha is not None:
            settings = Settings(mode.gamma, tokens, rule=SYNTHETIC.name, seed=seed, strength=mode.alpha)
            return Asked(Coin(), self._encode(question), settings)
        choice = self._choices[mode.drafter]
        request = Request(
            question.prompt,
            choice.drafter,
            choice.options,
            choice.rule,
            gamma=max(mode.gamma, 1),
            max_new_tokens=tokens,
            chat=question.chat,
        )
        made = prepare(self._loaded, request)
        try:
            return asked(replace(made, settings=replace(made.settings, ends=frozenset())))
        except ValueError:
            raise RequestError("error.load_shared", drafter=_titled(mode)) from None

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


def _titled(mode: Mode) -> dict[str, Any]:
    """A drafter's title, as a sentence within a sentence."""
    return {"key": f"drafter.{mode.drafter.partition(' (')[0]}", "args": {}}


def _families(samples: Sequence[Sample]) -> list[str]:
    return list(dict.fromkeys(sample.mode.family for sample in samples if sample.mode != PLAIN_MODE))


def _speeds(samples: Sequence[Sample], family: str) -> dict[int, dict[int, float]]:
    """Speed ÷ plain by batch and K of a family, medians over repeats; K = 0 is plain decoding."""
    ratios: dict[int, dict[int, list[float]]] = {}
    for sample in samples:
        if sample.mode == PLAIN_MODE or sample.mode.family == family:
            ratios.setdefault(sample.batch, {}).setdefault(sample.gamma, []).append(sample.ratio)
    return {batch: {k: statistics.median(each) for k, each in by_k.items()} for batch, by_k in ratios.items()}


# ---------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class Result:
    """A record of concurrency, read and checked; files of before there were plans have none."""

    conditions: Mapping[str, Any]
    samples: Annotated[tuple[Sample, ...], Field(max_length=MOST_POINTS)]
    plan: Plan | None = None
    finish: Finish = "done"


_READER: TypeAdapter[Result] = TypeAdapter(Result)


def read(body: Any) -> Result:
    """A record as its file holds it; ResultError names the field that is wrong."""
    found = read_as(_READER, "concurrency", body)
    for place, sample in enumerate(found.samples):
        if not sample.ms.get("total") or not sample.ms.keys() >= set(PARTS):
            raise ResultError(f"samples.{place}.ms", "a part of the time is missing")
    return found


def to_csv(result: Result) -> str:
    """A line a sample: its counts, the parts of its time, and percentiles of its users' milliseconds a token."""
    names = [each.name for each in fields(Sample) if each.name not in ("ms", "users", "differs")]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, *(f"{part}_ms" for part in (*PARTS, "total")), *(f"p{at}" for at in PERCENTILES)])
    for sample in result.samples:
        parts = [round(sample.ms[part], 3) for part in (*PARTS, "total")]
        spread = [round(each, 3) for each in percentiles(sample.users)]
        writer.writerow([*(getattr(sample, name) for name in names), *parts, *spread])
    return out.getvalue()


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
            if not mine:  # stopped before it came
                continue
            users = [ms for sample in mine for ms in sample.users]
            p50, p95, p99 = (round(value, 1) for value in percentiles(users))
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
