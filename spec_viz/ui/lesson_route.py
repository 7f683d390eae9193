"""Addresses of a lesson's JSON, and of its recorded experiments as the Lab draws them.

`sv/lesson/SLUG.LANGUAGE.json` and `sv/lesson/SLUG/RESULT.LANGUAGE.json`.
"""

from __future__ import annotations

import json
import logging
from functools import lru_cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from spec_viz.content.experiments import ExperimentRecipe
from spec_viz.content.lessons import LANGUAGES, lesson_folders, lesson_text, load_lesson
from spec_viz.ui.experiments import experiment

log = logging.getLogger(__name__)


def _lesson(request: Request) -> Response:
    try:
        text = lesson_text(request.path_params["slug"], request.path_params["language"])
    except (OSError, ValueError) as problem:
        return _broken("a lesson", problem)
    return _answer(text, "no such lesson")


def _view(request: Request) -> Response:
    slug, name, language = (request.path_params[part] for part in ("slug", "result", "language"))
    try:
        return _answer(view_text(slug, name, language), "no such experiment")
    except (OSError, ValueError) as problem:
        return _broken("an experiment", problem)


def _broken(what: str, problem: Exception) -> Response:
    """The page has a sentence of its own; what is wrong is for who keeps the lessons, and may name a path."""
    log.warning("%s cannot be shown: %s", what, problem)
    return JSONResponse({"error": f"{what} cannot be shown"}, status_code=500)


def view_text(slug: str, name: str, language: str) -> str | None:
    """What a lesson's experiment shows, {"light": …, "dark": …} as text; None for one that is not there."""
    folder = next((folder for folder in lesson_folders() if folder.name == slug), None)
    if folder is None or language not in LANGUAGES:
        return None
    # Only names of files that are there go on: anybody may ask for any other.
    path = next((path for path in folder.glob("traces/*.json") if path.stem == name), None)
    if path is None:
        return None
    return _view_text(path, language, max(each.stat().st_mtime_ns for each in (path, folder / "lesson.yaml")))


@lru_cache(maxsize=64)
def _view_text(path: Path, language: str, changed: int) -> str | None:  # noqa: ARG001 - `changed` is part of the key
    recipe = load_lesson(path.parents[1]).structure.results.get(path.stem)
    if not isinstance(recipe, ExperimentRecipe):
        return None
    asked = {"result": json.loads(path.read_text(encoding="utf-8")), "language": language}
    views = {theme: experiment({**asked, "theme": theme}) for theme in ("light", "dark")}
    return json.dumps(views, ensure_ascii=False, separators=(",", ":"))


def _answer(text: str | None, otherwise: str) -> Response:
    if text is None:
        return JSONResponse({"error": otherwise}, status_code=404)
    # Lessons change while a teacher writes: the browser asks again each time, and the text is kept ready here.
    return Response(text, media_type="application/json", headers={"Cache-Control": "no-cache"})


# Starlette runs a plain function in a thread, so the first rendering of a lesson holds nobody up.
lesson_routes = (
    Route("/sv/lesson/{slug}.{language}.json", _lesson),
    Route("/sv/lesson/{slug}/{result}.{language}.json", _view),
)
