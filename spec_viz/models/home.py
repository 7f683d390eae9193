"""Caches on a machine whose home cannot be written, as in some containers: one temporary folder for all of them."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from platformdirs import user_cache_path


def settle() -> Path | None:
    """Where the usual place for caches cannot be written, the temporary folder that it is from now on; else None.

    Our weights, the hub's client, pip and matplotlib all follow XDG_CACHE_HOME. To be called before the hub's client is
    imported, which reads it once. OSError where nothing can be written at all, or where the folder is somebody else's.
    """
    if sys.platform == "win32" or _is_writable(user_cache_path()):
        return None
    own = os.getuid()
    place = Path(tempfile.gettempdir()) / f"specviz-{own}"
    place.mkdir(mode=0o700, exist_ok=True)
    # The name can be guessed, and weights are read from there.
    if place.is_symlink() or place.stat().st_uid != own:
        raise PermissionError(1, "belongs to somebody else", str(place))
    os.environ["XDG_CACHE_HOME"] = str(place)
    return place


def _is_writable(place: Path) -> bool:
    """Whether the folder is, or can be made."""
    here = next(each for each in (place, *place.parents) if os.access(each, os.F_OK))
    try:
        # Tried, since root is told yes where nobody can.
        with tempfile.TemporaryFile(dir=here):
            return True
    except OSError:
        return False
