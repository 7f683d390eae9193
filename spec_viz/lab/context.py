"""Long context: how a target pass grows with the text behind it, and whom that helps (algorithms §10.1, §10.3).

A pass reads every weight and every entry of the KV cache. The weights are the same behind any prefix, the entries grow
with it: a straight line through the times of passes over one token tells the two apart. Where the entries are a large
part, a drafter that does not read all of them gets cheaper beside the target (MagicDec, 2408.11049); where they are
not, it saves little. Passes of different kinds take turns, and a plain run stands beside every speculative one, because
machines are noisy. A prefix is read once and every run begins behind it.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import ConfigDict, Field, TypeAdapter, with_config
from torch import Tensor

from spec_viz.engine.cache import kv_bytes_per_token
from spec_viz.engine.decode import decode
from spec_viz.engine.proposal import NOTHING, Needs, Seen
from spec_viz.engine.target import CachedModel
from spec_viz.engine.trace import Trace
from spec_viz.lab.bench import SCHEMA, Question
from spec_viz.lab.metrics import percentiles, summarise
from spec_viz.lab.run import Request, RequestError, Run, check, conditions, encode_prompt, encoder, prepare
from spec_viz.lab.sweep import (
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
    gather,
    read_as,
)
from spec_viz.models.load import Loaded
from spec_viz.training.prompts import held_out_prompts

PLAIN = "none"
# Tasks whose prompts hold a passage, and how many of each: together some five thousand tokens.
TASKS = ("question", "summary")
PASSAGES = 24
BETWEEN = "\n\n"
# Cut text may be spelt in a token more or less than was cut off; so many places beside are tried.
NEAR = 8
WARM_TOKENS = 4
MOST_TIMES = 5_000
MOST_SAMPLES = 2_000
MOST_LENGTHS, MOST_DRAFTERS = 8, 8

Length = Annotated[int, Field(ge=1, le=10**6)]
AtLeastOne = Annotated[int, Field(ge=1, le=10**4)]
# A pass over one token, one over γ + 1, the target drafting for itself over its whole cache, and a decode.
Part = Literal["one", "wide", "self", "decode"]
PASSES: tuple[Part, ...] = ("one", "wide", "self")
LOOKUP, WINDOW = Choice("prompt_lookup"), Choice("window", {"window": 256})


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured behind each length of prefix: `passes` of every kind, and `repeats` decodes a drafter.

    The text in front of the last question is cut to the length; `reading` makes some.
    """

    questions: Annotated[tuple[Question, ...], Field(max_length=1_000)]
    drafters: Annotated[tuple[Choice, ...], Field(max_length=MOST_DRAFTERS)] = (LOOKUP, WINDOW)
    lengths: Annotated[tuple[Length, ...], Field(max_length=MOST_LENGTHS)] = (256, 512, 1024, 2048)
    gamma: AtLeastOne = 4
    max_new_tokens: AtLeastOne = 32
    passes: AtLeastOne = 12
    repeats: AtLeastOne = 1

    @property
    def orders(self) -> tuple[tuple[Choice | None, ...], ...]:
        """The decodes of a repeat: one plain (None) between two speculative ones."""
        pairs = [self.drafters[at : at + 2] for at in range(0, len(self.drafters), 2)]
        return tuple((pair[0], None, *pair[1:]) for pair in pairs)


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class Sample:
    """What one way took behind one prefix: `ms` of each pass, of each drafted token (`self`), or of each round.

    Of a decode also its counts after the prefill, `draft_ms` a drafted token in each round that drafted, c, and its
    speed ÷ that of the plain decode beside it in time.
    """

    prefix: Length
    part: Part
    drafter: Name
    ms: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=MOST_TIMES)]
    repeat: Count = 0
    tokens: Count = 0
    drafted: Count = 0
    judged: Count = 0
    accepted: Count = 0
    draft_ms: Annotated[tuple[Amount, ...], Field(max_length=MOST_TIMES)] = ()
    c: Amount | None = None
    ratio: Positive | None = None


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class Result:
    """A record of long contexts, read and checked."""

    plan: Plan
    conditions: Mapping[str, Any]
    samples: Annotated[tuple[Sample, ...], Field(max_length=MOST_SAMPLES)]
    finish: Finish

    @property
    def lengths(self) -> tuple[int, ...]:
        """The prefixes that were come to, the shortest first."""
        return tuple(sorted({each.prefix for each in self.samples}))

    def at(self, prefix: int, part: Part, drafter: str = PLAIN) -> list[Sample]:
        """The samples of one way behind one prefix."""
        wanted = (prefix, part, drafter)
        return [each for each in self.samples if (each.prefix, each.part, each.drafter) == wanted]


# ---------------------------------------------------------------- declaring


def reading() -> tuple[Question, ...]:
    """Passages that no head was trained on, one after another, the last to be summarised."""
    return tuple(Question(task, text) for task, text in held_out_prompts(TASKS, PASSAGES))


def size(plan: Plan) -> int:
    """How many samples a whole run brings."""
    decodes = sum(len(order) for order in plan.orders) * plan.repeats
    return len(set(plan.lengths)) * (len(PASSES) + decodes)


def validate(plan: Plan) -> Plan:
    """The plan where it can be run; RequestError or ValueError where a part of it cannot."""
    if not plan.questions or not plan.drafters or not plan.lengths or min(plan.passes, plan.repeats) < 1:
        raise ValueError("an experiment with long contexts needs texts, a drafter, a length, a pass and a repeat")
    if plan.max_new_tokens < 2:
        raise ValueError("the first token belongs to the prefill: ask for more")
    if len(plan.lengths) > MOST_LENGTHS or len(plan.drafters) > MOST_DRAFTERS or plan.passes > MOST_TIMES:
        raise ValueError(f"at most {MOST_LENGTHS} lengths, {MOST_DRAFTERS} drafters and {MOST_TIMES} passes at once")
    check_choices(plan.drafters)
    check_size(size(plan), MOST_SAMPLES)
    for choice in plan.drafters:
        check(_request(plan, choice, plan.questions[-1].prompt))
    return plan


def _request(plan: Plan, choice: Choice | None, text: str) -> Request:
    plain = Request(text, PLAIN, gamma=plan.gamma, max_new_tokens=plan.max_new_tokens, chat=plan.questions[-1].chat)
    if choice is None:
        return plain
    return replace(plain, drafter=choice.drafter, options=choice.options, rule=choice.rule)


def prefix(loaded: Loaded, plan: Plan, length: int) -> str:
    """A prompt that is exactly so many tokens for this target: the last question, and of the text before it the end.

    RequestError where the texts are too short or too long for it, or the model's context is.
    """
    *before, last = (question.prompt for question in plan.questions)
    ids = encoder(loaded)(BETWEEN.join(before))

    def cut(kept: int) -> str:
        return str(loaded.tokenizer.decode(ids[len(ids) - kept :])) + BETWEEN + last if kept else last

    def count(text: str) -> int:
        return len(encode_prompt(loaded, _request(plan, None, text)))

    least = min(1, len(ids))
    low, high = (
        count(cut(least)),
        min(count(cut(len(ids))), CachedModel(loaded.model).context_limit - plan.max_new_tokens),
    )
    if low <= length <= high:
        near = min(length - low + least, len(ids))
        near -= count(cut(near)) - length
        for kept in sorted(range(near - NEAR, near + NEAR + 1), key=lambda each: abs(each - near)):
            if least <= kept <= len(ids) and count(cut(kept)) == length:
                return cut(kept)
    raise RequestError("error.context_length", length=length, low=low, high=high)


# ---------------------------------------------------------------- measuring


class Prefix(CachedModel):
    """A target that has read a prompt; every run begins behind it and leaves it as it was."""

    def __init__(self, loaded: Loaded, prompt: Sequence[int]) -> None:
        super().__init__(loaded.model, loaded.cache)
        self._prompt = list(prompt)
        self._known = super().prefill(self._prompt)

    def prefill(self, prompt: Sequence[int], needs: Needs = NOTHING) -> tuple[Tensor, Seen]:
        if list(prompt) != self._prompt:
            raise ValueError("another prompt than the one that was read")
        if needs == NOTHING:
            return self._known
        # Who wants to see hidden states must see those of the prompt.
        self.roll_back(0)
        return super().prefill(prompt, needs)

    def lend(self, other: CachedModel) -> None:
        """Let a drafter that was built on another cache of this model look into this one."""
        other._cache = self._cache

    def close(self) -> None:
        self.roll_back(len(self._prompt))


def begin(loaded: Loaded, plan: Plan) -> dict[str, Any]:
    """A record without samples: what is measured and under which conditions. It counts as stopped until it is done."""
    return {
        "schema": SCHEMA,
        "kind": "context",
        "plan": asdict(plan),
        "conditions": {
            **conditions(loaded),
            "target": loaded.entry.name,
            "batch": 1,
            "gamma": plan.gamma,
            "temperature": 0,
            "max_new_tokens": plan.max_new_tokens,
            "end_of_text": "ignored",
            "passes": plan.passes,
            "repeats": plan.repeats,
            "weight_bytes": loaded.weight_bytes,
            "kv_bytes_per_token": kv_bytes_per_token(loaded.model),
            "clock": "after the first token",
        },
        "samples": [],
        "finish": "stopped",
    }


def run(
    loaded: Loaded, plan: Plan, stop: Callable[[], bool] = lambda: False, progress: Progress = iter
) -> Generator[Sample]:
    """The passes and decodes behind each prefix, the shortest first; ends early, with whole samples, once stopped.

    Every text is as long as the plan says, whatever the model would have ended.
    """
    lengths = sorted(set(validate(plan).lengths))
    texts = {length: prefix(loaded, plan, length) for length in lengths}
    for length in progress(lengths):
        if stop():
            return
        target = Prefix(loaded, encode_prompt(loaded, _request(plan, None, texts[length])))
        bench = Bench(loaded, plan, target, texts[length], stop)
        if length == lengths[0]:
            bench.warm()
        yield from bench.passes(length)
        for repeat in range(plan.repeats):
            for order in plan.orders:
                yield from bench.decodes(length, order[:: 1 if repeat % 2 == 0 else -1], repeat)


def measure(
    loaded: Loaded,
    plan: Plan,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = iter,
    keep: Keep = lambda _: None,
) -> dict[str, Any]:
    """A whole plan as a `specviz.result/1` record; what was measured before `stop` stays in it.

    `keep` gets the record however it ends, even where a run fails.
    """
    record = begin(loaded, validate(plan))
    return gather(record, record["samples"], run(loaded, plan, stop, progress), stop, keep)


class Bench:
    """Times passes and runs behind one prefix."""

    def __init__(self, loaded: Loaded, plan: Plan, target: Prefix, text: str, stop: Callable[[], bool]) -> None:
        self._loaded = loaded
        self._plan = plan
        self._target = target
        self._text = text
        self._stop = stop

    def warm(self) -> None:
        """Every way once before it is timed: a first pass allocates, and a second model is read from its file."""
        for choice in (None, *self._plan.drafters):
            if not self._stop():
                self._decode(choice, WARM_TOKENS)

    def passes(self, length: int) -> Generator[Sample]:
        """The three kinds of pass, taking turns; every other turn goes backwards."""
        times: dict[Part, list[float]] = {part: [] for part in PASSES}
        for part in PASSES:
            self._time(part)
        for turn in range(self._plan.passes):
            if self._stop():
                return
            for part in PASSES[:: 1 if turn % 2 == 0 else -1]:
                times[part].append(self._time(part))
        beside = times["one"]
        for part, each in times.items():
            ratios = [ms / one for ms, one in zip(each, beside, strict=True)]
            c = round(statistics.median(ratios), 4) if part == "self" else None
            yield Sample(length, part, PLAIN, _short(each), c=c)

    @torch.inference_mode()
    def _time(self, part: Part) -> float:
        """Milliseconds of one pass, or a token of several: what stands in the cache is fed again behind itself."""
        target, gamma = self._target, self._plan.gamma
        # Which tokens they are makes no difference to a pass.
        feeds = {"one": [[0]], "wide": [[0] * (gamma + 1)], "self": [[0]] * gamma}[part]
        began = target.now()
        for tokens in feeds:
            target.feed(tokens, keep=len(tokens))
        ms = 1000 * (target.now() - began) / len(feeds)
        target.close()
        return ms

    def decodes(self, length: int, order: Sequence[Choice | None], repeat: int) -> Generator[Sample]:
        """A plain run and the speculative ones beside it, each told as soon as the plain one is there."""
        plain: Trace | None = None
        waiting: list[tuple[Choice | None, Trace]] = []
        for choice in order:
            trace = self._decode(choice, self._plan.max_new_tokens)
            if trace.finish == "stopped":
                return
            waiting.append((choice, trace))
            plain = trace if choice is None else plain
            if plain is not None:
                for each, found in waiting:
                    yield sample(length, each.label if each else PLAIN, repeat, found, plain)
                waiting.clear()

    def _decode(self, choice: Choice | None, tokens: int) -> Trace:
        made = prepare(self._loaded, _request(self._plan, choice, self._text))
        self._target.lend(made.target)
        # Every run writes as many tokens, whatever it says.
        settings = replace(made.settings, ends=frozenset(), max_new_tokens=tokens)
        return Run(made.header, decode(self._target, made.drafter, made.prompt, settings, self._stop)).collect()


def sample(length: int, drafter: str, repeat: int, trace: Trace, plain: Trace) -> Sample:
    """The numbers of a run beside its plain run."""
    found = summarise(trace, plain)
    drafting = [(round_.ms.propose or 0.0) / len(round_.nodes) for round_ in trace.decoding if round_.nodes]
    speculative = drafter != PLAIN
    return Sample(
        length,
        "decode",
        drafter,
        _short(round_.ms.total for round_ in trace.decoding),
        repeat,
        found.emitted,
        found.drafted,
        found.judged,
        found.accepted,
        _short(drafting),
        _rounded(found.c.value) if speculative and found.c else None,
        _rounded(found.speedup.value) if found.speedup else None,
    )


def _short(times: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(each, 4) for each in times)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


# ---------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class Split:
    """A pass over one token behind n tokens, as a straight line: `rest` + n × `per_token` milliseconds.

    `rest` is what no prefix changes, weights above all; `off` is by which share of it the worst of the medians leaves
    the line. It is a reading of times, not a count of bytes.
    """

    rest: float
    per_token: float
    off: float

    def kv(self, length: int) -> float:
        """The milliseconds that the prefix takes; never less than none."""
        return max(self.per_token, 0.0) * length


def split(result: Result) -> Split | None:
    """The line through the medians by least squares; None where fewer than two prefixes were come to."""
    known = {length: middle(result.at(length, "one")) for length in result.lengths if result.at(length, "one")}
    if len(known) < 2:
        return None
    xs, ys = np.array(list(known), dtype=float), np.array(list(known.values()))
    slope, rest = (float(each) for each in np.polyfit(xs, ys, 1))
    return Split(rest, slope, float(np.max(np.abs(rest + slope * xs - ys) / ys)))


def middle(samples: Sequence[Sample]) -> float:
    """The median of all times of some samples."""
    return statistics.median(ms for each in samples for ms in each.ms)


def rates(samples: Sequence[Sample]) -> dict[str, float | None]:
    """α, τ, c and speedup of the decodes of one way: totals ÷ totals, medians over repeats."""
    judged = sum(each.judged for each in samples)
    costs = [each.c for each in samples if each.c is not None]
    ratios = [each.ratio for each in samples if each.ratio is not None]
    return {
        "alpha": sum(each.accepted for each in samples) / judged if judged else None,
        "tau": sum(each.tokens for each in samples) / sum(len(each.ms) for each in samples),
        "c": statistics.median(costs) if costs else None,
        "speedup": statistics.median(ratios) if ratios else None,
    }


_READER: TypeAdapter[Result] = TypeAdapter(Result)


def read(body: Any) -> Result:
    """A record as its file holds it; ResultError names the field that is wrong."""
    found = read_as(_READER, "context", body)
    for place, each in enumerate(found.samples):
        if not each.accepted <= each.judged <= each.drafted:
            raise ResultError(f"samples.{place}", "more was accepted than judged, or judged than drafted")
        if each.part == "decode" and not each.tokens:
            raise ResultError(f"samples.{place}.tokens", "a decode writes something")
    for name in ("weight_bytes", "kv_bytes_per_token"):
        if type(found.conditions.get(name)) is not int or found.conditions[name] < 1:
            raise ResultError(f"conditions.{name}", "a number of bytes is missing")
    return found


def to_csv(result: Result) -> str:
    """A line a sample: its counts, and percentiles of its milliseconds."""
    names = [each.name for each in fields(Sample) if each.name not in ("ms", "draft_ms")]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "times", "p50", "p95", "p99"])
    for each in result.samples:
        writer.writerow([*(getattr(each, name) for name in names), len(each.ms), *spread(each.ms)])
    return out.getvalue()


def spread(times: Sequence[float]) -> tuple[float, float, float]:
    """p50, p95 and p99 of milliseconds."""
    p50, p95, p99 = (round(each, 3) for each in percentiles(times))
    return p50, p95, p99
