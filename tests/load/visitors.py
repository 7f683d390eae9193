"""A visitor's page as the server sees it: it joins the queue, listens to what comes, and asks beside it."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.load.apps import call

PROMPTS = (
    "Name the days of the week, twice.",
    "Count upwards: one, two, three, four, one, two, three, four,",
    "Write a short poem about rain, rain and rain.",
)


class Refused(Exception):  # noqa: N818 - reads as what is the case
    """The queue took no run."""


@dataclass(frozen=True, slots=True)
class Doors:
    """The numbers by which Gradio knows the page's event and its component."""

    board: int
    run: int


async def doors(client: httpx.AsyncClient) -> Doors:
    """Ask the page for them."""
    config = (await client.get("config")).json()
    board = next(int(each["id"]) for each in config["components"] if each["props"].get("elem_id") == "specviz")
    run = next(int(each["id"]) for each in config["dependencies"] if [board, "run"] in each["targets"])
    return Doors(board, run)


@dataclass(slots=True)
class Visitor:
    """One page. `session` changes when it is loaded again, `browser` does not; `address` is told as by a proxy here."""

    client: httpx.AsyncClient
    doors: Doors
    address: str = "127.0.0.1"
    browser: str = field(default_factory=lambda: secrets.token_hex(16))
    session: str = field(default_factory=lambda: secrets.token_hex(6))

    async def join(self, request: Mapping[str, Any]) -> httpx.Response:
        """Ask for a run; what comes of it is told to who listens."""
        body = {
            "data": [],
            "event_data": {"request": dict(request), "browser": self.browser},
            "fn_index": self.doors.run,
            "trigger_id": self.doors.board,
            "session_hash": self.session,
        }
        headers = {"X-Forwarded-For": self.address}
        return await self.client.post("gradio_api/queue/join", json=body, headers=headers)

    async def ask(self, request: Mapping[str, Any]) -> AsyncGenerator[str, None]:
        """The answer to a run, the whole text so far each time. Leaving the loop closes the stream, as a tab does."""
        joined = await self.join(request)
        if joined.status_code != 200:
            raise Refused(f"{joined.status_code} {joined.text[:100]}")
        text = ""
        async with self.client.stream("GET", "gradio_api/queue/data", params={"session_hash": self.session}) as stream:
            async for line in stream.aiter_lines():
                if not line.startswith("data:"):
                    continue
                told = json.loads(line[5:])
                if told["msg"] == "process_generating":
                    text = _grown(text, told["output"]["data"][0])
                    yield text
                elif told["msg"] == "process_completed":
                    if not told["success"]:
                        raise Refused(f"the run failed: {told['output']}")
                    return
                elif told["msg"] in ("unexpected_error", "close_stream"):
                    raise Refused(f"the stream ended: {told}")

    async def beside(self, name: str, asked: Any) -> Any:
        """A question that is no run."""
        body = call(self.doors.board, name, asked, self.session)
        answer = await self.client.post("gradio_api/component_server", json=body)
        answer.raise_for_status()
        return answer.json()


def _grown(text: str, came: Any) -> str:
    """The first answer is whole, later ones say what to append."""
    if isinstance(came, str):
        return came
    for kind, path, value in came:
        if path or kind not in ("append", "replace"):
            raise ValueError(f"an edit that no answer of ours has: {kind} {path}")
        text = text + value if kind == "append" else value
    return text


def asked_for(drafter: str, tokens: int, prompt: str = PROMPTS[0], **more: Any) -> dict[str, Any]:
    """What a page sends for a run."""
    nonce = secrets.token_hex(8)
    return {"nonce": nonce, "prompt": prompt, "drafter": drafter, "max_new_tokens": tokens, "chat": False, **more}


@dataclass(slots=True)
class Seen:
    """What one page saw of its run: places in line, when it was served and when it ended (s after Run), and how."""

    places: list[int] = field(default_factory=list)
    served: float | None = None
    ended: float | None = None
    how: str = "nothing"

    @property
    def only_fell(self) -> bool:
        """Whether nobody was put before it."""
        return all(later < earlier for earlier, later in zip(self.places, self.places[1:], strict=False))


async def watched(visitor: Visitor, request: Mapping[str, Any]) -> Seen:
    """Run, look at every line, to the end."""
    seen, read, start = Seen(), 0, time.perf_counter()
    try:
        async for text in visitor.ask(request):
            end = text.rfind("\n") + 1
            for line in map(json.loads, text[read:end].splitlines()):
                now = time.perf_counter() - start
                if "wait" in line:
                    seen.places.append(line["wait"])
                    seen.served = now if line["wait"] == 0 else None
                if "finish" in line:
                    seen.how = line["finish"]
                if "notice" in line:
                    seen.how = line["notice"]["key"]
            read = end
    except (Refused, httpx.HTTPError) as problem:
        seen.how = f"{type(problem).__name__}: {problem}"
    seen.ended = time.perf_counter() - start
    return seen
