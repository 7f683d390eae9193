"""A class under load, on this machine alone: members' pages open a lesson, then poll, guess and follow for a while.

    python -m tests.load.classroom                       # thirty members, sixty seconds, a server of its own
    python -m tests.load.classroom --address http://127.0.0.1:7860 --seconds 20
    python -m tests.load.classroom --decoding 3          # the same while three visitors run the model without a pause

Prints, for each kind of question, how many there were and how long an answer took (p50, p95, the longest), and how
long a step or a reveal took from the teacher to the members. It only talks to a loopback address, and ends by itself.
Exit code 1 where p95 of polls or of what a lesson fetches is 300 ms or more, or something went wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import json
import os
import random
import re
import secrets
import sys
import time
from collections import Counter, defaultdict
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from spec_viz.ui.classroom import ClassLimits
from spec_viz.ui.classroom_route import MEMBER, TOKEN
from tests.load.apps import running, usual_model
from tests.load.report import conditions, headline, keep, spread, table, verdict
from tests.load.visitors import PROMPTS, Visitor, asked_for, doors, watched

SLUG = "5_1_principles"
MOST_SECONDS = 300
POLL = (0.8, 1.2)  # seconds between two questions of a page, as the page's script has it
STEP = 5.0  # seconds the teacher stays at a step; half way the answer is shown
BUDGET = 300.0  # ms, for p95


class Load:
    """One lesson with a class: its questions, their times, and what came back wrong."""

    def __init__(self, client: httpx.AsyncClient, lesson: dict[str, Any], seconds: float) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)
        self.lags: list[float] = []
        self.wrong: Counter[str] = Counter()
        self.ran: Counter[str] = Counter()
        self.bytes = 0
        self._client = client
        self._steps = lesson["steps"]
        self._until = time.monotonic() + seconds
        self._place = ""
        self._token = ""
        self._told: dict[tuple[str, str], float] = {}  # what the teacher has told, and when

    async def run(self, members: int, decoding: int) -> None:
        opened = await self._ask("open", "POST", "sv/class", json={"lesson": SLUG, "step": self._steps[0]["id"]})
        self._place, self._token = f"sv/class/{opened['code']}", opened["token"]
        try:
            attending = (self._attend(random.Random(place)) for place in range(members))
            await asyncio.gather(self._teach(), *attending, *(self._decode(place) for place in range(decoding)))
        finally:
            await self._ask("lead", "POST", f"{self._place}/end", headers={TOKEN: self._token})

    async def _ask(self, kind: str, method: str, place: str, **more: Any) -> Any:
        """One question, its time kept; None for an empty answer, an empty object for a failure."""
        start = time.perf_counter()
        try:
            answer = await self._client.request(method, place, **more)
        except httpx.HTTPError as problem:
            self.wrong[f"{kind}: {type(problem).__name__}"] += 1
            return {}
        self.times[kind].append((time.perf_counter() - start) * 1000)
        self.bytes += len(answer.content)
        # A guess at the moment of the reveal comes too late: that is no failure.
        if not answer.is_success and answer.status_code != 409:
            self.wrong[f"{kind}: {answer.status_code}"] += 1
            return {}
        if kind == "replay" or answer.status_code in (204, 409):
            return None
        return answer.json()

    # ------------------------------------------------------------ the teacher

    async def _teach(self) -> None:
        headers = {TOKEN: self._token}
        watching = asyncio.create_task(self._watch(headers))
        for step in self._steps[1:] * MOST_SECONDS:
            if time.monotonic() + STEP > self._until:
                break
            for what in ("step", "reveal"):
                self._told[what, step["id"]] = time.perf_counter()
                await self._ask("lead", "POST", f"{self._place}/lead", json={what: step["id"]}, headers=headers)
                await asyncio.sleep(STEP / 2)
        await watching

    async def _watch(self, headers: dict[str, str]) -> None:
        tag = ""
        while time.monotonic() < self._until:
            view = await self._ask("poll, teacher", "GET", f"{self._place}?since={tag}", headers=headers)
            tag = view.get("tag", "") if view else tag
            await asyncio.sleep(random.uniform(*POLL))

    # ------------------------------------------------------------ somebody who runs the model

    async def _decode(self, place: int) -> None:
        visitor = Visitor(self._client, await doors(self._client))
        while time.monotonic() < self._until:
            seen = await watched(visitor, asked_for("prompt_lookup", 32, PROMPTS[place % len(PROMPTS)], race=True))
            self.ran[seen.how] += 1
            if seen.how not in ("length", "eos"):
                self.wrong[f"run: {seen.how}"] += 1

    # ------------------------------------------------------------ a member

    async def _attend(self, chance: random.Random) -> None:
        """Come in within two seconds, open the lesson as a page does, then follow."""
        headers = {MEMBER: secrets.token_hex(16)}
        await asyncio.sleep(chance.uniform(0, 2))
        await self._replay()
        asks = {step["id"]: step["ask"] for step in self._steps if step["ask"]}
        tag, seen = "", set[tuple[str, str]]()
        while time.monotonic() < self._until:
            view = await self._ask("poll", "GET", f"{self._place}?since={tag}", headers=headers)
            if view:
                tag = view["tag"]
                now = {("step", view["step"]), *(("reveal", step) for step in view["revealed"])}
                # What a page finds when it comes in was told before.
                for what in (now - seen) & self._told.keys() if seen else ():
                    self.lags.append((time.perf_counter() - self._told[what]) * 1000)
                seen.update(now)
                ask = asks.get(view["step"])
                if ask and view["step"] not in view["revealed"]:
                    value = chance.randrange(len(ask["options"])) if ask["kind"] == "choice" else chance.randrange(9)
                    body = {"step": view["step"], "value": value}
                    await self._ask("guess", "POST", f"{self._place}/guess", json=body, headers=headers)
            await asyncio.sleep(chance.uniform(*POLL))

    async def _replay(self) -> None:
        """Everything that the lesson's page asks for when it is opened."""
        await self._ask("replay", "GET", f"sv/lesson/{SLUG}.en.json")
        figures = [step["figure"] for step in self._steps]
        paths = {path for figure in figures for path in [figure.get("trace"), *figure.get("traces", [])] if path}
        await asyncio.gather(*(self._ask("replay", "GET", f"sv/{path}") for path in sorted(paths)))


def rows_of(load: Load) -> dict[str, dict[str, float]]:
    """A spread for every kind of question, and for the way from the teacher to the members."""
    return {kind: spread(times) for kind, times in [*sorted(load.times.items()), ("told to seen", load.lags)]}


def faults_of(load: Load) -> list[str]:
    """What went wrong, and which budget was missed."""
    faults = [f"{what} ({count})" for what, count in load.wrong.items()]
    p95 = {kind: spread(load.times[kind]).get("p95", 0.0) for kind in ("poll", "replay")}
    return faults + [f"p95 of {kind} was {took:.0f} ms" for kind, took in p95.items() if took >= BUDGET]


class OwnServer:
    """The page in a process of its own, without a model: what a class needs of it. `spent` is its processor time."""

    def __enter__(self) -> OwnServer:
        context = get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there,), daemon=True)
        self._process.start()
        self.address: str = self._pipe.recv()
        self._pipe.send("begin")
        self._pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send("enough")
        self.spent: float = self._pipe.recv()
        self._process.join(20)


def _serve(pipe: Connection) -> None:
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    from spec_viz.ui.room import Room
    from tests.integration.launch import served

    with served(Room()) as address:
        pipe.send(address)
        pipe.recv()
        start = time.process_time()
        pipe.send(None)
        pipe.recv()
        pipe.send(time.process_time() - start)


def loopback(address: str) -> str:
    """The address, if it is one of this machine's own; no other is ever asked."""
    host = urlsplit(address).hostname or ""
    if host != "localhost" and not (re.fullmatch(r"[\d.:a-f]+", host) and ipaddress.ip_address(host).is_loopback):
        raise argparse.ArgumentTypeError(
            "only a loopback address, such as http://127.0.0.1:7860, may be put under load"
        )
    return address.rstrip("/")


async def lesson_with(address: str, members: int, seconds: float, decoding: int = 0) -> Load:
    # A browser keeps six connections to a server, and pages do not share them.
    most = 6 * (members + decoding)
    limits = httpx.Limits(max_connections=most, max_keepalive_connections=most)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=30, trust_env=False) as client:
        lesson = json.loads((await client.get(f"sv/lesson/{SLUG}.en.json")).text)
        load = Load(client, lesson, seconds)
        await load.run(members, decoding)
    return load


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--members", type=int, default=30, help=f"1 to {ClassLimits().members}")
    parser.add_argument("--seconds", type=float, default=60.0, help=f"at most {MOST_SECONDS}")
    parser.add_argument("--decoding", type=int, default=0, help="visitors who run the model meanwhile, at most 10")
    parser.add_argument("--model", default=usual_model(), help="for --decoding: the default target, or `tiny`")
    parser.add_argument("--address", type=loopback, help="a server that runs already; by default one is started")
    parser.add_argument("--json", type=Path, help="where to keep the result")
    asked = parser.parse_args()
    members = min(max(asked.members, 1), ClassLimits().members)
    seconds = min(max(asked.seconds, 2 * STEP), MOST_SECONDS)
    decoding = min(max(asked.decoding, 0), 10)
    under = conditions()
    what = f"{members} members, {seconds:.0f} s"
    said = []
    if asked.address:
        load = asyncio.run(lesson_with(asked.address, members, seconds, decoding))
    elif decoding:
        what += f", {decoding} visitors decoding, {asked.model}"
        with running(asked.model) as app:
            load = asyncio.run(lesson_with(app.address, members, seconds, decoding))
    else:
        with OwnServer() as server:
            load = asyncio.run(lesson_with(server.address, members, seconds))
        answers = sum(map(len, load.times.values()))
        each = 1000 * server.spent / answers
        said.append(f"processor time of the server: {server.spent:.1f} s, {each:.1f} ms an answer")
    rows, faults = rows_of(load), faults_of(load)
    if decoding:
        said.append(f"runs meanwhile, each with its baseline: {dict(load.ran)}")
    said.append(f"{load.bytes / 1e6:.1f} MB came back")
    sys.stdout.write("\n".join([headline(what, under), table(rows, "ms"), *said, verdict(faults)]) + "\n")
    keep(asked.json, {"what": what, "conditions": under, "milliseconds": rows, "ran": load.ran, "faults": faults})
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
