"""The app as a process of its own, on the tiny model; a prompt with BREAK in it fails with an error that quotes it."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from spec_viz.lab import run
from spec_viz.ui.page import build, launch_options
from tests.integration.ports import LOCAL, free_port
from tests.integration.rooms import ready_room


def main() -> None:
    """Serve until the standard input is closed; the first line says where."""
    encode = run.encode_prompt

    def encode_prompt(loaded: Any, request: run.Request) -> list[int]:
        if "BREAK" in request.prompt:
            raise ValueError(f"cannot encode {request.prompt}")
        return encode(loaded, request)

    run.encode_prompt = encode_prompt
    with pytest.MonkeyPatch.context() as patch:
        room = ready_room(patch)
    page = build(room)
    options = launch_options(room) | {"server_name": LOCAL, "server_port": free_port()}
    page.launch(**options, prevent_thread_lock=True)
    print(page.local_url, flush=True)  # noqa: T201 - whoever started it waits for this line
    sys.stdin.read()
    page.close(verbose=False)


if __name__ == "__main__":
    main()
    # Whatever still waits for a server of the test has no say.
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(5)
