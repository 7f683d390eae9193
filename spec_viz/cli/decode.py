"""`decode`: one run, its rounds as coloured tiles."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from spec_viz.cli.terminal import command, load_model, out, show, signals, writable
from spec_viz.models.catalogue import CATALOGUE, DEFAULT

if TYPE_CHECKING:
    from spec_viz.engine.trace import Round, Trace

STYLES = {
    "accepted": ("✓", "black on green"),
    "rejected": ("✗", "white on red strike"),
    "discarded": ("·", "white on grey37"),
    "correction": ("↺", "white on blue"),
    "bonus": ("★", "white on blue"),
    "plain": ("", "white on blue"),
}
ENDED = ("eos", "length")


def add(commands: Any) -> None:
    """Offer `decode`."""
    decode = command(commands, "decode", run_decode, "one run, its rounds as coloured tiles")
    prompt = decode.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt")
    prompt.add_argument("--prompt-file", type=Path)
    _request_options(decode)
    decode.add_argument("--trace", type=Path, metavar="OUT.ndjson", help="write the trace here")
    decode.add_argument("--dialects", action="store_true", help="also say the rates as other projects define them")
    decode.add_argument("--race", action="store_true", help="decode the prompt plainly as well and compare")


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
    request, _ = check(
        Request(prompt, options=settings_of(options.drafter, options.set), **given), CATALOGUE[options.target]
    )
    writable(options.trace)
    loaded = load_model(options.target)
    draw = None if options.json else _draw
    with signals() as stopped:
        traces = [_watch(start(loaded, request, lambda: bool(stopped)), draw)]
        if options.race and not stopped:
            traces.append(_watch(start(loaded, request.baseline(), lambda: bool(stopped)), None))
    if options.trace:
        options.trace.write_text(dumps(*traces), encoding="utf-8")
    if not traces[0].rounds:
        raise KeyboardInterrupt  # stopped before the first round: there is nothing to tell
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
            show(options, rows, "the same run in other words")
    return 1 if stopped else 0


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


def settings_of(drafter: str, given: Sequence[str]) -> dict[str, Any]:
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
        _tile(row, "…" if node.id is None else table[node.id][0], *STYLES[node.status])
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

    said = words("en")
    shown = view(tuple(traces), said, "light")
    table = Table(box=None, pad_edge=False, show_header=False)
    for number in shown["numbers"]:
        table.add_row(said(f"number.{number['key']}"), _number(number), number["fraction"] or "", number["badge"])
    out.print()
    if traces[0].finish == "stopped":
        out.print(said("board.finish.stopped"), style="yellow")
    out.print(table)
    if len(traces) > 1 and all(trace.finish in ENDED for trace in traces):
        out.print(said("race.same" if traces[0].output == traces[1].output else "race.differs"))
    if (policy := traces[0].meta["length"]) != "fixed":
        key = f"length.{policy}"
        out.print(f"[dim]{said(key)}: {said(key + '.help')}[/dim]")


def _number(number: dict[str, Any]) -> str:
    value = number["value"]
    return "–" if value is None else f"{value:.{number['digits']}f}" if isinstance(value, float) else str(value)
