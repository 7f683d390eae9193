"""What a load test says: a table, under which conditions it was measured, and both as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("gradio", "torch", "transformers", "starlette", "uvicorn")


def conditions() -> dict[str, Any]:
    """Of this machine, now: to be asked before the load begins."""
    return {
        "processor": _processor(),
        "processors": os.cpu_count(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _processor() -> str:
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in told.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def spread(times: Sequence[float]) -> dict[str, float]:
    """How many, the median, the 95th percentile, the longest; no times give none of the three."""
    if not times:
        return {"n": 0}
    cuts = statistics.quantiles(times, n=100, method="inclusive") if len(times) > 1 else [times[0]] * 99
    return {"n": len(times), "p50": cuts[49], "p95": cuts[94], "most": max(times)}


def table(rows: Mapping[str, Mapping[str, float]], unit: str, digits: int = 1) -> str:
    """A line for each spread."""
    width = max(map(len, rows), default=0)
    head = f"{'':<{width}}{'n':>7}{'p50':>10}{'p95':>10}{'most':>10}  {unit}"
    lines = [
        f"{name:<{width}}{row['n']:>7}"
        + "".join(f"{row[each]:>10.{digits}f}" if each in row else f"{'–':>10}" for each in ("p50", "p95", "most"))
        for name, row in rows.items()
    ]
    return "\n".join([head, *lines])


def headline(what: str, under: Mapping[str, Any]) -> str:
    """The first line: what was done, and where."""
    load = under["load_average"][0]
    return (
        f"{what}; {under['processor']}, {under['processors']} processors, load average before {load}, {under['date']}"
    )


def verdict(faults: Sequence[str]) -> str:
    """The last line."""
    return "passed" if not faults else "FAILED: " + "; ".join(faults)


def keep(path: Path | None, body: Mapping[str, Any]) -> None:
    """Write the JSON, where one is wanted."""
    if path is not None:
        path.write_text(json.dumps(body, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
