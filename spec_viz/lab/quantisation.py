"""Quantisation: the target with weights and KV cache of few bits, and what speculative decoding keeps of it.

A rule keeps the law of the target that judges. Where that target is quantised, its own law is kept exactly, and the
full target's is not: how far the two lie apart is the quantisation's error, and no rule mends it. So every form of
the target is measured twice: its speculative texts against its own plain text, and its law against the full target's,
on the text that the full target writes. Codes make float32's rounding visible (see `engine.quantised`), so a text that
leaves its own target's is decoded again in float64, where a rule that keeps the law keeps the text too.

What drafters lose and gain comes on top: one that was trained on the full target is judged by another, and a pass
that costs less leaves less to be saved.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import ConfigDict, Field, with_config
from torch import Tensor

from spec_viz.drafters.none import NoDrafter, Stateless
from spec_viz.engine.cache import growing, kv_bytes_per_token, new_cache
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Drafter, Proposal
from spec_viz.engine.quantised import WIDTHS, Form, Width, kv_bytes_of, new_quantised_cache
from spec_viz.engine.target import CachedModel
from spec_viz.engine.trace import Round, Trace
from spec_viz.lab.bench import SCHEMA, Question
from spec_viz.lab.metrics import PERCENTILES, percentiles, summarise
from spec_viz.lab.run import Request, RequestError, check, conditions, end_tokens, start
from spec_viz.lab.sweep import (
    WARM_TOKENS,
    Amount,
    Choice,
    Count,
    Finish,
    Keep,
    Name,
    Positive,
    Progress,
    check_choices,
    gather,
    lengths_of,
)
from spec_viz.models.load import SMALL, Loaded
from spec_viz.models.quantise import Weights, can_run, in_float64, quantise

MOST_PROMPTS, MOST_DRAFTERS = 100, 8
# Vectors with one channel this many times as loud as the others show what a rotation is for.
LOUD = 20
LOUD_VECTORS = 1000

What = Literal["keys", "values", "loud"]
Times = tuple[Positive, Positive, Positive]


# ---------------------------------------------------------------- declaring


@dataclass(frozen=True, slots=True)
class Variant:
    """A form of the target: its weights, and the bits of its KV cache (None for a full one), turned before or not."""

    weights: Weights = "full"
    bits: Width | None = None
    rotated: bool = False

    @property
    def kv(self) -> Form | None:
        """The form of its cache."""
        return None if self.bits is None else Form(self.bits, self.rotated)


FULL = Variant()
VARIANTS = (
    FULL,
    Variant("int8"),
    Variant("int4"),
    Variant("int8_bfloat16"),
    Variant(bits=8),
    Variant(bits=4),
    Variant(bits=4, rotated=True),
    Variant(bits=3),
    Variant(bits=3, rotated=True),
)
# The forms by short names: of weights their own, of caches their bits, with an r where vectors are turned before.
NAMED = {f"kv{each.bits}{'r' * each.rotated}" if each.bits else each.weights: each for each in VARIANTS[1:]}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured: every form of the target with every drafter on every question, greedily.

    `passes` are how often a pass over one token and one over γ + 1 are timed in each form.
    """

    questions: Annotated[tuple[Question, ...], Field(max_length=MOST_PROMPTS)]
    drafters: Annotated[tuple[Choice, ...], Field(max_length=MOST_DRAFTERS)] = (
        Choice("prompt_lookup"),
        Choice("eagle3"),
    )
    variants: Annotated[tuple[Variant, ...], Field(max_length=64)] = VARIANTS
    gamma: int = 4
    max_new_tokens: int = 24
    passes: int = 8

    @property
    def forms(self) -> tuple[Variant, ...]:
        """The full target, which all others are compared with, and then they."""
        return tuple(dict.fromkeys((FULL, *self.variants)))

    def request(self, question: Question, choice: Choice | None) -> Request:
        """What a run asks for; None is the plain run."""
        plain = Request(question.prompt, "none", max_new_tokens=self.max_new_tokens, chat=question.chat)
        if choice is None:
            return plain
        return replace(plain, drafter=choice.drafter, options=choice.options, rule=choice.rule, gamma=self.gamma)


def size(plan: Plan) -> int:
    """How many samples a whole run brings."""
    return len(plan.forms)


def validate(plan: Plan) -> Plan:
    """The plan where it can be run; RequestError or ValueError where a part of it cannot."""
    if not plan.questions or not plan.drafters or plan.passes < 2:
        raise ValueError("a prompt, a drafter and two passes are needed")
    if len(plan.questions) > MOST_PROMPTS or len(plan.drafters) > MOST_DRAFTERS:
        raise ValueError(f"at most {MOST_PROMPTS} prompts and {MOST_DRAFTERS} drafters at once")
    check_choices(plan.drafters)
    for question in plan.questions:
        for choice in (None, *plan.drafters):
            check(plan.request(question, choice))
    for variant in plan.forms:
        if variant.rotated and variant.bits is None:
            raise ValueError("only what is quantised is turned before")
        if not can_run(variant.weights):
            raise RequestError("error.quantisation_kernel", name=variant.weights)
    return plan


# ---------------------------------------------------------------- samples


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class Left:
    """Where a text leaves the plain one: the place, and by how much the best logit led there.

    `exact` is whether plain text and speculative text are the same in float64: then it was rounding that parted them.
    None where the model is too large to be tried.
    """

    at: Count
    lead: Amount
    exact: bool | None


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class Written:
    """One speculative run beside the plain run of the same form: counts and milliseconds after the prefill.

    `ratio` is its speed ÷ that of the plain run; `left` is where its text leaves the plain one, None where it doesn't.
    """

    drafter: Name
    prompt: Count
    rounds: Annotated[int, Field(ge=1, le=10**6)]
    tokens: Annotated[int, Field(ge=1, le=10**6)]
    accepted: Count
    judged: Count
    tree: bool
    ms: Positive
    plain_tokens: Annotated[int, Field(ge=1, le=10**6)]
    plain_ms: Positive
    ratio: Positive
    left: Left | None

    def __post_init__(self) -> None:
        if self.accepted > self.judged:
            raise ValueError("more was accepted than judged")


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class Lost:
    """How far vectors lie from what is stored of them: √(Σ‖x − x̂‖² ÷ Σ‖x‖²)."""

    what: What
    bits: Width
    rotated: bool
    error: Amount


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class Sample:
    """One form of the target.

    Bytes are those of all weights (of `embedding` bytes of them none was quantised) and of a token's keys and values,
    as they are stored. `one` and `many` are p50, p95 and p99 milliseconds of a pass over one and over γ + 1 tokens,
    `slower` and `v` the medians of the ratios of neighbours in time: a pass over one ÷ the full target's, and over
    γ + 1 ÷ over one.

    On the text that the full target writes: `kl` are the mean and p95 of KL(full ‖ this form) in nats, and at `agreed`
    of `places` both have the same best token. `apart` is where each prompt's plain text leaves the full target's.
    `lost` is told with the full target, whose keys and values it is about.
    """

    variant: Variant
    weight_bytes: Annotated[int, Field(ge=1, le=10**13)]
    embedding_bytes: Annotated[int, Field(ge=0, le=10**13)]
    kv_bytes: Annotated[int, Field(ge=1, le=10**10)]
    one: Times
    many: Times
    slower: Positive
    v: Positive
    kl: tuple[Amount, Amount]
    agreed: Count
    places: Annotated[int, Field(ge=1, le=10**7)]
    apart: Annotated[tuple[Count | None, ...], Field(max_length=MOST_PROMPTS)]
    runs: Annotated[tuple[Written, ...], Field(max_length=MOST_DRAFTERS * MOST_PROMPTS)]
    lost: Annotated[tuple[Lost, ...], Field(max_length=64)] = ()

    def __post_init__(self) -> None:
        if self.agreed > self.places:
            raise ValueError("more places agree than there are")


@dataclass(frozen=True, slots=True)
class Rates:
    """What a drafter's runs on one form say together; α is None for trees and where nothing was judged.

    `speedup` is the median over prompts. `kept` counts the texts that are the form's own plain text.
    """

    alpha: float | None
    tau: float
    speedup: float
    kept: int
    texts: int


def rates(sample: Sample, drafter: str) -> Rates | None:
    """The rates of one drafter; None where it has no runs."""
    runs = [run for run in sample.runs if run.drafter == drafter]
    if not runs:
        return None
    chains = [run for run in runs if not run.tree]
    judged = sum(run.judged for run in chains)
    return Rates(
        alpha=sum(run.accepted for run in chains) / judged if judged else None,
        tau=sum(run.tokens for run in runs) / sum(run.rounds for run in runs),
        speedup=statistics.median(run.ratio for run in runs),
        kept=sum(run.left is None for run in runs),
        texts=len(runs),
    )


# ---------------------------------------------------------------- running


def begin(loaded: Loaded, plan: Plan) -> dict[str, Any]:
    """A record without samples: what is measured and under which conditions. It counts as stopped until it is done."""
    lengths = lengths_of(loaded, plan.questions, plan.max_new_tokens)
    told = repr([asdict(question) for question in plan.questions])
    return {
        "schema": SCHEMA,
        "kind": "quantisation",
        "plan": asdict(plan),
        "conditions": {
            **conditions(loaded),
            "target": loaded.entry.name,
            "batch": 1,
            "context": [min(lengths), max(lengths)],
            "context_limit": loaded.model.config.max_position_embeddings,
            "prompts": len(plan.questions),
            "prompts_digest": sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:12],
            "gamma": plan.gamma,
            "temperature": 0,
            "max_new_tokens": plan.max_new_tokens,
            "passes": plan.passes,
            "clock": "after the first token",
        },
        "samples": [],
        "finish": "stopped",
    }


def run(
    loaded: Loaded, plan: Plan, stop: Callable[[], bool] = lambda: False, progress: Progress = iter
) -> Generator[Sample]:
    """A sample a form of the target, the full one first; ends early, with whole samples, once `stop` says so."""
    bench = Bench(loaded, validate(plan), stop)
    for variant in progress(plan.forms):
        sample = bench.sample(variant)
        if sample is None:
            return
        yield sample


def measure(
    loaded: Loaded,
    plan: Plan,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = iter,
    keep: Keep = lambda _: None,
) -> dict[str, Any]:
    """A whole plan as a `specviz.result/1` record; what was measured before `stop` stays in it.

    `keep` gets the record however it ends, even where a form fails.
    """
    record = begin(loaded, validate(plan))
    return gather(record, record["samples"], run(loaded, plan, stop, progress), stop, keep)


@dataclass(frozen=True, slots=True)
class Text:
    """What the full target writes after a prompt, and its logits (n, V) at every place of it."""

    prompt: list[int]
    written: list[int]
    logits: Tensor


@dataclass(frozen=True, slots=True)
class Replay(Stateless):
    """Drafts the tokens of a text that was written before behind a prompt of so many tokens."""

    prompt_length: int
    text: tuple[int, ...]

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        written = len(context) - self.prompt_length
        return Proposal(self.text[written : written + gamma])


class Bench:
    """Measures one form of the target after another, each beside the full one."""

    def __init__(self, loaded: Loaded, plan: Plan, stop: Callable[[], bool]) -> None:
        self._loaded = loaded
        self._plan = plan
        self._stop = stop
        self._texts: list[Text] = []
        self._made: tuple[Weights, Loaded] = ("full", loaded)

    def sample(self, variant: Variant) -> Sample | None:
        """Everything about one form; None where it was stopped. RequestError where the model does not take it."""
        try:
            mine = self._form(variant)
            if not self._texts and not self._write():
                return None
            if not self._warm(mine):
                return None
            one, many, slower, v = self._time(mine)
            kl, agreed, places = self._compare(mine)
        except ValueError as problem:
            if isinstance(problem, RequestError):
                raise
            raise RequestError("error.quantisation_shape") from problem
        runs: list[Written] = []
        apart: list[int | None] = []
        for number, question in enumerate(self._plan.questions):
            found = self._decode(mine, number, question)
            if found is None:
                return None
            apart.append(found[0])
            runs += found[1]
        kv = variant.kv
        return Sample(
            variant=variant,
            weight_bytes=mine.weight_bytes,
            embedding_bytes=mine.model.get_input_embeddings().weight.nbytes,
            kv_bytes=kv_bytes_of(mine.model, kv) if kv else kv_bytes_per_token(mine.model),
            one=one,
            many=many,
            slower=slower,
            v=v,
            kl=kl,
            agreed=agreed,
            places=places,
            apart=tuple(apart),
            runs=tuple(runs),
            lost=self._lost() if variant == FULL else (),
        )

    def _form(self, variant: Variant) -> Loaded:
        """The target in this form; the weights of the last one are kept for the next, if they are the same."""
        if self._made[0] != variant.weights:
            self._made = ("full", self._loaded)
            self._made = (variant.weights, quantise(self._loaded, variant.weights))
        made, kv = self._made[1], variant.kv
        return replace(made, cache=partial(new_quantised_cache, kv)) if kv else made

    def _write(self) -> bool:
        for question in self._plan.questions:
            trace = start(self._loaded, self._plan.request(question, None), self._stop).collect()
            if trace.finish == "stopped":
                return False
            written = list(trace.output)
            self._texts.append(Text(list(trace.prompt), written, self._read(self._loaded, list(trace.prompt), written)))
        return True

    def _warm(self, mine: Loaded) -> bool:
        """Everything runs once before it is timed: the first pass allocates, and a second model is read."""
        for choice in self._plan.drafters:
            request = replace(self._plan.request(self._plan.questions[0], choice), max_new_tokens=WARM_TOKENS)
            if start(mine, request, self._stop).collect().finish == "stopped":
                return False
        return True

    def _read(self, mine: Loaded, prompt: list[int], written: list[int]) -> Tensor:
        """Logits (n, V) in front of every token that was written, all from one pass."""
        target = CachedModel(mine.model, mine.cache)
        return target.feed([*prompt, *written[:-1]], keep=len(written))

    def _time(self, mine: Loaded) -> tuple[Times, Times, float, float]:
        text, more = self._texts[0], self._plan.gamma + 1
        tokens = [*text.prompt, *text.written]
        targets = [CachedModel(each.model, each.cache) for each in (self._loaded, mine)]
        for target in targets:
            target.prefill(tokens)
            for count in (1, more):
                _pass(target, tokens[:count])
        full, own = targets
        times: list[tuple[float, float, float]] = []
        for repeat in range(self._plan.passes):
            # Forwards, then backwards: a slow drift of the machine touches all alike.
            order = [(full, 1), (own, 1), (own, more)][:: 1 if repeat % 2 == 0 else -1]
            found = [_pass(target, tokens[:count]) for target, count in order][:: 1 if repeat % 2 == 0 else -1]
            times.append((found[0], found[1], found[2]))
        slower = statistics.median(one / theirs for theirs, one, _ in times)
        v = statistics.median(many / one for _, one, many in times)
        return _spread([one for _, one, _ in times]), _spread([many for _, _, many in times]), slower, v

    @torch.inference_mode()
    def _compare(self, mine: Loaded) -> tuple[tuple[float, float], int, int]:
        """KL(full ‖ mine), mean and p95, and at how many of how many places both have the same best token."""
        values: list[float] = []
        agreed = 0
        for text in self._texts:
            logits = self._read(mine, text.prompt, text.written)
            full, own = text.logits.double().log_softmax(-1), logits.double().log_softmax(-1)
            # Rounding may leave a sum that is zero a little below it.
            values += (full.exp() * (full - own)).sum(-1).clamp_min(0).tolist()
            agreed += int((text.logits.argmax(-1) == logits.argmax(-1)).sum())
        return (statistics.fmean(values), float(np.percentile(values, 95))), agreed, len(values)

    def _decode(self, mine: Loaded, number: int, question: Question) -> tuple[int | None, list[Written]] | None:
        """Where the plain text leaves the full target's, and a run a drafter; a plain run stands between two of them.

        None where it was stopped.
        """
        runs: list[Written] = []
        apart: int | None = None
        drafters = self._plan.drafters
        for at in range(0, len(drafters), 2):
            order: list[Choice | None] = [drafters[at], None, *drafters[at + 1 : at + 2]]
            traces: dict[str, Trace] = {}
            # Every other question goes backwards.
            for choice in order[:: -1 if number % 2 else 1]:
                trace = start(mine, self._plan.request(question, choice), self._stop).collect()
                if trace.finish == "stopped":
                    return None
                traces[choice.label if choice else "none"] = trace
            plain = traces.pop("none")
            apart = _leaves(plain.output, self._texts[number].written)
            found = (self._written(mine, label, number, trace, plain) for label, trace in traces.items())
            runs += [each for each in found if each]
        return apart, runs

    def _written(self, mine: Loaded, label: str, number: int, speculative: Trace, plain: Trace) -> Written | None:
        """The numbers of a run; None where it or the plain run beside it has no rounds."""
        summary, base = summarise(speculative, plain), summarise(plain)
        ratio = summary.speedup.value if summary.speedup else None
        if not ratio:
            return None
        at = _leaves(speculative.output, plain.output)
        return Written(
            drafter=label,
            prompt=number,
            rounds=summary.rounds,
            tokens=summary.emitted,
            accepted=summary.accepted,
            judged=summary.judged,
            tree=summary.is_tree,
            ms=round(summary.ms["total"].total, 3),
            plain_tokens=base.emitted,
            plain_ms=round(base.ms["total"].total, 3),
            ratio=round(ratio, 5),
            left=None if at is None else self._judge(mine, at, speculative, plain),
        )

    def _judge(self, mine: Loaded, at: int, speculative: Trace, plain: Trace) -> Left:
        prompt = list(plain.prompt)
        lead = self._lead(mine, [*prompt, *plain.output[:at]])
        if mine.entry.parameters >= SMALL:
            return Left(at, lead, None)
        exact = in_float64(mine)
        replay = Replay(len(prompt), tuple(speculative.output))
        texts = [self._again(exact, prompt, drafter) for drafter in (NoDrafter(), replay)]
        return Left(at, lead, texts[0] == texts[1])

    def _again(self, exact: Loaded, prompt: list[int], drafter: Drafter) -> list[int]:
        settings = Settings(self._plan.gamma, self._plan.max_new_tokens, ends=end_tokens(exact))
        parts = decode(CachedModel(exact.model, exact.cache), drafter, prompt, settings, lambda: False)
        return [token for part in parts if isinstance(part, Round) for token in part.committed]

    def _lead(self, mine: Loaded, tokens: Sequence[int]) -> float:
        """By how much the best next logit leads the second."""
        best = CachedModel(mine.model, mine.cache).prefill(tokens)[0][0].topk(2).values
        return float(best[0] - best[1])

    @torch.inference_mode()
    def _lost(self) -> tuple[Lost, ...]:
        """What every width loses of the full target's keys and values, and of vectors with one loud channel."""
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for text in self._texts:
            cache = new_cache()
            ids = torch.tensor([[*text.prompt, *text.written]], device=self._loaded.device)
            self._loaded.model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1)
            for layer in growing(cache):
                keys.append(layer.keys[:, :, : layer.length].flatten(0, 2))
                values.append(layer.values[:, :, : layer.length].flatten(0, 2))
        given: dict[What, Tensor] = {"keys": torch.cat(keys), "values": torch.cat(values)}
        loud = torch.randn(LOUD_VECTORS, keys[0].shape[-1], generator=torch.Generator().manual_seed(0))
        loud[:, 0] *= LOUD
        given["loud"] = loud
        return tuple(
            Lost(what, bits, rotated, _error(Form(bits, rotated), vectors))
            for what, vectors in given.items()
            for rotated in (False, True)
            for bits in WIDTHS
        )


def _error(form: Form, vectors: Tensor) -> float:
    """√(Σ‖x − x̂‖² ÷ Σ‖x‖²) of vectors (n, d)."""
    return float((form.read(form.write(vectors), vectors.dtype) - vectors).norm() / vectors.norm())


def _pass(target: CachedModel, tokens: Sequence[int]) -> float:
    """Milliseconds of a pass with logits at every position, as a verify pass has them; leaves the cache as it was."""
    length = target.length
    began = target.now()
    target.feed(tokens, keep=len(tokens))
    ms = 1000 * (target.now() - began)
    target.roll_back(length)
    return ms


def _spread(times: Sequence[float]) -> Times:
    p50, p95, p99 = (round(each, 4) for each in percentiles(times))
    return p50, p95, p99


def _leaves(text: Sequence[int], other: Sequence[int]) -> int | None:
    """The first place at which two texts differ; None where they don't."""
    return next((at for at, (mine, its) in enumerate(zip_longest(text, other)) if mine != its), None)


# ---------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class Result:
    """A record of quantisation, read and checked."""

    plan: Plan
    conditions: Mapping[str, Any]
    samples: Annotated[tuple[Sample, ...], Field(max_length=64)]
    finish: Finish


def to_csv(result: Result) -> str:
    """A line a run, with the numbers of its form of the target in front."""
    own = [each.name for each in fields(Written) if each.name != "left"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    form = ["weights", "kv_bits", "rotated", "weight_bytes", "kv_bytes", "slower", "v", "kl", "agreed", "places"]
    passes = [f"{name}_p{at}_ms" for name in ("one", "many") for at in PERCENTILES]
    writer.writerow([*form, *passes, *own, "left_at", "left_lead", "left_exact"])
    for sample in result.samples:
        variant = sample.variant
        front: list[Any] = [variant.weights, variant.bits, variant.rotated, sample.weight_bytes, sample.kv_bytes]
        front += [sample.slower, sample.v, sample.kl[0], sample.agreed, sample.places, *sample.one, *sample.many]
        for each in sample.runs:
            left = [each.left.at, each.left.lead, each.left.exact] if each.left else [None] * 3
            writer.writerow([*front, *(getattr(each, name) for name in own), *left])
    return out.getvalue()
