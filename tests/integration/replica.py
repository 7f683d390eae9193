"""One of several servers of the same classes, in a process of its own; `/plain` waits for nobody.

SPECVIZ_REDIS=redis://… python -m tests.integration.replica PORT
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from spec_viz.content.files import ROOT
from spec_viz.ui.classroom_route import REDIS, class_routes, school_of
from tests.integration.ports import LOCAL, free_port


@contextmanager
def replica(redis: str) -> Iterator[str]:
    """The address of a new one over this Redis."""
    port = free_port()
    told = [sys.executable, "-m", "tests.integration.replica", str(port)]
    process = subprocess.Popen(told, cwd=ROOT, env={**os.environ, REDIS: redis})
    address = f"http://{LOCAL}:{port}"
    try:
        end = time.monotonic() + 60
        while True:
            assert process.poll() is None, "a replica ended by itself"
            try:
                httpx.get(f"{address}/plain", trust_env=False)
            except httpx.TransportError:
                assert time.monotonic() < end, "a replica does not answer"
                time.sleep(0.05)
            else:
                break
        yield address
    finally:
        process.terminate()
        process.wait(20)


async def _plain(_: Request) -> Response:
    return PlainTextResponse("here")


if __name__ == "__main__":
    app = Starlette(routes=[Route("/plain", _plain), *class_routes(school_of(os.environ))])
    uvicorn.run(app, host=LOCAL, port=int(sys.argv[1]), log_level="warning")
