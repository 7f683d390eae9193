"""The command line: what the page does, without a browser. Tables for people, JSON with `--json`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tqdm import tqdm

from spec_viz.models.catalogue import CATALOGUE, DEFAULT, TRAINED
from spec_viz.models.weights import WeightsError

if TYPE_CHECKING:
    from spec_viz.engine.trace import Round, Trace
    from spec_viz.lab.bench import Question
    from spec_viz.lab.sweep import Choice, Experiment
    from spec_viz.models.load import Loaded
    from spec_viz.models.readiness import Standing
    from spec_viz.training.recipe import Workshop

STYLES = {
    "accepted": ("✓", "black on green"),
    "rejected": ("✗", "white on red strike"),
    "discarded": ("·", "white on grey37"),
    "correction": ("↺", "white on blue"),
    "bonus": ("★", "white on blue"),
    "plain": ("", "white on blue"),
}

# A file or a pipe has no width of its own, and a table cut to 80 columns cannot be read there.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True, highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 when it did what it says, 1 when a check failed, 2 when it could not run."""
    options = _parser().parse_args(arguments)
    from spec_viz.ui.wording import words

    try:
        return int(options.run(options))
    except WeightsError as problem:
        err.print(words("en")(problem.key, **problem.fields), style="red")
    except OSError as problem:
        err.print(f"{problem.filename or 'A file'}: {problem.strerror or problem}.", style="red")
    except ValueError as problem:
        key = getattr(problem, "key", None)
        sentence = words("en")(key, **problem.fields) if key else str(problem)  # type: ignore[attr-defined]
        err.print(sentence, style="red")
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spec_viz", description="Speculative decoding, shown and measured.")
    commands = parser.add_subparsers(dest="command", required=True)

    models = _command(commands, "models", run_models, "what models exist, bring weights into the cache, print a folder")
    models.add_argument("action", nargs="?", choices=("list", "fetch", "path"), default="list")
    models.add_argument("name", nargs="?", default=DEFAULT, choices=tuple(CATALOGUE), metavar="NAME")

    _command(commands, "drafters", run_drafters, "every drafter: what it drafts, which rules fit, its options")

    decode = _command(commands, "decode", run_decode, "one run, its rounds as coloured tiles")
    prompt = decode.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt")
    prompt.add_argument("--prompt-file", type=Path)
    _request_options(decode)
    decode.add_argument("--trace", type=Path, metavar="OUT.ndjson", help="write the trace here")
    decode.add_argument("--dialects", action="store_true", help="also say the rates as other projects define them")
    decode.add_argument("--race", action="store_true", help="decode the prompt plainly as well and compare")

    law = _command(commands, "law", run_law, "the losslessness tests")
    law.add_argument("--drafter", action="append", metavar="NAME", help="only these drafters on the real model")
    law.add_argument("--rule", action="append", metavar="NAME", help="only these rules")
    law.add_argument("--rounds", type=int, default=100_000)
    law.add_argument("--toy", action="store_true", help="leave the real model out")
    law.add_argument("--planted", action="store_true", help="also run planted faults, each of which must fail")

    bench = _command(commands, "bench", run_bench, "speed beside transformers' generate, as ratios in one run")
    bench.add_argument("--questions", type=Path, metavar="FILE.jsonl", help="Spec-Bench questions; presets otherwise")
    bench.add_argument("--held-out", action="store_true", help="prompts that no head of ours was trained on, by task")
    bench.add_argument("--category", nargs="+", help="only these categories of the questions, or these presets")
    bench.add_argument("--limit", type=int, default=10, help="questions a category")
    bench.add_argument("--drafters", nargs="+", default=["prompt_lookup"], metavar="NAME")
    bench.add_argument("--against", default="transformers", choices=("transformers", "nothing"))
    bench.add_argument("--max-new-tokens", type=int, default=64)
    bench.add_argument("--gamma", type=int, default=4)
    bench.add_argument("--repeats", type=int, default=3)
    bench.add_argument("--out", type=Path, metavar="RESULT.json")

    load = _command(commands, "concurrency", run_concurrency, "where speculation stops paying as requests share a pass")
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

    sweep = _command(
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

    record = _command(commands, "record", run_record, "make the recorded runs of presets and lessons again")
    record.add_argument("names", nargs="*", metavar="NAME", help="only these presets and lessons (a lesson's folder)")

    lessons = _command(commands, "lessons", run_lessons, "check every preset and lesson")
    lessons.add_argument("action", choices=("check",))
    lessons.add_argument("--live", action="store_true", help="also run everything again and compare with what is kept")

    train = commands.add_parser("train", help="make what our draft heads learn from")
    steps = train.add_subparsers(dest="step", required=True)
    data = _command(steps, "data", run_train_data, "the target answers our prompts; goes on where it was stopped")
    data.add_argument("--out", type=Path, required=True, metavar="DIR")
    data.add_argument("--tokens", type=int, required=True, help="how many of the target's own tokens to reach")
    data.add_argument("--batch", type=int, default=64, help="answers written side by side")
    data.add_argument("--seed", type=int, default=0)
    data.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="what the target computes in; bfloat16 hurries",
    )
    stats = _command(steps, "stats", run_train_stats, "what a corpus holds, and how much of it repeats itself")
    stats.add_argument("--data", type=Path, required=True, metavar="DIR")
    live = _command(steps, "measure", run_train_measure, "run every head on held-out prompts; its papers get the rates")
    live.add_argument("--limit", type=int, default=5, help="prompts a task")
    live.add_argument("--max-new-tokens", type=int, default=64)
    live.add_argument("--gamma", type=int, default=4)
    live.add_argument("--repeats", type=int, default=1)
    live.add_argument("--out", type=Path, metavar="RESULT.json")
    for name in TRAINED:
        head = _command(
            steps, name, run_train_head, f"make the head {name} from a corpus; goes on where it was stopped"
        )
        head.set_defaults(name=name)
        head.add_argument("--data", type=Path, metavar="DIR", help="the corpus; assets/corpus otherwise")
        head.add_argument("--out", type=Path, metavar="DIR", help="where the head goes; its place in assets otherwise")
        head.add_argument("--work", type=Path, metavar="DIR", help="features, checkpoints, log; in the cache otherwise")
        head.add_argument("--shards", type=int, help="only so many shards of the corpus")
        head.add_argument("--smoke", action="store_true", help="seconds on a toy target instead: does it run at all?")
        if name != "bigram":
            head.add_argument("--epochs", type=int, help="times over the corpus")
            head.add_argument("--rate", type=float, help="the highest learning rate")
            head.add_argument("--seed", type=int, default=0)
    return parser


def _command(commands: Any, name: str, run: Callable[[Any], int], help_: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_, description=help_)
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _request_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default=DEFAULT, choices=tuple(CATALOGUE), metavar="NAME")
    parser.add_argument("--drafter", default="prompt_lookup", metavar="NAME")
    parser.add_argument("--rule", metavar="NAME")
    parser.add_argument("--length", default="fixed", metavar="NAME", help="how much of gamma a round uses")
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--repetition-penalty", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--chat", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option of the drafter")


# ---------------------------------------------------------------- models, drafters


def run_models(options: argparse.Namespace) -> int:
    """List the catalogue, fetch a model into the cache, or print its folder."""
    from spec_viz.models import weights
    from spec_viz.models.catalogue import table

    if options.action == "list":
        rows = table()
        if not options.json:
            # What does not fit a terminal's width is in the JSON.
            shown = (
                "name",
                "parameters",
                "licence",
                "size",
                "writes",
                "partner",
                "cached",
                "device",
                "dtype",
                "packed",
            )
            rows = [{name: row[name] for name in shown} for row in rows]
        return _show(options, rows, "models")
    if options.action == "fetch":
        _fetch(options.name)
    folder = weights.folder(options.name)
    print(json.dumps({"name": options.name, "folder": str(folder)}) if options.json else folder)
    return 0


def _fetch(name: str) -> None:
    from spec_viz.models import weights

    with tqdm(total=100, desc=name, file=sys.stderr, bar_format="{desc} {percentage:3.0f}%|{bar}|") as bar:

        def progress(stage: str, fraction: float | None) -> None:
            bar.set_description(f"{name}: {stage}")
            bar.n = round(100 * (fraction or 0))
            bar.refresh()

        weights.fetch(name, progress)


def run_drafters(options: argparse.Namespace) -> int:
    """A row a drafter."""
    from spec_viz.drafters.registry import families
    from spec_viz.models.readiness import standing

    rows = [
        {
            "name": family.name,
            "drafts": family.drafts,
            "rules": ", ".join(family.rules),
            "lossless": "yes",
            "ready": _ready(standing(family)),
            "options": ", ".join(f"{knob.name}={knob.default}" for knob in family.knobs),
        }
        for family in families().values()
    ]
    return _show(options, rows, "drafters")


def _ready(stands: Standing) -> str:
    """Yes or no; of a trained head also its α on held-out prompts beside that of the bigram table."""
    word = "yes" if stands.ready else "no"
    if stands.alpha is None:
        return word if stands.ready else "no: its head is missing, or was not measured"
    return f"{word}, α {stands.alpha:.2f}" + (f" (bigram {stands.floor:.2f})" if stands.floor is not None else "")


def _show(options: argparse.Namespace, rows: Sequence[dict[str, Any]], title: str) -> int:
    if options.json:
        print(json.dumps(list(rows), ensure_ascii=False, indent=2))
        return 0
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    out.print(table)
    return 0


# ---------------------------------------------------------------- decode


def _load(name: str, dtype: str | None = None) -> Loaded:
    import torch

    from spec_viz.models import weights
    from spec_viz.models.load import load

    if not weights.is_cached(name):
        _fetch(name)
    return load(name, dtype=getattr(torch, dtype) if dtype else None)


def run_decode(options: argparse.Namespace) -> int:
    """One run, drawn as it comes."""
    from spec_viz.engine.trace import dumps
    from spec_viz.lab.run import Request, check, start

    prompt = options.prompt if options.prompt is not None else options.prompt_file.read_text(encoding="utf-8")
    names = (
        "drafter",
        "rule",
        "length",
        "gamma",
        "temperature",
        "top_k",
        "top_p",
        "repetition_penalty",
        "seed",
        "max_new_tokens",
        "chat",
    )
    given = {name: getattr(options, name) for name in names}
    request, _ = check(Request(prompt, options=_settings(options.drafter, options.set), **given))
    if options.trace:
        # Asked before the run, so that a folder that does not exist costs no rounds.
        options.trace.touch()
    loaded = _load(options.target)
    draw = None if options.json else _draw
    traces = [_watch(start(loaded, request), draw)]
    if options.race:
        traces.append(_watch(start(loaded, request.baseline()), None))
    if options.trace:
        options.trace.write_text(dumps(*traces), encoding="utf-8")
    dialects = _dialects(traces[0]) if options.dialects else []
    if options.json:
        said = {"dialects": dialects} if dialects else {}
        print(json.dumps(_report(traces) | said, ensure_ascii=False, indent=2))
    else:
        _print_summary(traces)
        if dialects:
            out.print()
            # What is said of the first position holds for the others.
            rows = [row | {"definition": "" if (row["position"] or 1) > 1 else row["definition"]} for row in dialects]
            _show(options, rows, "the same run in other words")
    return 0


def _dialects(run: Trace) -> list[dict[str, Any]]:
    from spec_viz.lab.dialects import translate
    from spec_viz.ui.wording import words

    return [
        {
            "source": said.source,
            "name": said.name,
            "position": said.position,
            "value": None if said.value is None else round(said.value, 3),
            "unit": said.unit,
            "numerator": round(said.numerator, 3),
            "denominator": said.denominator,
            "bonus": "yes" if said.bonus else "no",
            "definition": words("en")(said.definition),
        }
        for said in translate(run)
    ]


def _settings(drafter: str, given: Sequence[str]) -> dict[str, Any]:
    """Options from KEY=VALUE texts; what a text knob takes stays text even where it is a number."""
    from spec_viz.drafters.registry import families

    family = families().get(drafter)
    whole = {knob.name for knob in family.knobs if knob.kind == "int"} if family else set()
    settings: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set takes KEY=VALUE, not {text!r}")
        settings[name] = int(value) if name in whole and value.lstrip("-").isdigit() else value
    return settings


def _watch(run: Any, draw: Callable[[Round, dict[int, Any]], None] | None) -> Trace:
    from dataclasses import replace

    from spec_viz.engine.trace import Round

    rounds: list[Round] = []
    table = dict(run.header.tokens)
    finish = None
    for part in run.parts:
        if isinstance(part, Round):
            rounds.append(part)
            table.update(part.tokens)
            if draw:
                draw(part, table)
        else:
            finish = part
    trace: Trace = replace(run.header, rounds=tuple(rounds), finish=finish)
    return trace


def _draw(round_: Round, table: dict[int, Any]) -> None:
    row = Text(f"{round_.round:>4}  ", style="dim")
    for node in round_.nodes:
        _tile(row, table[node.id][0], *STYLES[node.status])
    if round_.emitted:
        _tile(row, table[round_.emitted.id][0], *STYLES[round_.emitted.kind])
    out.print(row)


def _tile(row: Text, text: str, glyph: str, style: str) -> None:
    shown = text.replace("\n", "⏎").replace("\t", "⇥")
    # Other control characters would reach the terminal as commands.
    shown = "".join(letter if letter.isprintable() else "�" for letter in shown)
    row.append(f"{glyph}{shown}", style=style)
    row.append(" ")


def _report(traces: Sequence[Trace]) -> dict[str, Any]:
    from spec_viz.content.claims import text_of
    from spec_viz.lab.metrics import summarise

    run = traces[0]
    summary = summarise(run, traces[1] if len(traces) > 1 else None)
    return {
        "meta": run.meta,
        "finish": run.finish,
        "text": text_of(run),
        "output": run.output,
        "summary": asdict(summary),
    }


def _print_summary(traces: Sequence[Trace]) -> None:
    from spec_viz.ui.view import view
    from spec_viz.ui.wording import words

    shown = view(tuple(traces), words("en"), "light")
    table = Table(box=None, pad_edge=False, show_header=False)
    for number in shown["numbers"]:
        table.add_row(
            words("en")(f"number.{number['key']}"), _number(number), number["fraction"] or "", number["badge"]
        )
    out.print()
    out.print(table)
    if (policy := traces[0].meta["length"]) != "fixed":
        key = f"length.{policy}"
        out.print(f"[dim]{words('en')(key)}: {words('en')(key + '.help')}[/dim]")


def _number(number: dict[str, Any]) -> str:
    value = number["value"]
    return "–" if value is None else f"{value:.{number['digits']}f}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------- law, bench, record, lessons


def run_law(options: argparse.Namespace) -> int:
    """The losslessness tests as a table; exit code 1 when one fails."""
    from spec_viz.drafters.registry import families
    from spec_viz.engine.rules import RULES
    from spec_viz.lab import law, law_model, law_tiny

    if options.rounds < law.FEWEST_ROUNDS:
        raise ValueError(f"{options.rounds} rounds are too few to tell one law from another; use {law.FEWEST_ROUNDS}.")
    _known("drafter", options.drafter, families())
    _known("rule", options.rule, RULES)
    tests = list(law.toy_tests(options.rounds, options.rule))
    # Some sixty pairs, each over seven tokens only: a fifth of the rounds tells as much.
    tiny = max(law.FEWEST_ROUNDS, options.rounds // 5)
    tests += law_tiny.tiny_tests(tiny, options.drafter, options.rule)
    tests += law_tiny.tiny_length_tests(options.rounds, options.drafter, options.rule)
    if not options.toy:
        loaded = _load(DEFAULT)
        tests += law_model.model_tests(loaded, options.rounds, options.drafter, options.rule)
    tests = law.family_wise(tests)
    planted = law.planted(options.rounds) if options.planted else []
    rows = [_law_row(test) for test in (*tests, *planted)]
    _show(options, rows, "law")
    return 0 if all(test.passed for test in (*tests, *planted)) else 1


def _known(kind: str, names: Sequence[str] | None, known: Iterable[str]) -> None:
    unknown = sorted({*(names or ())} - {*known})
    if unknown:
        raise ValueError(f"No {kind} is called {', '.join(unknown)}; known: {', '.join(known)}.")


def _law_row(test: Any) -> dict[str, Any]:
    return {
        "test": test.name,
        "rounds": test.rounds or "all",
        "statistic": f"{test.statistic:.3g}",
        "p-value": "exact" if test.p_value is None else f"{test.p_value:.3g}",
        "verdict": "pass" if test.passed else "FAIL",
    }


def run_bench(options: argparse.Namespace) -> int:
    """Ratios of tokens per second, measured in alternating order in one process."""
    from spec_viz.drafters.registry import families
    from spec_viz.lab import bench

    questions = _questions(options)
    _known("drafter", options.drafters, families())
    loaded = _load(DEFAULT)
    result = bench.measure(
        loaded,
        questions,
        options.drafters,
        against_transformers=options.against == "transformers",
        gamma=options.gamma,
        max_new_tokens=options.max_new_tokens,
        repeats=options.repeats,
        progress=lambda items: tqdm(items, file=sys.stderr),
    )
    return _show_bench(options, result)


def _show_bench(options: argparse.Namespace, result: dict[str, Any]) -> int:
    """The record in its file and as JSON, or its table with the conditions under it."""
    from spec_viz.lab import bench

    if options.out:
        options.out.write_text(json.dumps(result, ensure_ascii=False, indent=2), encoding="utf-8")
    if options.json:
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return 0
    rows = bench.rows(result)
    told = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    _show(options, [{name: row[name] for name in told} for row in rows], "bench")
    out.print(f"[dim]{bench.conditions_line(result)}[/dim]")
    return 0


def _questions(options: argparse.Namespace) -> list[Question]:
    """Those of a file, or the presets' own prompts."""
    from spec_viz.content.presets import load_presets
    from spec_viz.lab.bench import Question, read_questions
    from spec_viz.training.prompts import TASKS, held_out_prompts

    if options.questions:
        return read_questions(options.questions, options.category, options.limit)
    if options.held_out:
        _known("task", options.category, TASKS)
        return [Question(task, text) for task, text in held_out_prompts(options.category or TASKS, options.limit)]
    presets = load_presets()
    _known("preset", options.category, [preset.name for preset in presets])
    return [
        Question(preset.name, preset.prompt, bool(preset.settings.get("chat", True)))
        for preset in presets
        if not options.category or preset.name in options.category
    ]


def run_concurrency(options: argparse.Namespace) -> int:
    """Speed and latency by batch size, the crossing points, and K by batch size as vLLM takes it."""
    from spec_viz.drafters.registry import families
    from spec_viz.lab import concurrency

    questions = _questions(options)
    _known("drafter", options.drafters, families())
    result = concurrency.measure(
        _load(options.target),
        questions,
        {name: {} for name in options.drafters},
        batches=options.batch,
        gammas=options.gamma,
        alphas=options.alpha,
        max_new_tokens=options.max_new_tokens,
        repeats=options.repeats,
        progress=lambda items: tqdm(items, file=sys.stderr),
    )
    if options.out:
        options.out.write_text(json.dumps(result, ensure_ascii=False, indent=2), encoding="utf-8")
    if options.json:
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return 0
    _show(options, concurrency.rows(result), "concurrency")
    _show(options, concurrency.crossings(result), "where it stops paying")
    _show(options, [{**row, "vllm": row["vllm"] and json.dumps(row["vllm"])} for row in result["schedules"]], "tables")
    out.print(f"[dim]{concurrency.conditions_line(result)}[/dim]")
    return 0


def run_sweep(options: argparse.Namespace) -> int:
    """An experiment as a table with intervals; what was measured before Ctrl-C is kept."""
    from spec_viz.lab import sweep, sweep_rows

    experiment = sweep.validate(_experiment(options))
    for path in filter(None, (options.out, options.csv)):
        # Asked before the runs, so that a folder that does not exist costs none.
        path.touch()
    loaded = _load(options.target)
    with _signals() as stopped:
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
        _show(options, sweep_rows.rows(read), options.kind)
        out.print(f"[dim]{sweep_rows.conditions_line(read)}[/dim]")
    return 1 if stopped else 0


def _experiment(options: argparse.Namespace) -> Experiment:
    from spec_viz.drafters.registry import families
    from spec_viz.lab.sweep import Experiment

    choices = [_choice(text) for text in options.drafters]
    _known("drafter", [choice.drafter for choice in choices], families())
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
        tuple(_questions(options)),
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
    settings = _settings(name, [each for each in given.split(",") if each])
    rule = settings.pop("rule", None)
    return Choice(name, settings, rule)


def run_record(options: argparse.Namespace) -> int:
    """Run presets and lessons again and keep their traces; what they then do not show is reported, with exit code 1."""
    from spec_viz.content import check
    from spec_viz.content.lessons import lesson_folders, load_lesson
    from spec_viz.content.presets import load_presets
    from spec_viz.content.record import record, record_lesson

    presets = {preset.name: preset for preset in load_presets()}
    folders = {folder.name: folder for folder in lesson_folders(hidden=True)}
    names = options.names or [*presets, *folders]
    if unknown := [name for name in names if name not in presets and name not in folders]:
        raise ValueError(f"no preset or lesson is called {', '.join(unknown)}")
    # Read before anything runs: a slip in a file should not cost the minutes of the recording.
    lessons = {name: load_lesson(folders[name]) for name in names if name in folders}
    loaded = _load(DEFAULT)
    problems: list[str] = []
    for name in tqdm(names, file=sys.stderr):
        if name in presets:
            record(loaded, presets[name])
            problems += presets[name].problems()
        else:
            record_lesson(loaded, lessons[name])
            problems += check.problems(lessons[name])
    return _problems(options, problems)


def run_lessons(options: argparse.Namespace) -> int:
    """Every preset's and lesson's words, traces and claims; with `--live` the traces are made again and compared."""
    from spec_viz.content.check import check_lessons
    from spec_viz.content.live import live_preset_problems
    from spec_viz.content.presets import load_presets

    presets = load_presets()
    problems = [problem for preset in presets for problem in preset.problems()]
    loaded = _load(DEFAULT) if options.live else None
    problems += check_lessons(loaded=loaded)
    if loaded is not None:
        problems += [problem for preset in presets for problem in live_preset_problems(preset, loaded)]
    return _problems(options, problems)


# ---------------------------------------------------------------- train


def run_train_data(options: argparse.Namespace) -> int:
    """Write shards until there are enough tokens; a signal ends it at once, and what was written whole stays."""
    from spec_viz.training.generate import Plan, generate
    from spec_viz.training.prompts import make_prompts

    plan = Plan(batch=options.batch, seed=options.seed)
    loaded = _load(DEFAULT, options.dtype)
    bar = tqdm(total=options.tokens, unit="tok", desc="train data", file=sys.stderr, mininterval=_pause(), miniters=1)

    def hear(tokens: int, already: bool) -> None:
        if already:
            bar.initial = tokens
        bar.update(tokens)

    with _signals() as stopped, bar:
        prompts = make_prompts(options.seed)
        have = generate(loaded, prompts, options.out, options.tokens, plan, lambda: bool(stopped), hear)
    if options.json:
        print(json.dumps({"tokens": have, "stopped": bool(stopped)}))
    elif stopped:
        out.print(f"Stopped with {have} tokens in whole shards; the same command goes on from there.")
    else:
        out.print(f"{have} tokens in {options.out}.")
    return 1 if stopped else 0


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals to stop that have come; while this is open none of them ends the program by itself."""
    import signal

    stopped: list[int] = []
    before = {
        name: signal.signal(name, lambda number, _frame: stopped.append(number))
        for name in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stopped
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _pause() -> float:
    """Seconds between two pictures of a bar. A log file is no terminal: there a line now and then is enough."""
    return 0.5 if sys.stderr.isatty() else 30.0


def run_train_head(options: argparse.Namespace) -> int:
    """Features where they are missing, the course, the evaluation, the head with its papers."""
    import tempfile

    from spec_viz.models.heads import HEADS
    from spec_viz.models.weights import cache_folder
    from spec_viz.training.features import Corpus
    from spec_viz.training.recipe import Workshop
    from spec_viz.training.shards import CORPUS
    from spec_viz.training.smoke import toy_corpus, toy_target

    with tempfile.TemporaryDirectory() as folder:
        if options.smoke:
            place, loaded = Path(folder), toy_target()
            data, out_ = place / "corpus", options.out or place / options.name
            toy_corpus(loaded, data)
        else:
            place, loaded = options.work or cache_folder() / "training", _load(DEFAULT, "bfloat16")
            data, out_ = options.data or CORPUS, options.out or HEADS / options.name
        corpus = Corpus(data, place / "features", options.shards)
        return _train_head(options, Workshop(loaded, corpus), out_, place)


def _train_head(options: argparse.Namespace, shop: Workshop, out_: Path, place: Path) -> int:
    from dataclasses import replace

    from spec_viz.training.heads import RECIPES, train

    course = None
    if options.name in RECIPES:
        given = {name: getattr(options, name) for name in ("epochs", "rate", "seed")}
        course = replace(RECIPES[options.name].course, **{name: to for name, to in given.items() if to is not None})
    # Another course, or more of the corpus, does not go on from this one's checkpoint: each has its own folder.
    parts = (options.name, options.shards or "all", *((course.epochs, course.rate, course.seed) if course else ()))
    folder = place / "-".join(map(str, parts))
    bars: dict[str, Any] = {}

    def hear(what: str, done: int, total: int, line: Mapping[str, Any] | None) -> None:
        if what not in bars:
            # What an earlier run has done is no speed of this one.
            bars[what] = tqdm(total=total, initial=done, desc=what, file=sys.stderr, mininterval=_pause(), miniters=1)
        bars[what].set_postfix(line or {}, refresh=False)
        bars[what].update(done - bars[what].n)

    with _signals() as stopped:
        made = train(options.name, shop, out_, folder, course, lambda: bool(stopped), hear)
    for bar in bars.values():
        bar.close()
    if made is None:
        out.print("Stopped; the same command goes on from there.")
        return 1
    if options.json:
        print(json.dumps(made))
        return 0
    if "held_out" in made:
        _show(options, _slots(made["held_out"]), "answers to held-out prompts, teacher-forced, by slot")
    out.print(f"{options.name} is in {out_}.")
    return 0


def _slots(held_out: Mapping[str, Mapping[str, list[float]]]) -> list[dict[str, Any]]:
    """A row a task: α and agreement by slot."""
    return [
        {"task": task}
        | {f"{kind} {slot}": rate for kind in ("alpha", "agree") for slot, rate in enumerate(rates[kind], 1)}
        for task, rates in held_out.items()
    ]


def run_train_measure(options: argparse.Namespace) -> int:
    """A table like that of `bench`, and the same numbers in each head's papers."""
    from spec_viz.training.measure import measure_live

    result = measure_live(
        _load(DEFAULT),
        options.limit,
        gamma=options.gamma,
        max_new_tokens=options.max_new_tokens,
        repeats=options.repeats,
        progress=lambda items: tqdm(items, file=sys.stderr),
    )
    return _show_bench(options, result)


def run_train_stats(options: argparse.Namespace) -> int:
    """A row a task and temperature."""
    from spec_viz.training.shards import summarise

    return _show(options, summarise(options.data), "corpus")


def _problems(options: argparse.Namespace, problems: Sequence[str]) -> int:
    if options.json:
        print(json.dumps({"problems": list(problems)}, ensure_ascii=False))
    else:
        for problem in problems:
            err.print(problem, style="red")
        out.print("everything holds" if not problems else f"{len(problems)} problems")
    return 1 if problems else 0
