"""`bench`, `concurrency`, `context`, `cost`, `quantise` and `sweep`: speed and acceptance, measured."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tqdm import tqdm

from spec_viz.cli.decode import settings_of
from spec_viz.cli.terminal import at_least, command, err, known, load_model, out, show, signals, writable
from spec_viz.models.catalogue import CATALOGUE, DEFAULT

if TYPE_CHECKING:
    from spec_viz.lab import context, quantisation
    from spec_viz.lab.bench import Method, Question
    from spec_viz.lab.sweep import Choice, Experiment
    from spec_viz.models.load import Loaded

    Plan = TypeVar("Plan", context.Plan, quantisation.Plan)


def add(commands: Any) -> None:
    """Offer the six."""
    bench = command(commands, "bench", run_bench, "speed beside transformers' generate, as ratios in one run")
    bench.add_argument("--questions", type=Path, metavar="FILE.jsonl", help="Spec-Bench questions; presets otherwise")
    bench.add_argument("--held-out", action="store_true", help="prompts that no head of ours was trained on, by task")
    bench.add_argument("--category", nargs="+", help="only these categories of the questions, or these presets")
    bench.add_argument("--limit", type=at_least(1), default=10, help="questions a category")
    bench.add_argument("--drafters", nargs="+", default=["prompt_lookup"], metavar="NAME")
    bench.add_argument("--against", default="transformers", choices=("transformers", "vllm", "nothing"))
    bench.add_argument(
        "--server", action="append", default=[], metavar="NAME=URL", help="with --against vllm: a running server"
    )
    bench.add_argument("--max-new-tokens", type=at_least(2), default=64)
    bench.add_argument("--gamma", type=at_least(1), default=4)
    bench.add_argument("--repeats", type=at_least(1), default=3)
    bench.add_argument("--out", type=Path, metavar="RESULT.json")

    load = command(commands, "concurrency", run_concurrency, "where speculation stops paying as requests share a pass")
    load.add_argument("--target", default=DEFAULT, choices=tuple(CATALOGUE), metavar="NAME")
    load.add_argument("--questions", type=Path, metavar="FILE.jsonl", help="Spec-Bench questions; presets otherwise")
    load.add_argument("--held-out", action="store_true", help="prompts that no head of ours was trained on, by task")
    load.add_argument("--category", nargs="+", help="only these categories of the questions, or these presets")
    load.add_argument("--limit", type=at_least(1), default=10, help="questions a category")
    load.add_argument("--drafters", nargs="*", default=["prompt_lookup"], metavar="NAME[:KEY=VALUE,…]")
    load.add_argument(
        "--batch", nargs="+", type=at_least(1), default=[1, 2, 4, 8, 16, 32, 64], help="requests side by side"
    )
    load.add_argument("--gamma", nargs="+", type=at_least(1), default=[2, 4])
    load.add_argument("--alpha", nargs="*", type=float, default=[0.6, 0.8], help="chances of a free, lossy drafter")
    load.add_argument("--max-new-tokens", type=at_least(2), default=32)
    load.add_argument("--repeats", type=at_least(1), default=3)
    load.add_argument("--out", type=Path, metavar="RESULT.json")
    load.add_argument("--csv", type=Path, metavar="FILE.csv", help="a line a batch")

    long = command(commands, "context", run_context, "how a pass grows with the text behind it, and whom that helps")
    long.add_argument("--target", default=DEFAULT, choices=tuple(CATALOGUE), metavar="NAME")
    long.add_argument("--drafters", nargs="+", metavar="NAME[:KEY=VALUE,…]", help="two when left out")
    long.add_argument("--length", nargs="+", type=at_least(1), help="tokens behind which it is measured")
    long.add_argument("--gamma", type=at_least(1), default=4)
    long.add_argument("--max-new-tokens", type=at_least(2), default=32)
    long.add_argument("--passes", type=at_least(1), default=12, help="timed passes of every kind behind each length")
    long.add_argument("--repeats", type=at_least(1), default=1)
    long.add_argument("--out", type=Path, metavar="RESULT.json")
    long.add_argument("--csv", type=Path, metavar="FILE.csv", help="a line a sample")

    passes = command(commands, "cost", run_cost, "what a pass over n tokens costs here, and this device's roofline")
    passes.add_argument("--target", default=DEFAULT, choices=tuple(CATALOGUE), metavar="NAME")
    passes.add_argument("--max-n", type=at_least(2), default=16, help="passes over 1 to so many tokens")
    passes.add_argument("--context", type=at_least(1), default=128, help="tokens in front of them")
    passes.add_argument("--repeats", type=at_least(2), default=5)
    passes.add_argument("--out", type=Path, metavar="RESULT.json")

    few = command(
        commands, "quantise", run_quantise, "weights and KV cache of few bits: what the law, α and speed keep"
    )
    few.add_argument("--target", default=DEFAULT, choices=tuple(CATALOGUE), metavar="NAME")
    few.add_argument("--questions", type=Path, metavar="FILE.jsonl", help="Spec-Bench questions; presets otherwise")
    few.add_argument("--held-out", action="store_true", help="prompts that no head of ours was trained on, by task")
    few.add_argument("--category", nargs="+", help="only these categories of the questions, or these presets")
    few.add_argument("--limit", type=at_least(1), default=2, help="questions a category")
    few.add_argument("--drafters", nargs="+", metavar="NAME[:KEY=VALUE,…]", help="two when left out")
    few.add_argument("--forms", nargs="+", metavar="FORM", help="int8, int4, int8_bfloat16, kv8, kv4, kv4r, kv3, kv3r")
    few.add_argument("--gamma", type=at_least(1), default=4)
    few.add_argument("--max-new-tokens", type=at_least(2), default=24)
    few.add_argument("--passes", type=at_least(2), default=8, help="timed passes of every kind in each form")
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
    sweep.add_argument("--limit", type=at_least(1), default=5, help="questions a category")
    sweep.add_argument(
        "--drafters",
        nargs="+",
        default=["prompt_lookup"],
        metavar="NAME[:KEY=VALUE,…]",
        help="a drafter and what is not its default; rule=NAME sets the rule",
    )
    sweep.add_argument("--gamma", nargs="+", type=at_least(1), help="the values of `gamma`; one value for the others")
    sweep.add_argument("--temperature", nargs="+", type=float, help="the values of `temperature`; one for the others")
    sweep.add_argument("--seeds", nargs="+", type=at_least(0), default=[0])
    sweep.add_argument("--repeats", type=at_least(1), default=3)
    sweep.add_argument("--max-new-tokens", type=at_least(2), default=64)
    sweep.add_argument("--out", type=Path, metavar="RESULT.json")
    sweep.add_argument("--csv", type=Path, metavar="FILE.csv", help="a line a run")


def run_bench(options: argparse.Namespace) -> int:
    """Ratios of tokens per second, in alternating order in one process; what was timed before Ctrl-C is kept."""
    from spec_viz.drafters.registry import families
    from spec_viz.lab import bench

    questions = questions_of(options)
    known("drafter", options.drafters, families())
    _check_servers(options)
    writable(options.out)
    loaded = load_model(DEFAULT)
    peers = _peers(options, loaded)
    with signals() as stopped:
        result = bench.measure(
            loaded,
            questions,
            options.drafters,
            peers=peers,
            gamma=options.gamma,
            max_new_tokens=options.max_new_tokens,
            repeats=options.repeats,
            progress=lambda items: tqdm(items, file=sys.stderr),
            stop=lambda: bool(stopped),
            keep=lambda record: save(options.out, record, "timings"),
        )
    return show_bench(options, result)


def _check_servers(options: argparse.Namespace) -> None:
    if (options.against == "vllm") != bool(options.server):
        raise ValueError("--against vllm takes at least one --server NAME=URL, and nothing else takes any.")
    if not all("=" in text for text in options.server):
        raise ValueError("--server takes NAME=URL, such as plain=http://127.0.0.1:8000")


def _peers(options: argparse.Namespace, loaded: Loaded) -> dict[str, Method]:
    from spec_viz.lab import bench

    if options.against == "transformers":
        return bench.transformers_peers(loaded, options.drafters, options.gamma, options.max_new_tokens)
    pairs = [text.partition("=") for text in options.server]
    return bench.server_peers({name: address for name, _, address in pairs}, options.max_new_tokens)


def show_bench(options: argparse.Namespace, result: dict[str, Any]) -> int:
    """The record as JSON, or its table with the conditions under it."""
    from spec_viz.lab import bench

    if options.json:
        print(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        _said_of_the_end(result, "timings")
    if result["timings"] and not options.json:
        rows = bench.rows(result)
        told = [name for name in rows[0] if any(row[name] is not None for row in rows)]
        show(options, [{name: row[name] for name in told} for row in rows], "bench")
        out.print(f"[dim]{bench.conditions_line(result)}[/dim]")
    return 1 if result["finish"] == "stopped" else 0


def _said_of_the_end(record: dict[str, Any], list_: str) -> None:
    if not record[list_]:
        err.print("Nothing was measured, so there is no table, and no file was written.")
    elif record["finish"] == "stopped":
        err.print("Stopped before the end: this is what was measured until then.")


def save(path: Path | None, record: dict[str, Any], list_: str) -> None:
    """Write a record whose list is not empty: a run that brought nothing leaves an older file as it is."""
    if path and record[list_]:
        path.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")


def questions_of(options: argparse.Namespace) -> list[Question]:
    """Those of a file, or the presets' own prompts."""
    from spec_viz.content.presets import load_presets
    from spec_viz.lab.bench import Question, read_questions
    from spec_viz.training.prompts import TASKS, held_out_prompts

    if options.questions and options.held_out:
        raise ValueError("--questions and --held-out name two sets of prompts: leave one out.")
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


def run_cost(options: argparse.Namespace) -> int:
    """v(n), and how fast this device read and computed for it."""
    from spec_viz.lab import cost

    writable(options.out)
    result = cost.measure(
        load_model(options.target),
        max_n=options.max_n,
        context=options.context,
        repeats=options.repeats,
        drafters={},
        progress=lambda items: tqdm(items, file=sys.stderr),
    )
    save(options.out, result, "v")
    if options.json:
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return 0
    show(
        options,
        [{name: round(row[name], 3) for name in ("n", "ratio", "low", "high", "ms")} for row in result["v"]],
        "v(n)",
    )
    if found := result["roofline"]:
        out.print(
            f"a pass reads B = {found['bytes_per_pass'] / 1e6:.0f} MB, a token costs F = "
            f"{found['flops_per_token'] / 1e6:.0f} MFLOP\n"
            f"β = B / t(1) = {found['bytes_per_second'] / 1e9:.1f} GB/s, "
            f"π = max n·F / t(n) = {found['flops_per_second'] / 1e9:.1f} GFLOP/s\n"
            f"n* = π/β · B/F = {found['knee']:.1f} tokens: where a pass turns from reading to arithmetic"
        )
    told = result["conditions"]
    out.print(
        f"[dim]{told['target']}, {told['device_name']}, threads: {told['threads']}, {told['dtype']}, batch 1, behind "
        f"{told['context']} tokens, medians of {told['repeats']}; {told['created']}[/dim]"
    )
    return 0


def run_concurrency(options: argparse.Namespace) -> int:
    """Speed and latency by batch size, where it stops paying, K by batch size for vLLM; Ctrl-C keeps what there is."""
    from spec_viz.lab import concurrency
    from spec_viz.lab.concurrency import Plan

    plan = Plan(
        choices_of(options),
        tuple(questions_of(options)),
        tuple(options.batch),
        tuple(options.gamma),
        tuple(options.alpha),
        options.max_new_tokens,
        options.repeats,
        ("table", "goodput"),
    )
    result = _measured(options, "concurrency", concurrency, plan)
    if result["samples"] and not options.json:
        show(options, concurrency.rows(result), "concurrency")
        show(options, concurrency.crossings(result), "where it stops paying")
        tables = [{**row, "vllm": row["vllm"] and json.dumps(row["vllm"])} for row in result["schedules"]]
        show(options, tables, "tables")
        out.print(f"[dim]{concurrency.conditions_line(result)}[/dim]")
    return 1 if result["finish"] == "stopped" else 0


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
    choices = choices_of(options)
    return replace(plan, drafters=choices) if choices else plan


def _run_plan(options: argparse.Namespace, kind: str, plan: context.Plan | quantisation.Plan) -> int:
    """Measure a plan of this kind; what the page says of its record is said here: a table, a sentence, conditions."""
    from spec_viz.lab import results
    from spec_viz.ui.experiments import charts_of
    from spec_viz.ui.wording import words

    record = _measured(options, kind, results.module_of(kind), plan)
    if record["samples"] and not options.json:
        told = charts_of(kind).shown(_read(record), None, words("en"), "light")
        table = told["table"]
        show(options, [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]], kind)
        out.print(told["verdict"])
        out.print(f"[dim]{told['conditions']}[/dim]")
    return 1 if record["finish"] == "stopped" else 0


def run_sweep(options: argparse.Namespace) -> int:
    """An experiment as a table with intervals; what was measured before Ctrl-C is kept."""
    from spec_viz.lab import sweep, sweep_rows

    record = _measured(options, options.kind, sweep, _experiment(options), "points")
    if record["points"] and not options.json:
        read = _read(record)
        show(options, sweep_rows.rows(read), options.kind)
        out.print(f"[dim]{sweep_rows.conditions_line(read)}[/dim]")
    return 1 if record["finish"] == "stopped" else 0


def _measured(options: argparse.Namespace, title: str, lab: Any, plan: Any, list_: str = "samples") -> dict[str, Any]:
    """The record of a plan, measured by the module of its kind, in the files asked for; JSON is printed here."""

    def keep(record: dict[str, Any]) -> None:
        save(options.out, record, list_)
        if options.csv and record[list_]:
            options.csv.write_text(lab.to_csv(_read(record)), encoding="utf-8")

    lab.validate(plan)
    writable(options.out, options.csv)
    loaded = load_model(options.target)
    with signals() as stopped:
        record: dict[str, Any] = lab.measure(
            loaded,
            plan,
            lambda: bool(stopped),
            lambda turns: tqdm(list(turns), desc=title, file=sys.stderr),
            keep,
        )
    if options.json:
        print(json.dumps(record, ensure_ascii=False, indent=2))
    else:
        _said_of_the_end(record, list_)
    return record


def _read(record: dict[str, Any]) -> Any:
    """A record as one reads it in its file."""
    from spec_viz.lab import results

    return results.read(json.loads(json.dumps(record)))


def _experiment(options: argparse.Namespace) -> Experiment:
    from spec_viz.lab.sweep import Experiment

    values = {
        "gamma": options.gamma or ([1, 2, 4, 8] if options.kind == "gamma" else [4]),
        "temperature": options.temperature or ([0.0, 0.5, 1.0] if options.kind == "temperature" else [0.0]),
    }
    for name, given in values.items():
        if name != options.kind and len(given) > 1:
            raise ValueError(f"--{name} takes one value here: `sweep {name}` is what varies it.")
    return Experiment(
        options.kind,
        choices_of(options),
        tuple(questions_of(options)),
        tuple(map(float, values.get(options.kind, []))),
        gamma=values["gamma"][0],
        temperature=values["temperature"][0],
        seeds=tuple(options.seeds),
        repeats=options.repeats,
        max_new_tokens=options.max_new_tokens,
    )


def choices_of(options: argparse.Namespace) -> tuple[Choice, ...]:
    """The drafters asked for, each with what was set behind its colon."""
    from spec_viz.drafters.registry import families

    choices = tuple(_choice(text) for text in options.drafters or ())
    known("drafter", [choice.drafter for choice in choices], families())
    return choices


def _choice(text: str) -> Choice:
    from spec_viz.lab.sweep import Choice

    name, _, given = text.partition(":")
    settings = settings_of(name, [each for each in given.split(",") if each])
    rule = settings.pop("rule", None)
    return Choice(name, settings, rule)
