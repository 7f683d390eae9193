"""The experiments room's two questions to the server: run one in the room's line, and what its results show."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from spec_viz.ui.wording import words

if TYPE_CHECKING:
    from spec_viz.lab import concurrency, context, quantisation
    from spec_viz.lab.bench import Question
    from spec_viz.lab.sweep import Experiment, Told
    from spec_viz.models.load import Loaded

Json = dict[str, Any]

# What one visitor may ask for at once: the others wait meanwhile.
MOST_DRAFTERS = 4
MOST_VALUES = 8
MOST_PROMPTS = 24
MOST_REPEATS = 5
MOST_BATCH = 64
MOST_LENGTH = 4096
MOST_POINTS = 200


class Bounds(Protocol):
    """What the host allows a run."""

    @property
    def max_new_tokens(self) -> int: ...

    @property
    def prompt_chars(self) -> int: ...


# ---------------------------------------------------------------- running


def conduct(loaded: Loaded, asked: Any, bounds: Bounds, stop: Callable[[], bool]) -> Generator[Json]:
    """What the page is sent about one experiment; `asked` is what the page sent.

    Yields {begin: a record without points, of: how many will come}, a {point} a run or batch, then {finish}, with what
    only the whole can tell. Raises RequestError for what cannot be run. Closing it ends the experiment.
    """
    from spec_viz.lab import concurrency, sweep
    from spec_viz.lab.results import module_of

    plan = declare(asked, bounds)
    if isinstance(plan, sweep.Experiment):
        yield {"begin": sweep.begin(loaded, plan), "of": plan.size}
        for point in sweep.run(loaded, plan, stop):
            yield {"point": asdict(point)}
        yield {"finish": _finish(stop)}
        return
    lab = module_of(asked["kind"])
    yield {"begin": lab.begin(loaded, plan), "of": lab.size(plan)}
    samples = []
    for sample in lab.run(loaded, plan, stop):
        samples.append(sample)
        yield {"point": asdict(sample)}
    more = {"schedules": concurrency.schedules(samples)} if isinstance(plan, concurrency.Plan) else {}
    yield {"finish": _finish(stop), **more}


def _finish(stop: Callable[[], bool]) -> str:
    return "stopped" if stop() else "done"


def declare(asked: Any, bounds: Bounds) -> Any:
    """What a page's values ask for: an Experiment, or the Plan of a kind that measures the machine.

    RequestError where they make none, or one that would take too long.
    """
    from spec_viz.lab.results import MACHINE, module_of
    from spec_viz.lab.run import RequestError

    values: Mapping[str, Any] = asked if isinstance(asked, dict) else {}
    kind: Any = values.get("kind")
    if not isinstance(kind, str):
        raise RequestError("error.sweep_shape")
    try:
        plan: Any = _PLANS[kind](values, bounds) if kind in MACHINE else _sweep(values, bounds)
        runs = module_of(kind).size(plan) if kind in MACHINE else plan.size
    except RequestError:
        raise
    except ValueError:
        raise RequestError("error.sweep_shape") from None
    if runs > MOST_POINTS:
        raise RequestError("error.sweep_many", runs=runs, most=MOST_POINTS)
    return plan


def _sweep(values: Mapping[str, Any], bounds: Bounds) -> Experiment:
    from spec_viz.lab.run import RequestError
    from spec_viz.lab.sweep import KINDS, Choice, Experiment, validate

    kind, drafters = values["kind"], values.get("drafters")
    axis = [] if kind in ("task", "streaming") else values.get("axis")
    gamma, temperature, seed = (
        values.get(name, usual) for name, usual in (("gamma", 4), ("temperature", 0), ("seed", 0))
    )
    fits = kind in KINDS and _are(drafters, str, MOST_DRAFTERS) and _are_numbers(axis, [gamma, temperature, seed])
    if not fits or drafters is None or axis is None:
        raise RequestError("error.sweep_shape")
    return validate(
        Experiment(
            kind,
            tuple(Choice(name) for name in dict.fromkeys(drafters)),
            tuple(questions(values.get("questions"), bounds)),
            tuple(dict.fromkeys(axis)),
            gamma=gamma,
            temperature=temperature,
            seeds=(seed,),
            repeats=_whole(values, "repeats", 1, 1, MOST_REPEATS),
            max_new_tokens=_whole(values, "max_new_tokens", 32, 2, bounds.max_new_tokens),
        )
    )


def _concurrency(values: Mapping[str, Any], bounds: Bounds) -> concurrency.Plan:
    from spec_viz.lab.concurrency import Plan, validate
    from spec_viz.lab.run import MAX_GAMMA, RequestError
    from spec_viz.lab.sweep import Choice

    drafters, batches, gammas, alphas = (values.get(name, []) for name in ("drafters", "batches", "gammas", "alphas"))
    fits = _are(drafters, str, MOST_DRAFTERS) and _are(batches, int, MOST_VALUES) and _are(gammas, int, MOST_VALUES)
    if not fits or not _are_numbers(alphas) or max([*batches, 0]) > MOST_BATCH or max([*gammas, 0]) > MAX_GAMMA:
        raise RequestError("error.sweep_shape")
    return validate(
        Plan(
            tuple(Choice(name) for name in dict.fromkeys(drafters)),
            tuple(questions(values.get("questions"), bounds)),
            tuple(dict.fromkeys(batches)),
            tuple(dict.fromkeys(gammas)),
            tuple(dict.fromkeys(map(float, alphas))),
            max_new_tokens=_whole(values, "max_new_tokens", 24, 2, bounds.max_new_tokens),
            repeats=_whole(values, "repeats", 1, 1, MOST_REPEATS),
            policies=("table", "goodput") if values.get("policies") is True else (),
        )
    )


def _context(values: Mapping[str, Any], bounds: Bounds) -> context.Plan:
    from spec_viz.lab.context import MOST_LENGTHS, Plan, reading, validate
    from spec_viz.lab.run import MAX_GAMMA, RequestError
    from spec_viz.lab.sweep import Choice

    drafters, lengths = (values.get(name, []) for name in ("drafters", "lengths"))
    if not _are(drafters, str, MOST_DRAFTERS) or not _are(lengths, int, MOST_LENGTHS) or min([*lengths, 1]) < 1:
        raise RequestError("error.sweep_shape")
    if max([*lengths, 0]) > MOST_LENGTH:
        raise RequestError("error.bad_number", name="lengths", low=1, high=MOST_LENGTH)
    return validate(
        Plan(
            reading(),
            tuple(Choice(name) for name in dict.fromkeys(drafters)),
            tuple(dict.fromkeys(lengths)),
            gamma=_whole(values, "gamma", 4, 1, MAX_GAMMA),
            max_new_tokens=_whole(values, "max_new_tokens", 32, 2, bounds.max_new_tokens),
            repeats=_whole(values, "repeats", 1, 1, MOST_REPEATS),
        )
    )


def _quantisation(values: Mapping[str, Any], bounds: Bounds) -> quantisation.Plan:
    from spec_viz.lab.quantisation import NAMED, Plan, validate
    from spec_viz.lab.run import MAX_GAMMA, RequestError
    from spec_viz.lab.sweep import Choice

    drafters, variants = (values.get(name, []) for name in ("drafters", "variants"))
    fits = _are(drafters, str, MOST_DRAFTERS) and _are(variants, str, len(NAMED))
    if not fits or not variants or not set(variants) <= NAMED.keys():
        raise RequestError("error.sweep_shape")
    return validate(
        Plan(
            tuple(questions(values.get("questions"), bounds)),
            tuple(Choice(name) for name in dict.fromkeys(drafters)),
            tuple(NAMED[name] for name in dict.fromkeys(variants)),
            gamma=_whole(values, "gamma", 4, 1, MAX_GAMMA),
            max_new_tokens=_whole(values, "max_new_tokens", 24, 2, bounds.max_new_tokens),
        )
    )


_PLANS: Mapping[str, Callable[[Mapping[str, Any], Bounds], Any]] = {
    "concurrency": _concurrency,
    "context": _context,
    "quantisation": _quantisation,
}


def questions(asked: Any, bounds: Bounds) -> Sequence[Question]:
    """The prompts a page asked for: {set: "held_out", tasks, limit}, {set: "presets", names} or {set: "own", prompts}.

    Own prompts are [category, prompt] pairs.
    """
    from spec_viz.content.presets import load_presets
    from spec_viz.lab.bench import MOST_NAME, Question
    from spec_viz.lab.run import RequestError

    values: Mapping[str, Any] = asked if isinstance(asked, dict) else {}
    found: list[Question] = []
    if values.get("set") == "held_out" and _are(values.get("tasks"), str, MOST_PROMPTS):
        limit = values.get("limit", 1)
        if _is_whole(limit, 1, MOST_PROMPTS):
            texts = _held_out()
            found = [Question(task, text) for task in texts if task in values["tasks"] for text in texts[task][:limit]]
    elif values.get("set") == "presets" and _are(values.get("names"), str, MOST_PROMPTS):
        found = [
            Question(preset.name, preset.prompt, bool(preset.settings.get("chat", True)))
            for preset in load_presets()
            if preset.name in values["names"]
        ]
    elif values.get("set") == "own" and _are(values.get("prompts"), list, 10 * MOST_PROMPTS):
        pairs = [pair for pair in values["prompts"] if len(pair) == 2 and all(isinstance(part, str) for part in pair)]
        found = [Question(name.strip()[:MOST_NAME] or "–", prompt) for name, prompt in pairs if prompt.strip()]
    if not 1 <= len(found) <= MOST_PROMPTS:
        raise RequestError("error.sweep_prompts", found=len(found), most=MOST_PROMPTS)
    longest = max(len(question.prompt) for question in found)
    if longest > bounds.prompt_chars:
        raise RequestError("error.prompt_too_many_letters", letters=longest, limit=bounds.prompt_chars)
    return found


@cache
def _held_out() -> dict[str, list[str]]:
    from spec_viz.training.prompts import TASKS, held_out_prompts

    found: dict[str, list[str]] = {task: [] for task in TASKS}
    for task, text in held_out_prompts(TASKS, MOST_PROMPTS):
        found[task].append(text)
    return found


def _are(values: Any, kind: type | tuple[type, ...], most: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) <= most
        and all(isinstance(value, kind) and not isinstance(value, bool) for value in values)
    )


def _are_numbers(*many: Any) -> bool:
    return all(_are(numbers, (int, float), MOST_VALUES) for numbers in many)


def _is_whole(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _whole(values: Mapping[str, Any], name: str, usual: int, low: int, high: int) -> int:
    from spec_viz.lab.run import RequestError

    value = values.get(name, usual)
    if not _is_whole(value, low, high):
        raise RequestError("error.bad_number", name=name, low=low, high=high)
    return int(value)


# ---------------------------------------------------------------- looking


def experiment(asked: Any) -> Json:
    """What a result shows, asked as {"result", "beside", "language", "theme"}; `beside` is another result, or null.

    {"verdict", "charts", "table", "conditions", "differ"}: one sentence, figures with their sentences, the numbers as
    text, where they were measured, and the conditions in which the two differ. {"error": a sentence} for a file that
    is no result. With {"as": "csv"}: {"csv": text}.
    """
    from spec_viz.lab.sweep import ResultError

    given: Mapping[str, Any] = asked if isinstance(asked, dict) else {}
    language = given.get("language")
    t = words(language if isinstance(language, str) else "en")
    try:
        result, beside = (_read(given.get(name)) for name in ("result", "beside"))
    except ResultError as problem:
        return {"error": _unreadable(problem)}
    if result is None:
        return {"error": {"key": "experiments.import.empty", "args": {}}}
    kind = given["result"]["kind"]
    if given.get("as") == "csv":
        from spec_viz.lab.results import module_of

        return {"csv": module_of(kind).to_csv(result)}
    shown = charts_of(kind).shown
    alike = beside if type(beside) is type(result) else None
    told: Json = shown(result, alike, t, "dark" if given.get("theme") == "dark" else "light")
    return told


def charts_of(kind: str) -> Any:
    """The module that draws results of a kind."""
    own = kind in ("context", "quantisation")
    return import_module(f"spec_viz.ui.{kind}_charts" if own else "spec_viz.ui.experiment_charts")


def _read(body: Any) -> Told | None:
    from spec_viz.lab import results
    from spec_viz.lab.sweep import MOST_BYTES, ResultError

    if body is None:
        return None
    if len(json.dumps(body, ensure_ascii=False)) > MOST_BYTES:
        raise ResultError("file", "too large")
    return results.read(body)


def _unreadable(problem: Any) -> Json:
    """The sentence for a file that is no result; what is wrong at its place is told to programmers only."""
    from spec_viz.lab.bench import SCHEMA
    from spec_viz.lab.sweep import MOST_BYTES

    if problem.problem == "too large":
        return {"key": "experiments.import.big", "args": {"most": MOST_BYTES // 1_000_000}}
    if problem.field in ("file", "schema"):
        return {"key": "experiments.import.other", "args": {"schema": SCHEMA}}
    if problem.field == "kind":
        return {"key": "experiments.import.kind", "args": {}}
    return {"key": "experiments.import.broken", "args": {"field": problem.field}}
