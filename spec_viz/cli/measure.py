"""`bench`, `concurrency`, `context`, `quantise` and `sweep`: speed and acceptance, measured."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tqdm import tqdm

from spec_viz.cli.decode import settings_of
from spec_viz.cli.terminal import command, known, load_model, out, show, signals
from spec_viz.models.catalogue import CATALOGUE, DEFAULT

if TYPE_CHECKING:
    from spec_viz.lab import context, quantisation
    from spec_viz.lab.bench import Method, Question
    from spec_viz.lab.sweep import Choice, Experiment
    from spec_viz.models.load import Loaded

    Plan = TypeVar("Plan", context.Plan, quantisation.Plan)


def add(commands: Any) -> None:
    """Offer the five."""
    bench = command(commands, "bench", run_bench, "speed beside transformers' generate, as ratios in one run")
    bench.add_argument("--questions", type=Path, metavar="FILE.jsonl", help="Spec-Bench questions; presets otherwise")
    bench.add_argument("--held-out", action="store_true", help="prompts that no head of ours was trained on, by task")
    bench.add_argument("--category", nargs="+", help="only these categories of the questions, or these presets")
    bench.add_argument("--limit", type=int, default=10, help="questions a category")
    bench.add_argument("--drafters", nargs="+", default=["prompt_lookup"], metavar="NAME")
    bench.add_argument("--against", default="transformers", choices=("transformers", "vllm", "nothing"))
    bench.add_argument(
        "--server", action="append", default=[], metavar="NAME=URL", help="with --against vllm: a running server"
    )
    bench.add_argument("--max-new-tokens", type=int, default=64)
    bench.add_argument("--gamma", type=int, default=4)
    bench.add_argument("--repeats", type=int, default=3)
    bench.add_argument("--out", type=Path, metavar="RESULT.json")

    load = command(commands, "concurrency", run_concurrency, "where speculation stops paying as requests share a pass")
    load.add_argument("--target", default=DEFAULT, choices=tuple(CATALOGUE), metavar="NAME")
    load.add_argument("--questions", type=Path, metavar="FILE.jsonl", help="Spec-Bench questions; presets otherwise")
    load.add_argument("--held-out", action="store_true", help="prompts that no head of ours was trained on, by task")
    load.add_argument("--category", nargs="+", help="only these categories of the questions, or these presets")
    load.add_argument("--limit", type=int, default=10, help="questions a category")
    load.add_argument("--drafters", nargs="*", default=["prompt_lookup"], metavar="NAME")
    load.add_argument("--batch", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32, 64], help="requests side by side")
    load.add_argument("--gamma", nargs="+", type=int, default=[2, 4])
    load.add_argument("--alpha", nargs="*", type=float, default=[0.6, 0.8], help="chances of a free, lossy drafter")
    load.add_argument("--max-new-tokens", type=int, default=32)
    load.add_argument("--repeats", type=int, default=3)
    load.add_argument("--out", type=Path, metavar="RESULT.json")

    long = command(commands, "context", run_context, "how a pass grows with the text behind it, and whom that helps")
    long.add_argument("--target", default=DEFAULT, choices=tuple(CATALOGUE), metavar="NAME")
    long.add_argument("--drafters", nargs="+", metavar="NAME[:KEY=VALUE,…]", help="two when left out")
    long.add_argument("--length", nargs="+", type=int, help="tokens behind which it is measured")
    long.add_argument("--gamma", type=int, default=4)
    long.add_argument("--max-new-tokens", type=int, default=32)
    long.add_argument("--passes", type=int, default=12, help="timed passes of every kind behind each length")
    long.add_argument("--repeats", type=int, default=1)
    long.add_argument("--out", type=Path, metavar="RESULT.json")
    long.add_argument("--csv", type=Path, metavar="FILE.csv", help="a line a sample")

    few = command(
        commands, "quantise", run_quantise, "weights and KV cache of few bits: what the law, α and speed keep"
    )
    few.add_argument("--target", default=DEFAULT, choices=tuple(CATALOGUE), metavar="NAME")
    few.add_argument("--questions", type=Path, metavar="FILE.jsonl", help="Spec-Bench questions; presets otherwise")
    few.add_argument("--held-out", action="store_true", help="prompts that no head of ours was trained on, by task")
    few.add_argument("--category", nargs="+", help="only these categories of the questions, or these presets")
    few.add_argument("--limit", type=int, default=2, help="questions a category")
    few.add_argument("--drafters", nargs="+", metavar="NAME[:KEY=VALUE,…]", help="two when left out")
    few.add_argument("--forms", nargs="+", metavar="FORM", help="int8, int4, int8_bfloat16, kv8, kv4, kv4r, kv3, kv3r")
    few.add_argument("--gamma", type=int, default=4)
    few.add_argument("--max-new-tokens", type=int, default=24)
    few.add_argument("--passes", type=int, default=8, help="timed passes of every kind in each form")
    few.add_argument("--out", type=Path, metavar="RESULT.json")
    few.add_argument("--csv", type=Path, metavar="FILE.csv", help="a line a run")

    sweep = command(
        commands, "sweep", run_sweep, "acceptance and speed over γ, temperature or tasks; or as a reader sees it"
    )
    sweep.add_argument("kind", choices=("gamma", "temperature", "task", "streaming"))
    sweep.add_argument("--target", default=DEFAULT, choices=tuple(CATALOGUE), metavar="NAME")
    sweep.add_argument("--questions", type=Path, metavar="FILE.jsonl", help="Spec-Bench questions; presets otherwise")
    sweep.add_argument("--held-out", action="store_true", help="prompts that no head of ours was trained on, by task")
    sweep.add_argument("--category", nargs="+", help="only these categories of the questions, or these presets")
    sweep.add_argument("--limit", type=int, default=5, help="questions a category")
    sweep.add_argument(
        "--drafters",
        nargs="+",
        default=["prompt_lookup"],
        metavar="NAME[:KEY=VALUE,…]",
        help="a drafter and what is not its default; rule=NAME sets the rule",
    )
    sweep.add_argument("--gamma", nargs="+", type=int, help="the values of `gamma`; one value for the others")
    sweep.add_argument("--temperature", nargs="+", type=float, help="the values of `temperature`; one for the others")
    sweep.add_argument("--seeds", nargs="+", type=int, default=[0])
    sweep.add_argument("--repeats", type=int, default=3)
    sweep.add_argument("--max-new-tokens", type=int, default=64)
    sweep.add_argument("--out", type=Path, metavar="RESULT.json")
    sweep.add_argument("--csv", type=Path, metavar="FILE.csv", help="a line a run")


def run_bench(options: argparse.Namespace) -> int:
    """Ratios of tokens per second, measured in alternating order in one process."""
    from spec_viz.drafters.registry import families
    from spec_viz.lab import bench

    questions = questions_of(options)
    known("drafter", options.drafters, families())
    loaded = load_model(DEFAULT)
    result = bench.measure(
        loaded,
        questions,
        options.drafters,
        peers=_peers(options, loaded),
        gamma=options.gamma,
        max_new_tokens=options.max_new_tokens,
        repeats=options.repeats,
        progress=lambda items: tqdm(items, file=sys.stderr),
    )
    return show_bench(options, result)


def _peers(options: argparse.Namespace, loaded: Loaded) -> dict[str, Method]:
    from spec_viz.lab import bench

    if (options.against == "vllm") != bool(options.server):
        raise ValueError("--against vllm takes at least one --server NAME=URL, and nothing else takes any.")
    if options.against == "transformers":
        return bench.transformers_peers(loaded, options.drafters, options.gamma, options.max_new_tokens)
    pairs = [text.partition("=") for text in options.server]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError("--server takes NAME=URL, such as plain=http://127.0.0.1:8000")
    return bench.server_peers({name: address for name, _, address in pairs}, options.max_new_tokens)


def show_bench(options: argparse.Namespace, result: dict[str, Any]) -> int:
    """The record in its file and as JSON, or its table with the conditions under it."""
    from spec_viz.lab import bench

    if options.out:
        options.out.write_text(json.dumps(result, ensure_ascii=False, indent=2), encoding="utf-8")
    if options.json:
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return 0
    rows = bench.rows(result)
    told = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    show(options, [{name: row[name] for name in told} for row in rows], "bench")
    out.print(f"[dim]{bench.conditions_line(result)}[/dim]")
    return 0


def questions_of(options: argparse.Namespace) -> list[Question]:
    """Those of a file, or the presets' own prompts."""
    from spec_viz.content.presets import load_presets
    from spec_viz.lab.bench import Question, read_questions
    from spec_viz.training.prompts import TASKS, held_out_prompts

    if options.questions:
        return read_questions(options.questions, options.category, options.limit)
    if options.held_out:
        known("task", options.category, TASKS)
        return [Question(task, text) for task, text in held_out_prompts(options.category or TASKS, options.limit)]
    presets = load_presets()
    known("preset", options.category, [preset.name for preset in presets])
    return [
        Question(preset.name, preset.prompt, bool(preset.settings.get("chat", True)))
        for preset in presets
        if not options.category or preset.name in options.category
    ]


def run_concurrency(options: argparse.Namespace) -> int:
    """Speed and latency by batch size, where it stops paying, K by batch size for vLLM; Ctrl-C keeps what there is."""
    from spec_viz.drafters.registry import families
    from spec_viz.lab import concurrency

    questions = questions_of(options)
    known("drafter", options.drafters, families())
    loaded = load_model(options.target)
    with signals() as stopped:
        result = concurrency.measure(
            loaded,
            questions,
            {name: {} for name in options.drafters},
            batches=options.batch,
            gammas=options.gamma,
            alphas=options.alpha,
            max_new_tokens=options.max_new_tokens,
            repeats=options.repeats,
            stop=lambda: bool(stopped),
            progress=lambda items: tqdm(list(items), desc="concurrency", file=sys.stderr),
        )
    if options.out:
        options.out.write_text(json.dumps(result, ensure_ascii=False, indent=2), encoding="utf-8")
    if options.json:
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return 1 if stopped else 0
    show(options, concurrency.rows(result), "concurrency")
    show(options, concurrency.crossings(result), "where it stops paying")
    show(options, [{**row, "vllm": row["vllm"] and json.dumps(row["vllm"])} for row in result["schedules"]], "tables")
    out.print(f"[dim]{concurrency.conditions_line(result)}[/dim]")
    return 1 if stopped else 0


def run_context(options: argparse.Namespace) -> int:
    """Passes and decodes behind longer and longer prefixes; what was measured before Ctrl-C is kept."""
    from spec_viz.lab.context import Plan, reading

    plan = Plan(
        reading(),
        gamma=options.gamma,
        max_new_tokens=options.max_new_tokens,
        passes=options.passes,
        repeats=options.repeats,
    )
    if options.length:
        plan = replace(plan, lengths=tuple(options.length))
    return _run_plan(options, "context", _with_drafters(plan, options))


def run_quantise(options: argparse.Namespace) -> int:
    """Every form of the target beside the full one; what was measured before Ctrl-C is kept."""
    from spec_viz.lab.quantisation import NAMED, Plan

    questions = tuple(questions_of(options))
    known("form", options.forms, NAMED)
    plan = Plan(questions, gamma=options.gamma, max_new_tokens=options.max_new_tokens, passes=options.passes)
    if options.forms:
        plan = replace(plan, variants=tuple(NAMED[name] for name in options.forms))
    return _run_plan(options, "quantisation", _with_drafters(plan, options))


def _with_drafters(plan: Plan, options: argparse.Namespace) -> Plan:
    """The plan with the drafters asked for; its own where none are."""
    from spec_viz.drafters.registry import families

    choices = tuple(_choice(text) for text in options.drafters or ())
    known("drafter", [choice.drafter for choice in choices], families())
    return replace(plan, drafters=choices) if choices else plan


def _run_plan(options: argparse.Namespace, kind: str, plan: context.Plan | quantisation.Plan) -> int:
    """Measure a plan of this kind; what the page says of its record is said here: a table, a sentence, conditions."""
    from spec_viz.lab import results
    from spec_viz.ui.experiments import charts_of
    from spec_viz.ui.wording import words

    lab = results.module_of(kind)
    lab.validate(plan)
    for path in filter(None, (options.out, options.csv)):
        # Asked before the runs, so that a folder that does not exist costs none.
        path.touch()
    loaded = load_model(options.target)
    with signals() as stopped:
        record = lab.measure(
            loaded, plan, lambda: bool(stopped), lambda items: tqdm(list(items), desc=kind, file=sys.stderr)
        )
    if options.out:
        options.out.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
    result = results.read(json.loads(json.dumps(record)))
    if options.csv:
        options.csv.write_text(lab.to_csv(result), encoding="utf-8")
    if options.json:
        print(json.dumps(record, ensure_ascii=False, indent=2))
    elif record["samples"]:
        told = charts_of(kind).shown(result, None, words("en"), "light")
        table = told["table"]
        show(options, [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]], kind)
        out.print(told["verdict"])
        out.print(f"[dim]{told['conditions']}[/dim]")
    return 1 if stopped else 0


def run_sweep(options: argparse.Namespace) -> int:
    """An experiment as a table with intervals; what was measured before Ctrl-C is kept."""
    from spec_viz.lab import sweep, sweep_rows

    experiment = sweep.validate(_experiment(options))
    for path in filter(None, (options.out, options.csv)):
        # Asked before the runs, so that a folder that does not exist costs none.
        path.touch()
    loaded = load_model(options.target)
    with signals() as stopped:
        result = sweep.measure(
            loaded,
            experiment,
            lambda: bool(stopped),
            lambda turns: tqdm(list(turns), desc=options.kind, file=sys.stderr),
        )
    if options.out:
        options.out.write_text(json.dumps(result, ensure_ascii=False), encoding="utf-8")
    read = sweep.read(result)
    if options.csv and isinstance(read, sweep.Sweep):
        options.csv.write_text(sweep.to_csv(read), encoding="utf-8")
    if options.json:
        print(json.dumps(result, ensure_ascii=False, indent=2))
    elif result["points"] and isinstance(read, sweep.Sweep):
        show(options, sweep_rows.rows(read), options.kind)
        out.print(f"[dim]{sweep_rows.conditions_line(read)}[/dim]")
    return 1 if stopped else 0


def _experiment(options: argparse.Namespace) -> Experiment:
    from spec_viz.drafters.registry import families
    from spec_viz.lab.sweep import Experiment

    choices = [_choice(text) for text in options.drafters]
    known("drafter", [choice.drafter for choice in choices], families())
    values = {
        "gamma": options.gamma or ([1, 2, 4, 8] if options.kind == "gamma" else [4]),
        "temperature": options.temperature or ([0.0, 0.5, 1.0] if options.kind == "temperature" else [0.0]),
    }
    for name, given in values.items():
        if name != options.kind and len(given) > 1:
            raise ValueError(f"--{name} takes one value here: `sweep {name}` is what varies it.")
    return Experiment(
        options.kind,
        tuple(choices),
        tuple(questions_of(options)),
        tuple(map(float, values.get(options.kind, []))),
        gamma=values["gamma"][0],
        temperature=values["temperature"][0],
        seeds=tuple(options.seeds),
        repeats=options.repeats,
        max_new_tokens=options.max_new_tokens,
    )


def _choice(text: str) -> Choice:
    from spec_viz.lab.sweep import Choice

    name, _, given = text.partition(":")
    settings = settings_of(name, [each for each in given.split(",") if each])
    rule = settings.pop("rule", None)
    return Choice(name, settings, rule)
