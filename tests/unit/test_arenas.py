"""How many of malloc's arenas threads spread over, as glibc itself tells it."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from spec_viz.ui.arenas import ARENAS

# Threads that allocate at one moment; then glibc's own account, a heap per arena.
SPREAD = """
import ctypes, sys, threading
from spec_viz.ui.arenas import share_arenas
if sys.argv[1] == "shared":
    assert share_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
together, done = threading.Barrier(12), threading.Event()
def allocate():
    together.wait()
    for _ in range(200):
        assert libc.malloc(5000)
threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.fopen.restype = ctypes.c_void_p
told = libc.fopen(b"/dev/stdout", b"w")
libc.malloc_info(0, ctypes.c_void_p(told))
libc.fflush(ctypes.c_void_p(told))
"""


def arenas(how: str) -> int:
    told = subprocess.run([sys.executable, "-c", SPREAD, how], capture_output=True, text=True, timeout=60, check=True)
    return told.stdout.count("<heap nr=")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this C library has no arenas")
def test_threads_share_the_arenas() -> None:
    assert arenas("as ever") > ARENAS
    assert 1 <= arenas("shared") <= ARENAS
