"""The page served from this very process, so that a test can look at the room behind it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from spec_viz.ui.page import build, launch_options
from spec_viz.ui.room import Room

LOCAL = "127.0.0.1"


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as free:
        free.bind((LOCAL, 0))
        return int(free.getsockname()[1])


@contextmanager
def served(room: Room) -> Iterator[str]:
    """The address of a page over this room."""
    page = build(room)
    # Gradio's own search for a port leaves a socket open at every port that is taken.
    page.launch(**launch_options(room), prevent_thread_lock=True, server_name=LOCAL, server_port=free_port())
    try:
        yield str(page.local_url).rstrip("/")
    finally:
        page.close(verbose=False)
