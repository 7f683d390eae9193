"""What the trained heads are worth live: greedy chains on prompts that none of them was trained on."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from spec_viz.lab.bench import Question, Timing, measure, pooled_alpha, position_rates, ratios, rows
from spec_viz.models.heads import HEADS, heads
from spec_viz.models.load import Loaded
from spec_viz.models.readiness import read_provenance
from spec_viz.training.heads import write_provenance
from spec_viz.training.prompts import TASKS, held_out_prompts


def measure_live(
    loaded: Loaded,
    limit: int,
    *,
    gamma: int,
    max_new_tokens: int,
    repeats: int,
    progress: Callable[[Sequence[Question]], Iterable[Question]],
) -> dict[str, Any]:
    """Run every head on `limit` held-out prompts of each task and write its live rates into its papers.

    Returns the whole `specviz.result/1` record; `rows` of the benchmark makes its table.
    """
    questions = [Question(task, text) for task, text in held_out_prompts(TASKS, limit)]
    names = heads()
    result = measure(
        loaded,
        questions,
        names,
        peers={},
        gamma=gamma,
        max_new_tokens=max_new_tokens,
        repeats=repeats,
        progress=progress,
    )
    timings = [Timing(**timing) for timing in result["timings"]]
    table = {(row["category"], row["method"]): row for row in rows(result)}
    for name in names:
        mine = [timing for timing in timings if timing.method == f"ours · {name}"]
        alpha = pooled_alpha(mine)
        live = {
            "alpha": None if alpha is None else round(alpha, 4),
            "by_position": [round(rate, 4) for rate in position_rates(mine)],
            **{key: table["all", f"ours · {name}"][key] for key in ("tau", "c")},
            "speedup": _speedup(timings, f"ours · {name}"),
            "by_task": {
                task: {key: table[task, f"ours · {name}"][key] for key in ("alpha", "by position", "tau", "c")}
                for task in TASKS
            },
            "prompts": len(questions),
            "conditions": result["conditions"],
        }
        write_provenance(HEADS / name, {**read_provenance(name), "live": live})
    return result


def _speedup(timings: Sequence[Timing], method: str) -> dict[str, float]:
    """Speed ÷ plain decoding over prompts: the median, the smallest and the largest."""
    found = ratios(timings, method, "ours · none")
    told = {"median": statistics.median(found), "low": min(found), "high": max(found)}
    return {name: round(value, 3) for name, value in told.items()}
