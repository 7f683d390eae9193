"""Where servers of a test listen: on this machine alone."""

from __future__ import annotations

import socket

LOCAL = "127.0.0.1"


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as free:
        free.bind((LOCAL, 0))
        return int(free.getsockname()[1])
