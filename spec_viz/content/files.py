"""Where the content lies."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LESSONS = ROOT / "lessons"
PRESETS = LESSONS / "presets"
ASSETS = ROOT / "assets"
