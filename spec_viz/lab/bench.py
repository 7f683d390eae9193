"""Speed beside peers: the same prompts through our loop and transformers' generate, in one process, as ratios.

Machines are noisy, so the methods take turns on every prompt, and what is reported is the median over prompts of the
ratio between neighbours in time, never an absolute speed. Times are after the first token: a prefill is the same work
for all.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any

import torch

from spec_viz.engine.device import wait
from spec_viz.lab.metrics import percentiles, summarise
from spec_viz.lab.run import Request, Run, check, conditions, encode_prompt, end_tokens, start
from spec_viz.models.catalogue import DRAFT
from spec_viz.models.load import Loaded, load
from spec_viz.models.weights import fetch
from spec_viz.serving.client import Server

SCHEMA = "specviz.result/1"
# Letters of a category's name, as a result holds it.
MOST_NAME = 60


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt and the category it is counted under; `chat` asks it through the model's chat template."""

    category: str
    prompt: str
    chat: bool = True


@dataclass(frozen=True, slots=True)
class Measured:
    """Decode seconds and tokens after the first, the ids of the whole answer, and what the rounds say where known.

    `positions` are (judged, accepted) by draft position, of chains; `draft_ms` is per drafted token.
    """

    seconds: float
    tokens: int
    output: tuple[int, ...]
    alpha: float | None = None
    tau: float | None = None
    coverage: float | None = None
    positions: tuple[tuple[int, int], ...] = ()
    draft_ms: float | None = None


Method = Callable[[Question], Measured]


@dataclass(frozen=True, slots=True)
class Timing(Measured):
    """One method on one prompt, measured."""

    method: str = field(kw_only=True)
    category: str = field(kw_only=True)
    prompt: int = field(kw_only=True)

    @property
    def rate(self) -> float:
        """Tokens a second after the first token."""
        return self.tokens / self.seconds


def read_questions(path: Path, categories: Sequence[str] | None, limit: int) -> list[Question]:
    """The first `limit` questions of each category of a Spec-Bench file (first turns); ValueError names a bad line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is no text in UTF-8.") from None
    counts: Counter[str] = Counter()
    questions: list[Question] = []
    # Not splitlines: a JSON text may hold the line separators of Unicode as they are.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        question = _question(line)
        if question is None:
            wanted = '{"category": "rag", "turns": ["…"]}'
            raise ValueError(f"{path.name}, line {number}: no question. A line looks like {wanted}.")
        counts[question.category] += 1
        if (categories is None or question.category in categories) and counts[question.category] <= limit:
            questions.append(question)
    if not counts:
        raise ValueError(f"{path.name} holds no question.")
    if unknown := sorted({*(categories or ())} - counts.keys()):
        raise ValueError(f"{path.name} has no category {', '.join(unknown)}; it has: {', '.join(counts)}.")
    return questions


def _question(line: str) -> Question | None:
    """What a line asks, read as the page reads it (readQuestions in assets/js/lab/results.js); None for no question."""
    try:
        body = json.loads(line)
    except ValueError:
        return None
    if not isinstance(body, dict):
        return None
    turns = body.get("turns")
    prompt = turns[0] if isinstance(turns, list) and turns else body.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        return None
    category = body.get("category")
    return Question(("" if category is None else str(category)).strip()[:MOST_NAME] or "–", prompt)


def measure(
    loaded: Loaded,
    questions: Sequence[Question],
    drafters: Sequence[str],
    *,
    peers: Mapping[str, Method],
    gamma: int,
    max_new_tokens: int,
    repeats: int,
    progress: Callable[[Sequence[Question]], Iterable[Question]],
    stop: Callable[[], bool] = lambda: False,
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Time every method on every question `repeats` times, in alternating order; a `specviz.result/1` record.

    Before that each answers the first question untimed: what it sets up on first use (threads, kernels, the passes that
    a GPU captures) is no part of its speed.

    `peers` are others' methods by name: `transformers_peers`, `server_peers`. Ends early, with what was timed, once
    `stop` says so; `keep` gets the record however it ends, even where a method fails.
    """
    for name in drafters:
        check(Request("-", name, gamma=gamma, max_new_tokens=max_new_tokens))
    methods: dict[str, Method] = {
        f"ours · {name}": partial(_ours, loaded, name, gamma, max_new_tokens) for name in ("none", *drafters)
    } | {**peers}
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "bench",
        "conditions": {
            **conditions(loaded),
            "batch": 1,
            "gamma": gamma,
            "temperature": 0,
            "max_new_tokens": max_new_tokens,
            "repeats": repeats,
            "questions": len(questions),
            "clock": "after the first token",
        },
        "ends": sorted(end_tokens(loaded)),
        "timings": [],
        "finish": "stopped",
    }
    try:
        for method in methods.values():
            if questions and not stop():
                method(questions[0])
        for timing in _timings(methods, progress(questions), repeats, stop):
            record["timings"].append(asdict(timing))
        record["finish"] = "stopped" if stop() else "done"
    finally:
        keep(record)
    return record


def _timings(
    methods: Mapping[str, Method], questions: Iterable[Question], repeats: int, stop: Callable[[], bool]
) -> Iterator[Timing]:
    for number, question in enumerate(questions):
        for repeat in range(repeats):
            # Forwards, then backwards: a slow drift of the machine touches every method alike.
            for method in list(methods)[:: 1 if repeat % 2 == 0 else -1]:
                if stop():
                    return
                measured = methods[method](question)
                if measured.tokens:
                    told = {each.name: getattr(measured, each.name) for each in fields(Measured)}
                    yield Timing(**told, method=method, category=question.category, prompt=number)


def transformers_peers(loaded: Loaded, drafters: Sequence[str], gamma: int, tokens: int) -> dict[str, Method]:
    """Transformers' generate on the stock layers: plain, and its counterparts of those drafters of ours it has."""
    # Where nothing is packed ours is stock already, and a device has no room to spare for a second one.
    stock = load(loaded.entry.name, loaded.device, False, loaded.dtype) if loaded.packed else loaded
    lookup = {"prompt_lookup_num_tokens": gamma, "max_matching_ngram_size": 3}
    peers: dict[str, Method] = {"transformers · plain": partial(_theirs, stock, tokens, {})}
    if "prompt_lookup" in drafters:
        peers["transformers · prompt_lookup"] = partial(_theirs, stock, tokens, lookup)
    if "draft_model" in drafters:
        peers["transformers · assisted"] = partial(_theirs, stock, tokens, _assisted(gamma, loaded))
    return peers


def server_peers(addresses: Mapping[str, str], tokens: int) -> dict[str, Method]:
    """Running servers by a name of one's own, asked over HTTP; ServerError where one does not answer."""
    return {f"vllm · {name}": partial(_served, Server(address), tokens) for name, address in addresses.items()}


def _served(server: Server, tokens: int, question: Question) -> Measured:
    """What the client sees, the network included; rates from vLLM's per-request lists where it sends them."""
    if not question.chat:
        raise ValueError("a server is asked through its chat template: use questions that are chat turns")
    answer = server.ask(question.prompt, tokens)
    count, seconds = answer.after_first
    told = (answer.metrics or {}).get("speculative_decoding") or {}
    steps = list(zip(told.get("per_step_drafted") or (), told.get("per_step_accepted") or (), strict=True))
    positions = tuple(
        (
            sum(place < drafted and place <= kept for drafted, kept in steps),
            sum(place < kept for _, kept in steps),
        )
        for place in range(max((drafted for drafted, _ in steps), default=0))
    )
    judged = sum(count for count, _ in positions)
    return Measured(
        seconds,
        count,
        answer.ids or (),
        sum(kept for _, kept in positions) / judged if judged else None,
        positions=positions,
    )


def _ours(loaded: Loaded, drafter: str, gamma: int, tokens: int, question: Question) -> Measured:
    request = Request(question.prompt, drafter=drafter, gamma=gamma, max_new_tokens=tokens, chat=question.chat)
    run = start(loaded, request)
    first = next(run.parts)
    wait(loaded.device)
    began = time.perf_counter()
    rest = list(run.parts)
    wait(loaded.device)
    seconds = time.perf_counter() - began
    trace = Run(run.header, iter([first, *rest])).collect()
    summary = summarise(trace)
    alpha = None if summary.alpha is None else summary.alpha.value
    positions = () if summary.is_tree else tuple((each.judged, each.accepted) for each in summary.positions)
    draft_ms = summary.ms["propose"].total / summary.drafted if summary.drafted else None
    return Measured(
        seconds,
        len(trace.output) - 1,
        tuple(trace.output),
        alpha,
        summary.tau.value,
        summary.coverage.value,
        positions,
        draft_ms,
    )


class _FirstToken:
    """A streamer that notes when the first tokens came, and how many: generate puts the prompt, then what it emits."""

    def __init__(self) -> None:
        self.puts = 0
        self.count = 0
        self.at = 0.0

    def put(self, value: torch.Tensor) -> None:
        self.puts += 1
        if self.puts == 2:
            self.at = time.perf_counter()
            self.count = value.numel()

    def end(self) -> None:
        """Nothing is buffered."""


def _assisted(gamma: int, target: Loaded) -> dict[str, Any]:
    """Transformers' own assisted generation by the same draft model, made to draft as many tokens a round as ours."""
    fetch(DRAFT)
    assistant = load(DRAFT, target.device, packed=False).model
    told = assistant.generation_config
    told.num_assistant_tokens, told.num_assistant_tokens_schedule = gamma, "constant"
    told.assistant_confidence_threshold = 0.0
    return {"assistant_model": assistant}


def _theirs(loaded: Loaded, tokens: int, options: dict[str, Any], question: Question) -> Measured:
    ids = torch.tensor([encode_prompt(loaded, Request(question.prompt, chat=question.chat))], device=loaded.device)
    streamer = _FirstToken()
    out = loaded.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=tokens,
        do_sample=False,
        streamer=streamer,
        # Theirs as it comes: a growing cache, and nothing compiled.
        cache_implementation=None,
        disable_compile=True,
        **options,
    )
    wait(loaded.device)
    # Their prompt lookup drafts before the first pass, so several tokens can come at once: none of those is timed.
    seconds, output = time.perf_counter() - streamer.at, tuple(out[0, ids.shape[1] :].tolist())
    return Measured(seconds, len(output) - streamer.count, output)


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The table: per category and method, α, τ, coverage, and the median ratios to our plain decoding and to peers.

    `same text` counts the prompts on which a method wrote what our plain decoding wrote, an end of text aside.
    """
    timings = [Timing(**timing) for timing in result["timings"]]
    ends = {*result["ends"]}
    peers = [name for name in dict.fromkeys(timing.method for timing in timings) if not name.startswith("ours · ")]
    table = []
    categories = list(dict.fromkeys(timing.category for timing in timings))
    for category in [*categories, *(["all"] if len(categories) > 1 else [])]:
        here = [timing for timing in timings if category in (timing.category, "all")]
        for method in dict.fromkeys(timing.method for timing in here):
            mine = [timing for timing in here if timing.method == method]
            table.append(
                {
                    "category": category,
                    "method": method,
                    "prompts": len({timing.prompt for timing in mine}),
                    "alpha": _median([timing.alpha for timing in mine]),
                    "tau": _median([timing.tau for timing in mine]),
                    "coverage": _median([timing.coverage for timing in mine]),
                    "by position": " ".join(f"{rate:.2f}" for rate in position_rates(mine)) or None,
                    "c": _draft_cost(here, mine),
                    "ms/token p50/p95/p99": _spread(mine),
                    "÷ ours · none": _ratio(here, method, "ours · none"),
                    **{f"÷ {peer}": _ratio(here, method, peer) for peer in peers},
                    "same text": _same(here, mine, ends),
                }
            )
    return table


def _ratio(timings: Sequence[Timing], method: str, other: str) -> str | None:
    """Median and range over prompts of rate(method) ÷ rate(other)."""
    found = ratios(timings, method, other)
    return f"{statistics.median(found):.2f} ({min(found):.2f}–{max(found):.2f})" if found else None


def ratios(timings: Sequence[Timing], method: str, other: str) -> list[float]:
    """Per prompt rate(method) ÷ rate(other), each the median of its repeats on that prompt."""
    found = []
    for prompt in dict.fromkeys(timing.prompt for timing in timings):
        pair = [
            [timing.rate for timing in timings if timing.prompt == prompt and timing.method == name]
            for name in (method, other)
        ]
        if all(pair):
            found.append(statistics.median(pair[0]) / statistics.median(pair[1]))
    return found


def _spread(timings: Sequence[Timing]) -> str:
    """Percentiles over all runs of a run's mean milliseconds a token."""
    times = [1000 / timing.rate for timing in timings]
    return " / ".join(f"{value:.1f}" for value in percentiles(times))


def _same(timings: Sequence[Timing], mine: Sequence[Timing], ends: set[int]) -> str | None:
    """On how many prompts a method's ids are those of our plain decoding; None where it tells none."""
    plain = {timing.prompt: _text(timing, ends) for timing in timings if timing.method == "ours · none"}
    told = {timing.prompt: _text(timing, ends) for timing in mine if timing.output}
    return f"{sum(text == plain.get(prompt) for prompt, text in told.items())}/{len(told)}" if told else None


def _text(timing: Timing, ends: set[int]) -> tuple[int, ...]:
    """The ids in front of the first end of text."""
    return tuple(takewhile(lambda token: token not in ends, timing.output))


def position_rates(timings: Sequence[Timing]) -> list[float]:
    """a_i of all rounds together: accepted at a position ÷ judged there, each prompt counted once."""
    once = {timing.prompt: timing.positions for timing in timings}.values()
    places = zip_longest(*once, fillvalue=(0, 0))
    sums = [(sum(judged for judged, _ in place), sum(kept for _, kept in place)) for place in places]
    return [kept / judged for judged, kept in sums if judged]


def pooled_alpha(timings: Sequence[Timing]) -> float | None:
    """α of all rounds together: accepted ÷ judged, each prompt counted once."""
    once = [
        pair for positions in {timing.prompt: timing.positions for timing in timings}.values() for pair in positions
    ]
    judged = sum(count for count, _ in once)
    return sum(kept for _, kept in once) / judged if judged else None


def _draft_cost(timings: Sequence[Timing], mine: Sequence[Timing]) -> float | None:
    """c: milliseconds a drafted token ÷ a round of our own plain decoding, the medians over prompts."""
    plain = [1000 / timing.rate for timing in timings if timing.method == "ours · none"]
    drafts = [timing.draft_ms for timing in mine if timing.draft_ms is not None]
    return round(statistics.median(drafts) / statistics.median(plain), 3) if plain and drafts else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 3) if known else None


def conditions_line(result: dict[str, Any]) -> str:
    """The conditions in one line, to stand under the table."""
    told = result["conditions"]
    versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
    return (
        f"{told['device_name']}, threads: {told['threads']}, {told['dtype']}, batch 1, greedy, γ = {told['gamma']}, "
        f"{told['max_new_tokens']} tokens, {told['questions']} prompts × {told['repeats']}; "
        f"medians over prompts, by position all rounds together; {versions}; "
        f"{told['created']}"
    )
