"""Thirty browsers open a lesson, on this machine alone: each fetches all that a real page fetches, with an empty cache.

    python -m tests.load.replay                      # thirty within thirty seconds, a server of its own
    python -m tests.load.replay --browsers 5 --within 2 --lesson 5_4_speed

First Chromium opens the lesson once, and what it asks for is written down; then that is asked for again by every
browser, six at a time, as browsers do. Prints how long an answer took, by kind. Exit code 1 where p95 of all answers is
300 ms or more, or one failed. Streams that stay open (the heartbeat) are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.conftest import CHROMIUM
from tests.load.classroom import SLUG, OwnServer, loopback
from tests.load.report import conditions, headline, keep, spread, table, verdict

MOST_BROWSERS, MOST_SECONDS = 60, 120.0
AT_ONCE = 6
BUDGET = 300.0  # ms, for p95
STREAMS = ("/gradio_api/heartbeat/", "/gradio_api/queue/data", "/gradio_api/startup-events")
QUIET = 1500  # ms without a question: the page has all it wants


@dataclass(frozen=True, slots=True)
class Asked:
    """One question of a page: below the server's address, with the body that was sent."""

    method: str
    path: str
    body: str | None

    @property
    def kind(self) -> str:
        """What it is about, for the table."""
        if self.method != "GET":
            return "look-up"
        path = self.path.partition("?")[0]
        if path.startswith(("/sv/lesson", "/sv/lessons/")):
            return "lesson"
        if path.startswith("/sv/"):
            return "script and style"
        return "host's page" if path.startswith(("/assets/", "/static/", "/theme.css")) else "page"


def recorded(address: str, lesson: str, language: str = "vi") -> list[Asked]:
    """What Chromium asks for when it opens the lesson with an empty cache."""
    from playwright.sync_api import Request, sync_playwright

    if CHROMIUM is None:
        raise SystemExit("There is no Chromium on this machine: apt-get install chromium")
    found: list[Asked] = []
    last = [time.monotonic()]

    def note(request: Request) -> None:
        url = urlsplit(request.url)
        if url.netloc == urlsplit(address).netloc and not url.path.startswith(STREAMS):
            path = f"{url.path}?{url.query}" if url.query else url.path
            found.append(Asked(request.method, path, request.post_data))
            last[0] = time.monotonic()

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.on("request", note)
        page.goto(f"{address}/?place=lessons&lesson={lesson}&lang={language}")
        page.locator(".sv-l-title").wait_for()
        while time.monotonic() - last[0] < QUIET / 1000:
            page.wait_for_timeout(100)
        browser.close()
    return found


class Replay:
    """The same questions by many browsers: how long each answer took, by kind, and what went wrong."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)
        self.wrong: Counter[str] = Counter()
        self.bytes = 0
        self._first, *self._rest = asked

    async def open(self, address: str, after: float) -> float:
        """One browser; how long it took to have everything (s)."""
        await asyncio.sleep(after)
        # A browser does not share its connections.
        limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
        headers = {"Accept-Encoding": "gzip, deflate, br"}
        session = secrets.token_hex(6)
        async with httpx.AsyncClient(
            base_url=address, limits=limits, headers=headers, timeout=60, trust_env=False
        ) as client:
            start = time.perf_counter()
            await self._ask(client, self._first, session)
            turn = asyncio.Semaphore(AT_ONCE)

            async def later(asked: Asked) -> None:
                async with turn:
                    await self._ask(client, asked, session)

            await asyncio.gather(*map(later, self._rest))
            return time.perf_counter() - start

    async def _ask(self, client: httpx.AsyncClient, asked: Asked, session: str) -> None:
        more: dict[str, Any] = {}
        if asked.body is not None:
            more = {"content": _of(asked.body, session), "headers": {"Content-Type": "application/json"}}
        start = time.perf_counter()
        try:
            async with client.stream(asked.method, asked.path, **more) as answer:
                # As it came: to unpack it is the browser's work, not the server's.
                async for part in answer.aiter_raw():
                    self.bytes += len(part)
        except httpx.HTTPError as problem:
            self.wrong[f"{asked.path}: {type(problem).__name__}"] += 1
            return
        self.times[asked.kind].append((time.perf_counter() - start) * 1000)
        if not answer.is_success:
            self.wrong[f"{asked.path}: {answer.status_code}"] += 1


def _of(body: str, session: str) -> str:
    """The body, said by another page."""
    told = json.loads(body)
    return json.dumps({**told, "session_hash": session} if isinstance(told, dict) else told)


async def replay(address: str, asked: Sequence[Asked], browsers: int, within: float) -> tuple[Replay, list[float]]:
    done, chance = Replay(asked), random.Random(5)
    took = await asyncio.gather(*(done.open(address, chance.uniform(0, within)) for _ in range(browsers)))
    return done, list(took)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--browsers", type=int, default=30, help=f"1 to {MOST_BROWSERS}")
    parser.add_argument("--within", type=float, default=30.0, help="seconds in which they come, at most 120")
    parser.add_argument("--lesson", default=SLUG)
    parser.add_argument("--address", type=loopback, help="a server that runs already; by default one is started")
    parser.add_argument("--json", type=Path, help="where to keep the result")
    asked = parser.parse_args()
    browsers = min(max(asked.browsers, 1), MOST_BROWSERS)
    within = min(max(asked.within, 0.0), MOST_SECONDS)
    under = conditions()
    if asked.address:
        list_ = recorded(asked.address, asked.lesson)
        done, took = asyncio.run(replay(asked.address, list_, browsers, within))
    else:
        with OwnServer() as server:
            list_ = recorded(server.address, asked.lesson)
            done, took = asyncio.run(replay(server.address, list_, browsers, within))
    everything = [each for times in done.times.values() for each in times]
    rows = {"all": spread(everything), **{kind: spread(done.times[kind]) for kind in sorted(done.times)}}
    rows["a whole page"] = {name: each if name == "n" else 1000 * each for name, each in spread(took).items()}
    faults = [f"{what} ({count})" for what, count in done.wrong.items()]
    if rows["all"].get("p95", 0.0) >= BUDGET:
        faults.append(f"p95 was {rows['all']['p95']:.0f} ms")
    what = f"{browsers} browsers open {asked.lesson} within {within:.0f} s"
    lines = [
        headline(what, under),
        table(rows, "ms"),
        f"{len(list_)} questions a page, {done.bytes / browsers / 1e6:.2f} MB; {done.bytes / 1e6:.1f} MB in all",
        verdict(faults),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    told = {"what": what, "conditions": under, "milliseconds": rows, "questions": len(list_), "bytes": done.bytes}
    keep(asked.json, told | {"faults": faults})
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
