"""Five hundred short runs against one process, on this machine alone: what it holds in memory must not grow.

    python -m tests.load.soak                        # 50 runs to warm up, then 500; the real model if it is here
    python -m tests.load.soak --runs 60 --warm-up 20 --model tiny

Runs with every drafter that is ready, each from a page of its own; some are stopped, some lose their page, some cannot
be run, some are compared with plain decoding. The memory is that of the app's process (VmRSS), read while nothing runs.
Exit code 1 where it grew by 5 % or more, or a run did not end as it should.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import secrets
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from tests.load.apps import App, running, usual_model
from tests.load.report import conditions, headline, keep, verdict
from tests.load.visitors import PROMPTS, Doors, Visitor, asked_for, doors, watched

MOST_RUNS = 2000
# Its draft is the visitor's own words.
WITHOUT = ("scripted",)
# The tiny model has no trained heads, and too few layers for others.
FOR_TINY = ("none", "prompt_lookup", "ngram", "anpd", "suffix", "token_recycling", "lookahead")
BUDGET = 5.0  # percent
WINDOW = 25  # runs whose median is a level
EVERY = 10  # of so many runs one is each kind that does not simply end
LONG = 256


class Soak:
    """One run after another; how each ended, and what the process held after it."""

    def __init__(self, client: httpx.AsyncClient, known: Doors, app: App, drafters: Sequence[str], tokens: int) -> None:
        self.ends: Counter[str] = Counter()
        self.faults: list[str] = []
        self.levels: list[float] = []
        self._client, self._doors, self._app = client, known, app
        self._drafters, self._tokens = drafters, tokens
        self._kinds = {1: self._stopped, 3: self._left, 5: self._faulty, 7: self._race, 9: self._seen}

    async def run(self, number: int, warming: bool) -> None:
        drafter = self._drafters[number % len(self._drafters)]
        prompt = f"{PROMPTS[number % len(PROMPTS)]} {number}."
        # Everybody comes from somewhere else: one address may not ask as fast as this does.
        visitor = Visitor(self._client, self._doors, f"10.0.{number // 250}.{number % 250 + 1}")
        # Every drafter comes to its largest before the first level is taken.
        do = self._large if warming else self._kinds.get(number % EVERY, self._whole)
        how = await do(visitor, drafter, prompt)
        self.ends[how] += 1
        await self._free(visitor)
        self.levels.append(self._app.megabytes())

    def _expect(self, what: str, how: str, wanted: tuple[str, ...]) -> str:
        if how not in wanted:
            self.faults.append(f"{what} ended with {how!r}")
        return how

    async def _whole(self, visitor: Visitor, drafter: str, prompt: str, times: int = 1, **more: Any) -> str:
        seen = await watched(visitor, asked_for(drafter, times * self._tokens, prompt, **more))
        return self._expect(drafter, seen.how, ("length", "eos"))

    async def _race(self, visitor: Visitor, drafter: str, prompt: str) -> str:
        return await self._whole(visitor, drafter, prompt, race=True)

    async def _large(self, visitor: Visitor, drafter: str, prompt: str) -> str:
        return await self._whole(visitor, drafter, prompt, times=2, race=True)

    async def _stopped(self, visitor: Visitor, drafter: str, prompt: str) -> str:
        """Stop is pressed when the first round is seen."""
        request = asked_for(drafter, LONG, prompt)
        text = ""
        async with aclosing(visitor.ask(request)) as answer:
            async for text in answer:
                if '"round"' in text:
                    await visitor.beside("stop", request["nonce"])
        # A text may end before the button is pressed.
        finish = re.findall(r'^\{"finish":"(\w+)"\}', text, re.MULTILINE)
        return self._expect(f"a stopped {drafter}", finish[-1] if finish else "nothing", ("stopped", "eos", "length"))

    async def _left(self, visitor: Visitor, drafter: str, prompt: str) -> str:
        """The page is closed when the first round is seen."""
        async with aclosing(visitor.ask(asked_for(drafter, LONG, prompt))) as answer:
            async for text in answer:
                if '"round"' in text:
                    break
        return "left"

    async def _faulty(self, visitor: Visitor, drafter: str, prompt: str) -> str:
        """What no page sends."""
        for wrong, key in (
            (asked_for("oracle", 16, prompt), "error.unknown_drafter"),
            (asked_for(drafter, 10**6, prompt), "error.bad_number"),
            (asked_for(drafter, 16, "x" * 100_000), "error.prompt_too_many_letters"),
        ):
            seen = await watched(visitor, wrong)
            self._expect("a faulty request", seen.how, (key,))
        return "faulty"

    async def _seen(self, visitor: Visitor, drafter: str, prompt: str) -> str:
        """A run whose numbers and charts are then asked for, in a page that is opened for it."""
        (await self._client.get("/")).raise_for_status()
        texts = [text async for text in visitor.ask(asked_for(drafter, self._tokens, prompt))]
        view = await visitor.beside("view", [texts[-1], "vi", "dark"])
        return self._expect("a view", "seen" if "numbers" in view else json.dumps(view)[:100], ("seen",))

    async def _free(self, visitor: Visitor) -> None:
        """Until the line is empty again: who comes last is served at once."""
        start = time.monotonic()
        while time.monotonic() - start < 30:
            probe = await watched(replace(visitor, session=secrets.token_hex(6)), asked_for("oracle", 1))
            if probe.places == [0]:
                return
        self.faults.append("a run that was left was still there after 30 s")


async def soak(app: App, warm_up: int, runs: int, tokens: int) -> Soak:
    async with httpx.AsyncClient(base_url=app.address, timeout=120, trust_env=False) as client:
        head = (await client.get("config")).json()["head"]
        found = re.search(r'<script type="application/json" id="sv-boot">(.*?)</script>', head, re.DOTALL)
        assert found, "the page has no boot data"
        ready = [each["name"] for each in json.loads(found[1])["drafters"] if each["ready"]]
        drafters = FOR_TINY if app.model == "tiny" else [name for name in ready if name not in WITHOUT]
        done = Soak(client, await doors(client), app, drafters, tokens)
        for number in range(warm_up + runs):
            await done.run(number, number < warm_up)
        return done


def growth(levels: list[float]) -> dict[str, float]:
    """Levels before and after (MB, medians of some runs), the growth in percent, and the straight line through all."""
    window = max(1, min(WINDOW, len(levels) // 2))
    before, after = statistics.median(levels[:window]), statistics.median(levels[-window:])
    slope = statistics.linear_regression(range(len(levels)), levels).slope
    return {
        "before": before,
        "after": after,
        "percent": 100 * (after - before) / before,
        "megabytes_per_100_runs": 100 * slope,
        "most": max(levels),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=500, help=f"2 to {MOST_RUNS}")
    parser.add_argument("--warm-up", type=int, default=50, help="runs before the first level")
    parser.add_argument("--tokens", type=int, default=16, help="1 to 64")
    parser.add_argument("--model", default=usual_model(), help="the default target, or `tiny`")
    parser.add_argument("--json", type=Path, help="where to keep the result")
    asked = parser.parse_args()
    runs, warm_up = min(max(asked.runs, 2), MOST_RUNS), min(max(asked.warm_up, 0), MOST_RUNS)
    under = conditions()
    start = time.perf_counter()
    # Its visitors come by addresses that a proxy tells.
    with running(asked.model, {"SPECVIZ_PUBLIC": "1"}) as app:
        done = asyncio.run(soak(app, warm_up, runs, min(max(asked.tokens, 1), 64)))
    found = growth(done.levels[warm_up:])
    faults = [f"{what} ({count})" for what, count in Counter(done.faults).items()]
    if found["percent"] >= BUDGET:
        faults.append(f"memory grew by {found['percent']:.1f} %")
    what = f"{runs} runs after {warm_up} to warm up, {asked.model}"
    lines = [
        headline(what, under),
        f"{'memory':<14}{'before':>10}{'after':>10}{'growth':>10}{'line':>20}{'most':>10}",
        f"{'':<14}{found['before']:>7.0f} MB{found['after']:>7.0f} MB{found['percent']:>8.2f} %"
        f"{found['megabytes_per_100_runs']:>8.2f} MB/100 runs{found['most']:>7.0f} MB",
        f"ended: {dict(done.ends)}; {time.perf_counter() - start:.0f} s",
        verdict(faults),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    keep(
        asked.json,
        {
            "what": what,
            "conditions": under,
            "memory": found,
            "ended": done.ends,
            "levels": done.levels,
            "faults": faults,
        },
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
