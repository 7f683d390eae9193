"""Experiments that a lesson records: a recipe becomes the Lab's own plan, and its record numbers with short names."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from spec_viz.models.catalogue import DEFAULT

# The Lab's modules bring torch with them, and a page that lists lessons needs none: they are imported where they work.
if TYPE_CHECKING:
    from spec_viz.lab import concurrency, context, quantisation, sweep
    from spec_viz.lab.bench import Question

Json = dict[str, Any]
Kind = Literal["gamma", "temperature", "task", "streaming", "concurrency", "context", "quantisation"]
PLAIN = "none"
# A choice of the Lab by its name in the Lab's address (assets/js/lab/kinds.js), where that is another than here.
CALLED = {"max_new_tokens": "tokens"}


@dataclass(frozen=True, slots=True)
class ExperimentRecipe:
    """How an experiment of the Lab is recorded.

    `plan` are the fields of the kind's own declaration (`lab.sweep.Experiment`, or the `Plan` of its module) but for
    the prompts: those are `limit` held-out ones of each task. Long contexts bring texts of their own.
    """

    kind: Kind
    plan: dict[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    limit: Annotated[int, Field(ge=1)] = 1
    target: str = DEFAULT


ExperimentRecipe.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]


def declare(recipe: ExperimentRecipe) -> Any:
    """The Lab's plan that a recipe asks for; ValueError where it makes none that can be run."""
    from spec_viz.lab import sweep
    from spec_viz.lab.results import MACHINE, module_of

    lab = module_of(recipe.kind)
    shape = lab.Plan if recipe.kind in MACHINE else sweep.Experiment
    own = {each.name for each in fields(shape)} - {"kind", "questions"}
    if unknown := sorted(recipe.plan.keys() - own):
        raise ValueError(f"a plan of the kind {recipe.kind} has no {', '.join(unknown)}")
    given = {**recipe.plan, "questions": _questions(recipe.kind, recipe.tasks, recipe.limit)}
    if shape is sweep.Experiment:
        given["kind"] = recipe.kind
    return lab.validate(TypeAdapter(shape).validate_python(given))


@cache
def _questions(kind: Kind, tasks: tuple[str, ...], limit: int) -> tuple[Question, ...]:
    from spec_viz.lab import context
    from spec_viz.lab.bench import Question
    from spec_viz.training.prompts import held_out_prompts

    if kind == "context":
        return context.reading()
    return tuple(Question(task, text) for task, text in held_out_prompts(tasks, limit))


def departs(recipe: ExperimentRecipe, record: Mapping[str, Any]) -> list[str]:
    """What of a record is not what the recipe asks for."""
    plan = json.loads(json.dumps(asdict(declare(recipe))))
    has = record.get("plan", record.get("experiment", {}))
    found = [name for name, value in plan.items() if has.get(name) != value]
    if record.get("conditions", {}).get("target") != recipe.target:
        found.append("target")
    return [*found, *(["finish"] if record.get("finish") != "done" else [])]


def lab_address(recipe: ExperimentRecipe) -> str:
    """The same experiment in the Lab's address, as far as the Lab offers it."""
    values = {CALLED.get(name, name): value for name, value in recipe.plan.items() if name != "axis"}
    values |= {recipe.kind: recipe.plan["axis"]} if "axis" in recipe.plan else {}
    values |= {"tasks": recipe.tasks, "limit": recipe.limit} if recipe.tasks else {}
    if "drafters" in values:
        values["drafters"] = [each["drafter"] for each in values["drafters"]]
    if "variants" in values:
        from spec_viz.lab import quantisation

        names = {variant: name for name, variant in quantisation.NAMED.items()}
        values["variants"] = [names[quantisation.Variant(**each)] for each in values["variants"]]
    parts = ["-".join(map(str, [name, *(value if isinstance(value, list | tuple) else [value])]))
             for name, value in values.items()]  # fmt: skip
    return "*".join([recipe.kind, *parts])


# ---------------------------------------------------------------- what claims and words may speak of


def numbers(result: Any) -> Json:
    """A record's numbers by short names; see lessons/README.md for each kind."""
    from spec_viz.lab import concurrency, context, sweep

    told = {"conditions": result.conditions, "plan": getattr(result, "plan", None)}
    if isinstance(result, sweep.Sweep):
        return {**told, "plan": result.experiment, **_of_sweep(result)}
    if isinstance(result, concurrency.Result):
        return {**told, **_of_load(result)}
    return {**told, **(_of_context(result) if isinstance(result, context.Result) else _of_quantisation(result))}


def _of_sweep(result: sweep.Sweep) -> Json:
    """`lines[drafter][axis value]`; of streaming `streams[drafter]`, plain decoding as `none`."""
    from spec_viz.lab.sweep_rows import by_series, series, stream

    points = by_series(result.points)
    if result.experiment.kind == "streaming":
        seen = {_short(name): stream(mine, plain=False) for (name, _), mine in points.items()}
        return {"streams": {PLAIN: stream(result.points, plain=True), **seen}}
    lines = series(result)
    drafters = [line.drafter for line in lines]
    return {
        "lines": {
            _short(line.drafter) if drafters.count(line.drafter) == 1 else f"{_short(line.drafter)}_{line.rule}": {
                x: {
                    "alpha": each.alpha and each.alpha.value,
                    "tau": each.tau.value,
                    "speedup": each.speedup.value,
                    **_foretold(x, points[line.drafter, line.rule], result.experiment.kind),
                }
                for x, each in line.rates.items()
            }
            for line in lines
        }
    }


def _foretold(x: Any, points: list[sweep.Point], kind: str) -> Json:
    """Over γ what the runs at the largest one predict: by one α, and position by position."""
    from spec_viz.lab.sweep_rows import forecast

    told = forecast(points) if kind == "gamma" else None
    found = next((each for each in told.predictions if each.gamma == x), None) if told else None
    return {"formula": found.speedup_by_formula, "positions": found.speedup} if found else {}


def _of_load(result: concurrency.Result) -> Json:
    """Medians over repeats by `[drafter, or α of a coin][γ][B]`, and from which B it no longer pays.

    `speedup`, `rate` (tokens a second of all users), `drafting` (its share of the time); `tables` is K by B.
    """
    from spec_viz.lab import concurrency

    found: dict[str, dict[Any, dict[int, Any]]] = {"speedup": {}, "rate": {}, "drafting": {}, "crossing": {}}
    values: dict[str, Callable[[concurrency.Sample], float]] = {
        "speedup": lambda each: each.ratio,
        "rate": lambda each: each.rate,
        "drafting": lambda each: each.ms["propose"] / each.ms["total"],
    }
    fixed = [each for each in result.samples if each.policy == "fixed"]
    for mode in dict.fromkeys(each.mode for each in fixed):
        key = _short(mode.drafter) if mode.alpha is None else mode.alpha
        mine = [each for each in fixed if each.mode == mode]
        batches = sorted({each.batch for each in mine})
        for name, value in values.items():
            by_batch = {b: statistics.median(value(each) for each in mine if each.batch == b) for b in batches}
            found[name].setdefault(key, {})[mode.gamma] = by_batch
        speedups = found["speedup"][key][mode.gamma]
        found["crossing"].setdefault(key, {})[mode.gamma] = concurrency.crossing(speedups).between
    tables = concurrency.schedules([each for each in fixed if each.alpha is None])
    return {**found, "tables": {_short(each["name"]): each["table"] for each in tables}}


def _of_context(result: context.Result) -> Json:
    """`one[length]` ms of a pass and `share[length]` of it for the cache; `ways[drafter or self][length]`."""
    from spec_viz.lab import context

    line = context.split(result)
    one = {length: context.middle(result.at(length, "one")) for length in result.lengths}
    drafters = dict.fromkeys(each.drafter for each in result.samples if each.part == "decode")
    whole = {length: statistics.median(each.c or 0 for each in result.at(length, "self")) for length in result.lengths}
    return {
        "one": one,
        "share": {length: line.kv(length) / (line.rest + line.kv(length)) for length in one} if line else {},
        "ways": {
            "self": {length: {"c": c} for length, c in whole.items()},
            **{
                _short(name): {length: context.rates(result.at(length, "decode", name)) for length in result.lengths}
                for name in drafters
            },
        },
    }


def _of_quantisation(result: quantisation.Result) -> Json:
    """`forms[name]`, the full target as `full`: the sample's own numbers, and `rates[drafter]`."""
    from spec_viz.lab import quantisation

    names = {variant: name for name, variant in quantisation.NAMED.items()}
    return {
        "forms": {
            names.get(each.variant, "full"): {
                **{item.name: getattr(each, item.name) for item in fields(each)},
                "rates": {_short(name): quantisation.rates(each, name) for name in {run.drafter for run in each.runs}},
            }
            for each in result.samples
        }
    }


def _short(label: str) -> str:
    """A drafter's name without what was set."""
    return label.partition(" (")[0]
