"""Thirty live runs at once, on this machine alone: each page sees its place fall, and its run end or be told why not.

    python -m tests.load.runs                        # thirty visitors, 64 tokens each, the real model if it is here
    python -m tests.load.runs --visitors 5 --tokens 8 --model tiny
    python -m tests.load.runs --together             # all thirty in the first tenth of a second

Prints the wait in line and the time to the end, p50 and p95. Everybody has a browser of their own behind one address,
as in a classroom. Exit code 1 where a place rose, a run got no answer, or the page did not answer others meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.load.apps import running, usual_model
from tests.load.report import conditions, headline, keep, spread, table, verdict
from tests.load.visitors import PROMPTS, Seen, Visitor, asked_for, doors, watched

MOST_VISITORS, MOST_TOKENS = 40, 256
DRAFTERS = ("prompt_lookup", "none", "ngram", "suffix")
OTHERS = 0.5  # seconds between two questions of somebody who only looks
BUDGET = 300.0  # ms for p95 of such a question
# A run, or our own word that there is no place for it.
ANSWERS = ("length", "eos", "error.busy", "error.line_address", "error.line_browser")


async def visit(address: str, visitors: int, tokens: int, within: float) -> tuple[list[Seen], list[float]]:
    """What every visitor saw, and how long a page that only looks waited for each answer (ms)."""
    limits = httpx.Limits(max_connections=3 * visitors + 10, max_keepalive_connections=3 * visitors + 10)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=None, trust_env=False) as client:
        known = await doors(client)
        chance = random.Random(5)

        async def press(number: int) -> Seen:
            await asyncio.sleep(chance.uniform(0, within))
            prompt = f"{PROMPTS[number % len(PROMPTS)]} {number}."
            return await watched(Visitor(client, known), asked_for(DRAFTERS[number % len(DRAFTERS)], tokens, prompt))

        times: list[float] = []
        looking = asyncio.create_task(_look(Visitor(client, known), times))
        seen = await asyncio.gather(*map(press, range(visitors)))
        looking.cancel()
        return list(seen), times


async def _look(visitor: Visitor, times: list[float]) -> None:
    """Somebody opens the page and asks how the model is, again and again."""
    while True:
        for ask in (visitor.client.get("/"), visitor.beside("state", None)):
            start = time.perf_counter()
            await ask
            times.append((time.perf_counter() - start) * 1000)
        await asyncio.sleep(OTHERS)


def faults_of(seen: list[Seen], looks: list[float]) -> list[str]:
    """What went wrong."""
    odd = Counter(each.how for each in seen if each.how not in ANSWERS)
    faults = [f"a run ended with {how!r} ({count})" for how, count in odd.items()]
    if rose := sum(not each.only_fell for each in seen):
        faults.append(f"the place of {rose} rose")
    found = spread(looks)
    if found.get("p95", 0.0) >= BUDGET:
        faults.append(f"others waited {found['p95']:.0f} ms (p95)")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--visitors", type=int, default=30, help=f"1 to {MOST_VISITORS}")
    parser.add_argument("--tokens", type=int, default=64, help=f"1 to {MOST_TOKENS}")
    parser.add_argument("--model", default=usual_model(), help="the default target, or `tiny`")
    parser.add_argument("--together", action="store_true", help="press Run within 0.1 s, not within 2 s")
    parser.add_argument("--json", type=Path, help="where to keep the result")
    asked = parser.parse_args()
    visitors = min(max(asked.visitors, 1), MOST_VISITORS)
    tokens = min(max(asked.tokens, 1), MOST_TOKENS)
    under = conditions()
    with running(asked.model) as app:
        start = time.perf_counter()
        seen, looks = asyncio.run(visit(app.address, visitors, tokens, 0.1 if asked.together else 2.0))
        wall, megabytes = time.perf_counter() - start, app.megabytes()
    waits = [each.served for each in seen if each.served is not None]
    rows = {
        "wait in line": spread(waits),
        "Run to the end": spread([each.ended for each in seen if each.ended is not None]),
        "served to the end": spread([each.ended - each.served for each in seen if each.ended and each.served]),
        "others, an answer": {name: value if name == "n" else value / 1000 for name, value in spread(looks).items()},
    }
    ends = Counter(each.how for each in seen)
    faults = faults_of(seen, looks)
    what = f"{visitors} runs of {tokens} tokens at once, {asked.model}"
    first = max((each.places[0] for each in seen if each.places), default=0)
    lines = [
        headline(what, under),
        table(rows, "s", 2),
        f"ended: {dict(ends)}; the last stood at place {first}; all done after {wall:.1f} s; {megabytes:.0f} MB",
        verdict(faults),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    body: dict[str, Any] = {"what": what, "conditions": under, "seconds": rows, "ended": ends, "wall": wall}
    keep(asked.json, body | {"megabytes": megabytes, "faults": faults})
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
