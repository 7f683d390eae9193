"""The page served from this very process, so that a test can look at the room behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spec_viz.ui.page import build, launch_options
from spec_viz.ui.room import Room
from tests.integration.ports import LOCAL, free_port


@contextmanager
def served(room: Room) -> Iterator[str]:
    """The address of a page over this room."""
    page = build(room)
    # Gradio's own search for a port leaves a socket open at every port that is taken.
    options = launch_options(room) | {"server_name": LOCAL, "server_port": free_port()}
    page.launch(**options, prevent_thread_lock=True)
    try:
        yield str(page.local_url).rstrip("/")
    finally:
        page.close(verbose=False)
