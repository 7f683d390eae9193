"""The experiments room's two questions to the server: run one in the room's line, and what its results show."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from spec_viz.ui.wording import words

if TYPE_CHECKING:
    from spec_viz.lab.bench import Question
    from spec_viz.lab.sweep import Experiment, Result
    from spec_viz.models.load import Loaded

Json = dict[str, Any]

# What one visitor may ask for at once: the others wait meanwhile.
MOST_DRAFTERS = 4
MOST_VALUES = 8
MOST_PROMPTS = 24
MOST_REPEATS = 5
MOST_POINTS = 200
MOST_NAME = 60


class Bounds(Protocol):
    """What the host allows a run."""

    @property
    def max_new_tokens(self) -> int: ...

    @property
    def prompt_chars(self) -> int: ...


# ---------------------------------------------------------------- running


def conduct(loaded: Loaded, asked: Any, bounds: Bounds, stop: Callable[[], bool]) -> Generator[Json]:
    """What the page is sent about one experiment; `asked` is what the page sent.

    Yields {begin: a record without points, of: how many will come}, a {point} a run, then {finish}. Raises RequestError
    for what cannot be run. Closing it ends the experiment.
    """
    from spec_viz.lab import sweep

    experiment = declare(asked, bounds)
    yield {"begin": sweep.begin(loaded, experiment), "of": experiment.size}
    for point in sweep.run(loaded, experiment, stop):
        yield {"point": asdict(point)}
    yield {"finish": "stopped" if stop() else "done"}


def declare(asked: Any, bounds: Bounds) -> Experiment:
    """The experiment a page's values make; RequestError where they make none, or one that would take too long."""
    from spec_viz.lab.run import RequestError
    from spec_viz.lab.sweep import KINDS, Choice, Experiment, validate

    values: Mapping[str, Any] = asked if isinstance(asked, dict) else {}
    kind: Any = values.get("kind")
    drafters: Any = values.get("drafters")
    axis: Any = values.get("axis")
    fits = isinstance(kind, str) and kind in KINDS and _are(drafters, str, MOST_DRAFTERS)
    axis = [] if kind in ("task", "streaming") else axis
    gamma, temperature, seed = (
        values.get(name, usual) for name, usual in (("gamma", 4), ("temperature", 0), ("seed", 0))
    )
    if not fits or not all(_are(numbers, (int, float), MOST_VALUES) for numbers in (axis, [gamma, temperature, seed])):
        raise RequestError("error.sweep_shape")
    tokens = values.get("max_new_tokens", 32)
    if not _is_whole(tokens, 2, bounds.max_new_tokens):
        raise RequestError("error.bad_number", name="max_new_tokens", low=2, high=bounds.max_new_tokens)
    repeats = values.get("repeats", 1)
    if not _is_whole(repeats, 1, MOST_REPEATS):
        raise RequestError("error.bad_number", name="repeats", low=1, high=MOST_REPEATS)
    experiment = Experiment(
        kind,
        tuple(Choice(name) for name in dict.fromkeys(drafters)),
        tuple(questions(values.get("questions"), bounds)),
        tuple(dict.fromkeys(axis)),
        gamma=gamma,
        temperature=temperature,
        seeds=(seed,),
        repeats=repeats,
        max_new_tokens=tokens,
    )
    try:
        validate(experiment)
    except RequestError:
        raise
    except ValueError:
        raise RequestError("error.sweep_shape") from None
    if experiment.size > MOST_POINTS:
        raise RequestError("error.sweep_many", runs=experiment.size, most=MOST_POINTS)
    return experiment


def questions(asked: Any, bounds: Bounds) -> Sequence[Question]:
    """The prompts a page asked for: {set: "held_out", tasks, limit}, {set: "presets", names} or {set: "own", prompts}.

    Own prompts are [category, prompt] pairs.
    """
    from spec_viz.content.presets import load_presets
    from spec_viz.lab.bench import Question
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


def _is_whole(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


# ---------------------------------------------------------------- looking


def experiment(asked: Any) -> Json:
    """What a result shows, asked as {"result", "beside", "language", "theme"}; `beside` is another result, or null.

    {"verdict", "charts", "table", "conditions", "differ"}: one sentence, figures with their sentences, the numbers as
    text, where they were measured, and the conditions in which the two differ. {"error": a sentence} for a file that
    is no result. With {"as": "csv"}: {"csv": text}.
    """
    from spec_viz.lab import sweep
    from spec_viz.ui.experiment_charts import shown

    given: Mapping[str, Any] = asked if isinstance(asked, dict) else {}
    language = given.get("language")
    t = words(language if isinstance(language, str) else "en")
    try:
        result, beside = (_read(given.get(name)) for name in ("result", "beside"))
    except sweep.ResultError as problem:
        return {"error": _unreadable(problem)}
    if result is None:
        return {"error": {"key": "experiments.import.empty", "args": {}}}
    if given.get("as") == "csv":
        return {"csv": sweep.to_csv(result) if isinstance(result, sweep.Sweep) else ""}
    return shown(result, beside, t, "dark" if given.get("theme") == "dark" else "light")


def _read(body: Any) -> Result | None:
    from spec_viz.lab import sweep

    if body is None:
        return None
    if len(json.dumps(body, ensure_ascii=False)) > sweep.MOST_BYTES:
        raise sweep.ResultError("file", "too large")
    return sweep.read(body)


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
