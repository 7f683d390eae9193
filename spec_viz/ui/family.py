"""Addresses of the family table: `sv/family.json` for the Lab's room, `sv/family.csv` to keep."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from spec_viz.content.family import table, to_csv
from spec_viz.content.lessons import sources

# A head may be trained and measured while the page is open.
FRESH = {"Cache-Control": "no-cache"}


def _json(_: Request) -> Response:
    cited: dict[str, Any] = {name: asdict(source) for name, source in sources().items()}
    return JSONResponse(table(cited), headers=FRESH)


def _csv(_: Request) -> Response:
    return Response(to_csv(), media_type="text/csv; charset=utf-8", headers=FRESH)


family_routes = (Route("/sv/family.json", _json), Route("/sv/family.csv", _csv))
