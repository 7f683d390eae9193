"""The address of a lesson's JSON: `sv/lesson/SLUG.LANGUAGE.json`."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from spec_viz.content.lessons import lesson_text

log = logging.getLogger(__name__)


def _lesson(request: Request) -> Response:
    try:
        text = lesson_text(request.path_params["slug"], request.path_params["language"])
    except ValueError as problem:
        log.warning("a lesson cannot be shown: %s", problem)
        return JSONResponse({"error": str(problem)}, status_code=500)
    if text is None:
        return JSONResponse({"error": "no such lesson"}, status_code=404)
    # Lessons change while a teacher writes: the browser asks again each time, and the text is kept ready here.
    return Response(text, media_type="application/json", headers={"Cache-Control": "no-cache"})


# Starlette runs a plain function in a thread, so the first rendering of a lesson holds nobody up.
lesson_route = Route("/sv/lesson/{slug}.{language}.json", _lesson)
