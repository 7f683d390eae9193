"""Memory that many threads use and give back, kept from spreading.

glibc gives threads that allocate at one moment an arena each, up to eight a core, and what one of them frees the others
do not get. Runs come on many threads, so the process grew on and on: by 6.9 % over 500 runs, by 2.3 % with two arenas
(`python -m tests.load.soak`).
"""

from __future__ import annotations

import ctypes
import sys

ARENAS = 2
_M_ARENA_MAX = -8  # malloc.h


def share_arenas(most: int = ARENAS) -> bool:
    """Let all threads share `most` of malloc's arenas; whether this C library took it. Called before they begin."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none, and no arenas
    return mallopt is not None and mallopt(_M_ARENA_MAX, most) == 1
