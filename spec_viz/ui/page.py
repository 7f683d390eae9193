"""The Gradio app: one component that is the whole page, its events, and how it is launched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gradio as gr
import plotly
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from spec_viz.content.files import ASSETS, LESSONS
from spec_viz.engine.trace import MAX_BYTES, SCHEMA, TraceError
from spec_viz.ui.boot import boot, script_tag
from spec_viz.ui.classroom_route import class_routes, school_of
from spec_viz.ui.experiments import experiment as experiment_of
from spec_viz.ui.family import family_routes
from spec_viz.ui.lab import is_whole
from spec_viz.ui.lab import law as law_of
from spec_viz.ui.lab import place as place_of
from spec_viz.ui.lesson_route import lesson_routes
from spec_viz.ui.room import Room, bundle_of
from spec_viz.ui.serve import serve as serve_of
from spec_viz.ui.serve_view import served as served_of
from spec_viz.ui.view import view as view_of
from spec_viz.ui.wording import words

PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"

# Gradio compiles templates as JavaScript, so nothing that comes from a model may pass through one: the template is
# static, and the page's script draws with textContent. The names of events must stand here in quotes to be bound.
ON_LOAD = """
const app = import(new URL('sv/js/app.js', document.baseURI));
app.then(module => module.mount({element, props, watch, server, trigger: (name, data) => {
  if (name === 'run') trigger('run', data);
}}));
"""


def build(room: Room) -> gr.Blocks:
    """The page over an engine room."""

    def run(event: gr.EventData, request: gr.Request) -> Iterator[str]:
        asked = event._data.get("request") if isinstance(event._data, dict) else None
        yield from room.serve(asked if isinstance(asked, dict) else {}, request.session_hash or "")

    # Gradio hands a server function one argument, and calls it beside the queue: these are cheap.
    def view(asked: Any) -> dict[str, Any]:
        return shown(asked)

    def drift(asked: Any) -> dict[str, Any]:
        return drifted(asked)

    def place(asked: Any) -> dict[str, Any]:
        return place_of(asked)

    def law(asked: Any) -> dict[str, Any]:
        return law_of(asked)

    def experiment(asked: Any) -> dict[str, Any]:
        return experiment_of(asked)

    def serve(asked: Any) -> dict[str, Any]:
        return serve_of(asked)

    def served(asked: Any) -> dict[str, Any]:
        return served_of(asked)

    def state(_: Any) -> dict[str, Any]:
        return room.state()

    def stop(nonce: Any) -> None:
        if isinstance(nonce, str):
            room.stop(nonce)

    page = gr.Blocks(title="SpecViz", analytics_enabled=False, fill_width=True)
    with page:
        board = gr.HTML(
            "",
            html_template="<div class='sv-app'></div>",
            js_on_load=ON_LOAD,
            apply_default_css=False,
            elem_id="specviz",
            server_functions=[view, drift, place, law, experiment, serve, served, state, stop],
        )
        board.run(
            run,
            None,
            board,
            show_progress="hidden",
            concurrency_limit=room.limits.line + 1,
            concurrency_id="decode",
            trigger_mode="multiple",
            api_visibility="private",
        )
    # The visitors' line is the room's own, which shows each their place; Gradio's queue only carries it.
    page.queue(max_size=2 * room.limits.line, api_open=False)
    return page


def shown(asked: Any) -> dict[str, Any]:
    """Numbers, charts and verdict of what a page holds, asked as [ndjson, language, theme]; or one error sentence."""
    ndjson, language, theme = asked if isinstance(asked, list) and len(asked) == 3 else ("", "en", "light")
    try:
        traces = bundle_of(ndjson if isinstance(ndjson, str) else "")
    except TraceError as problem:
        return {"error": _unreadable(problem)}
    return view_of(traces, words(language), "dark" if theme == "dark" else "light")


def drifted(asked: Any) -> dict[str, Any]:
    """What a planted fault has written, asked as {"fault", "repaired", "rounds", "seed", "before": counts so far}."""
    from spec_viz.lab.drift import FAULTS, MOST_COUNTED, MOST_ROUNDS, drift

    given = asked if isinstance(asked, dict) else {}
    fault: Any = given.get("fault")
    rounds: Any = given.get("rounds")
    seed: Any = given.get("seed")
    before: Any = given.get("before") or []
    fits = isinstance(fault, str) and fault in FAULTS and is_whole(rounds, 1, MOST_ROUNDS)
    fits = fits and is_whole(seed, 0, 2**53) and isinstance(before, list)
    if not fits or not all(is_whole(count, 0, MOST_COUNTED) for count in before):
        return {"error": {"key": "break.failed", "args": {}}}
    try:
        return asdict(drift(fault, rounds, seed, repaired=given.get("repaired") is True, before=before))
    except ValueError:
        return {"error": {"key": "break.failed", "args": {}}}


def _unreadable(problem: TraceError) -> dict[str, Any]:
    """The sentence for a file that is no trace. What is wrong at its place is told in English, to programmers only."""
    if problem.field == "file":
        return {"key": "error.trace_too_large", "args": {"megabytes": MAX_BYTES // 1_000_000}}
    if problem.field.endswith(", schema"):
        found = problem.problem.rpartition("found ")[2]
        return {"key": "error.trace_version", "args": {"expected": SCHEMA, "found": found}}
    line, _, field = problem.field.removeprefix("line ").partition(", ")
    if field:
        return {"key": "error.bad_trace", "args": {"line": line, "field": field}}
    return {"key": "error.bad_trace_line", "args": {"line": line}}


def head(room: Room) -> str:
    """Style sheets, boot data and module preloads for the page's head."""
    styles = "".join(
        f'<link rel="stylesheet" href="sv/css/{path.name}">' for path in sorted((ASSETS / "css").glob("*.css"))
    )
    scripts = "".join(
        f'<link rel="modulepreload" href="sv/js/{path.name}">' for path in sorted((ASSETS / "js").glob("*.js"))
    )
    return (
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        + styles
        + scripts
        + script_tag(boot(room.limits))
    )


async def _plotly(_: Request) -> FileResponse:
    return FileResponse(PLOTLY, media_type="text/javascript")


def launch_options(room: Room) -> dict[str, Any]:
    """What `launch` is told: own static files, no run history, no monitoring, no telemetry."""
    return {
        "head": head(room),
        "footer_links": [],
        "run_history": False,
        "enable_monitoring": False,
        "max_file_size": "1mb",
        "ssr_mode": False,
        "max_threads": room.limits.line + 16,
        "quiet": True,
        "app_kwargs": {
            "routes": [
                Route("/sv/vendor/plotly.min.js", _plotly),
                *lesson_routes,
                *family_routes,
                *class_routes(school_of(os.environ)),
                Mount("/sv/lessons", StaticFiles(directory=LESSONS)),
                Mount("/sv", StaticFiles(directory=ASSETS)),
            ]
        },
    }
