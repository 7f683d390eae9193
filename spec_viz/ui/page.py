"""The Gradio app: one component that is the whole page, its events, and how it is launched."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gradio as gr
import plotly
from anyio import CapacityLimiter, to_thread
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from spec_viz.content.files import ASSETS, LESSONS
from spec_viz.engine.trace import MAX_BYTES, SCHEMA, TraceError
from spec_viz.ui.boot import boot, script_tag
from spec_viz.ui.classroom_route import class_routes, school_of
from spec_viz.ui.door import Door
from spec_viz.ui.experiments import experiment as experiment_of
from spec_viz.ui.family import family_routes
from spec_viz.ui.lab import is_whole
from spec_viz.ui.lab import law as law_of
from spec_viz.ui.lab import place as place_of
from spec_viz.ui.lesson_route import lesson_routes
from spec_viz.ui.limits import is_on
from spec_viz.ui.listening import Listening
from spec_viz.ui.room import Room, bundle_of
from spec_viz.ui.serve import serve as serve_of
from spec_viz.ui.serve_view import served as served_of
from spec_viz.ui.settings import SHARE, set_port
from spec_viz.ui.turnstile import Turnstile
from spec_viz.ui.view import view as view_of
from spec_viz.ui.visitor import visitor_of
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


# Sent where Gradio's queue takes no run, and where it loses one.
ON_REFUSAL = "() => { document.dispatchEvent(new Event('sv-refused')); }"

QUEUE = 512
REFUSALS = 8
SPARE_THREADS = 8
LOOKS = 8
SESSIONS = 64


def build(room: Room) -> gr.Blocks:
    """The page over an engine room."""

    def run(event: gr.EventData, request: gr.Request) -> Iterator[str]:
        sent = event._data if isinstance(event._data, dict) else {}
        asked = sent.get("request")
        host = request.client.host if request.client else None
        visitor = visitor_of(host, sent.get("browser"), request.session_hash)
        told = room.serve(asked if isinstance(asked, dict) else {}, visitor)
        yield from room.listeners.heard(told, visitor.tab)

    # Threads of their own: no number of look-ups takes those that carry runs.
    looks = CapacityLimiter(LOOKS)

    # Gradio calls a server function by its name, with one argument, beside the queue.
    def look_up(name: str, answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        async def looked_up(asked: Any) -> Any:
            return await to_thread.run_sync(answer, asked, limiter=looks)

        looked_up.__name__ = name
        return looked_up

    async def state(_: Any) -> dict[str, Any]:
        return room.state()

    async def stop(nonce: Any) -> None:
        if isinstance(nonce, str):
            room.stop(nonce)

    page = gr.Blocks(title="SpecViz", analytics_enabled=False, fill_width=True)
    # With it Gradio's script lays the hub's header over the page, and asks the hub and a font service for its parts.
    page.space_id = None
    with page:
        board = gr.HTML(
            "",
            html_template="<div class='sv-app'></div>",
            js_on_load=ON_LOAD,
            apply_default_css=False,
            elem_id="specviz",
            server_functions=[*(look_up(name, answer) for name, answer in LOOK_UPS.items()), state, stop],
        )
        taken = board.run(
            run,
            None,
            board,
            show_progress="hidden",
            concurrency_limit=carried(room),
            concurrency_id="decode",
            trigger_mode="multiple",
            api_visibility="private",
        )
        # The page says it in its own words.
        taken.failure(None, js=ON_REFUSAL)
    # The visitors' line is the room's own, which shows each their place and tells who finds none. Gradio's queue only
    # carries them there: nobody stays in it, and it is full only while more are asked for than can be told.
    page.queue(max_size=QUEUE, api_open=False)
    return page


def carried(room: Room) -> int:
    """Runs that are on their way at once: all that stand in both lines, and some that are told they find no place."""
    return 2 * room.limits.line + REFUSALS


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


# What the page asks beside runs.
LOOK_UPS: Mapping[str, Callable[[Any], Any]] = {
    "view": shown,
    "drift": drifted,
    "place": place_of,
    "law": law_of,
    "experiment": experiment_of,
    "serve": serve_of,
    "served": served_of,
}


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
        + script_tag(boot(room.limits, room.target))
    )


async def _plotly(_: Request) -> FileResponse:
    return FileResponse(PLOTLY, media_type="text/javascript")


def files(below: str, folder: Path) -> Route:
    """The files of a folder. A `Mount` would not find them where a proxy serves the page in a folder of a site."""
    static = StaticFiles(directory=folder)

    async def file(request: Request) -> Response:
        return await static.get_response(os.path.normpath(request.path_params["path"]), request.scope)

    return Route(f"{below}/{{path:path}}", file)


def launch_options(room: Room) -> dict[str, Any]:
    """What `launch` is told: the set port, the door, own static files, no run history, no monitoring, no telemetry."""
    return {
        # A port that was asked for is that one or none: behind a proxy nobody would look at the next.
        "server_port": set_port(),
        # Gradio takes one word for yes; where there is none it looks whether it is in a notebook.
        "share": is_on(os.environ, SHARE) or None,
        "head": head(room),
        "favicon_path": ASSETS / "icon.svg",
        "footer_links": [],
        "run_history": False,
        "enable_monitoring": False,
        "max_file_size": "1mb",
        "ssr_mode": False,
        # Whatever GRADIO_NUM_WORKERS says: a second server for files would answer beside the door.
        "num_workers": 0,
        "max_threads": carried(room) + SPARE_THREADS,
        # Of each session Gradio keeps the last answer, which holds what a visitor wrote.
        "state_session_capacity": SESSIONS,
        "quiet": True,
        "app_kwargs": {
            "middleware": [Middleware(Door), Middleware(Turnstile), Middleware(Listening, room.listeners)],
            "routes": [
                Route("/sv/vendor/plotly.min.js", _plotly),
                *lesson_routes,
                *family_routes,
                *class_routes(school_of(os.environ)),
                files("/sv/lessons", LESSONS),
                files("/sv", ASSETS),
            ],
        },
    }
