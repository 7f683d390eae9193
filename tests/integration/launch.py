"""The page served from this very process, so that a test can look at the room behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spec_viz.ui.page import build, launch_options
from spec_viz.ui.room import Room


@contextmanager
def served(room: Room) -> Iterator[str]:
    """The address of a page over this room."""
    page = build(room)
    page.launch(**launch_options(room), prevent_thread_lock=True, server_name="127.0.0.1")
    try:
        yield str(page.local_url).rstrip("/")
    finally:
        page.close(verbose=False)
