"""Addresses of a class: `sv/class` opens one, `sv/class/CODE` tells how it stands, the verbs below it change it.

Pages ask again and again and get an empty answer while nothing has changed, so a class works behind any proxy. The
teacher's token and a member's made-up name travel in headers, not in addresses, which others may write down.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial, wraps
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import segno
from anyio import CapacityLimiter, to_thread
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from spec_viz.content.lessons import LessonError, lesson_folders, load_lesson
from spec_viz.serving.gate import is_public
from spec_viz.ui.classroom import ALONE, ClassError, ClassLimits, MemoryStore, School, Steps, plain_code
from spec_viz.ui.origin import names_us
from spec_viz.ui.visitor import network

log = logging.getLogger(__name__)

TOKEN = "X-Class-Token"
MEMBER = "X-Class-Member"
REDIS = "SPECVIZ_REDIS"
MOST_BYTES = 4096
MOST_ADDRESS = 300  # bytes; a projected square with more has dots too small for a phone at the back
# Questions that may wait for the store at one moment, in threads of their own: a store that hangs holds up no page.
AT_ONCE = 16
FRESH = {"Cache-Control": "no-store"}
_MEMBER = re.compile(r"[0-9a-f]{16,64}")

Endpoint = Callable[[Request], Awaitable[Response]]
Asked = TypeVar("Asked")
Done = TypeVar("Done")
Id = Annotated[str, Field(min_length=1, max_length=100)]
_EXACT = ConfigDict(strict=True, extra="forbid")


@with_config(_EXACT)
@dataclass(frozen=True, slots=True)
class Opening:
    """The lesson and the step a class begins at."""

    lesson: Id
    step: Id


@with_config(_EXACT)
@dataclass(frozen=True, slots=True)
class Leading:
    """What the teacher changes; what is left out stays as it is."""

    lesson: Id | None = None
    step: Id | None = None
    follow: bool | None = None
    reveal: Id | None = None


@with_config(_EXACT)
@dataclass(frozen=True, slots=True)
class Guessing:
    """A member's guess at a step: the index of an option, or a number."""

    step: Id
    value: Annotated[float, Field(allow_inf_nan=False)]


_OPENING, _LEADING, _GUESSING = TypeAdapter(Opening), TypeAdapter(Leading), TypeAdapter(Guessing)


def school_of(environ: Mapping[str, str]) -> School | None:
    """The classes of this process, or those of all replicas; None, said where the operator reads it, without any."""
    return _shared(environ[REDIS]) if environ.get(REDIS) else School(MemoryStore(), lesson_steps, _limits())


def _shared(address: str) -> School | None:
    # Only who shares classes needs the client.
    from spec_viz.ui.classroom_redis import RedisStore

    try:
        store = RedisStore(address)
    except ValueError:
        # Nothing of the address: what is wrong in it may be its password.
        log.error(
            "%s is no address of a Redis, so classes are switched off; everything else works. It has the form "
            "redis://:PASSWORD@HOST:6379/0 (rediss:// over TLS, unix:///PATH for a socket); in a password / ? # @ %% "
            "are written percent-encoded.",
            REDIS,
        )
        return None
    if store.answers():
        log.info("classes are kept in the Redis at %s", store.place)
    return School(store, lesson_steps, _limits())


def _limits() -> ClassLimits:
    return ClassLimits() if is_public() else ALONE


def lesson_steps(slug: str) -> Steps | None:
    """The steps of a shown lesson and the kind of guess each asks for; None for one that is not there."""
    folder = next((folder for folder in lesson_folders() if folder.name == slug), None)
    if folder is None:
        return None
    try:
        return _lesson_steps(folder, max(path.stat().st_mtime_ns for path in folder.glob("*.*")))
    except LessonError as problem:
        log.warning("no class can take a lesson: %s", problem)
        return None


@lru_cache(maxsize=32)
def _lesson_steps(folder: Path, changed: int) -> Steps:  # noqa: ARG001 - `changed` is part of the key
    return {step.id: step.ask.kind if step.ask else None for step in load_lesson(folder).structure.steps}


def class_routes(school: School | None) -> tuple[Route, ...]:
    """The routes over a school; without one every address says that there are no classes here."""

    async def open_(request: Request) -> Response:
        asked = _read(_OPENING, await _body(request))
        code, token = await _do(_here().open, asked.lesson, asked.step, _address(request))
        return JSONResponse({"code": code, "token": token}, status_code=201, headers=FRESH)

    async def look(request: Request) -> Response:
        token = request.headers.get(TOKEN)
        if token is not None:
            view = await _do(_here().attend, _code(request), token)
        else:
            view = await _do(_here().look, _code(request), _member(request), _address(request))
        return _unless_known(view, request.query_params.get("since"))

    async def lead(request: Request) -> Response:
        asked = _read(_LEADING, await _body(request))
        change = partial(_here().lead, lesson=asked.lesson, step=asked.step, follow=asked.follow, reveal=asked.reveal)
        await _do(change, _code(request), _token(request))
        return Response(status_code=204)

    async def guess(request: Request) -> Response:
        asked = _read(_GUESSING, await _body(request))
        who = _code(request), _member(request)
        await _do(_here().guess, *who, asked.step, asked.value, _address(request))
        return Response(status_code=204)

    async def send(request: Request) -> Response:
        most = _here().limits.sent
        big = ClassError(413, "classroom.error.big", kilobytes=most // 1000)
        try:
            text = (await _body(request, most, big)).decode("utf-8")
        except UnicodeDecodeError as problem:
            raise ClassError(400, "classroom.error.trace") from problem
        id_ = await _do(_here().send, _code(request), _token(request), text)
        return JSONResponse({"sent": id_}, headers=FRESH)

    async def sent(request: Request) -> Response:
        text = await _do(_here().sent, _code(request), request.path_params["id"])
        return PlainTextResponse(text, media_type="application/x-ndjson", headers=FRESH)

    async def square(request: Request) -> Response:
        """The way in for a phone's camera, at the address where the page says that it is seen from outside."""
        code = _code(request)
        join = _way_in(request.query_params.get("at", ""), code, request.headers)
        await _do(_here().find, code)
        return Response(await _do(_drawn, join), media_type="image/svg+xml", headers=FRESH)

    async def end(request: Request) -> Response:
        await _do(_here().end, _code(request), _token(request))
        return Response(status_code=204)

    def _here() -> School:
        if school is None:
            raise ClassError(503, "classroom.error.off")
        return school

    at_once = CapacityLimiter(AT_ONCE)

    async def _do(verb: Callable[..., Done], *args: Any) -> Done:
        """What a school does, in a thread: a store may be far, a lesson has to be read, every line of a run checked."""
        return await to_thread.run_sync(verb, *args, limiter=at_once)

    below = "/sv/class/{code}"
    return (
        Route("/sv/class", _said(open_), methods=["POST"]),
        Route(below, _said(look), methods=["GET"]),
        Route(f"{below}/lead", _said(lead), methods=["POST"]),
        Route(f"{below}/guess", _said(guess), methods=["POST"]),
        Route(f"{below}/send", _said(send), methods=["POST"]),
        Route(f"{below}/sent/{{id}}", _said(sent), methods=["GET"]),
        Route(f"{below}/square.svg", _said(square), methods=["GET"]),
        Route(f"{below}/end", _said(end), methods=["POST"]),
    )


def _said(endpoint: Endpoint) -> Endpoint:
    """What a class does not do is an answer with the words' key, never a failure of the server."""

    @wraps(endpoint)
    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ClassError as problem:
            error = {"key": problem.key, "args": problem.fields}
            return JSONResponse({"error": error}, status_code=problem.status, headers=FRESH)

    return answered


def _unless_known(view: dict[str, Any], since: str | None) -> Response:
    """The view with its tag, or nothing for who knows this tag already."""
    tag = hashlib.blake2s(json.dumps(view).encode(), digest_size=6).hexdigest()
    if since == tag:
        return Response(status_code=204, headers=FRESH)
    return JSONResponse({**view, "tag": tag}, headers=FRESH)


def _code(request: Request) -> str:
    return plain_code(request.path_params["code"])


def _address(request: Request) -> str:
    return network(request.client.host if request.client else "")


def _way_in(at: str, code: str, headers: Headers) -> str:
    """The class's address below that of the page, which must be this page's: a square of ours leads nowhere else.

    Behind a proxy that renames the host only a browser can tell, where it says that the page itself asks (TLS).
    """
    try:
        page = urlsplit(at)
    except ValueError:
        page = urlsplit("")
    is_ours = headers.get("sec-fetch-site") == "same-origin" or names_us(page.netloc, headers)
    join = f"{page.scheme}://{page.netloc}{page.path}?class={code}"
    fits = page.scheme in ("http", "https") and page.netloc and "@" not in page.netloc
    if not (fits and is_ours) or len(join.encode("utf-8", "surrogatepass")) > MOST_ADDRESS:
        raise ClassError(400, "classroom.error.wrong")
    return join


def _drawn(join: str) -> bytes:
    drawn = BytesIO()
    segno.make_qr(join).save(drawn, kind="svg", border=2, light="#fff", xmldecl=False, omitsize=True)
    return drawn.getvalue()


def _token(request: Request) -> str:
    return request.headers.get(TOKEN, "")


def _member(request: Request) -> str:
    member = request.headers.get(MEMBER, "")
    if not _MEMBER.fullmatch(member):
        raise ClassError(400, "classroom.error.wrong")
    return member


async def _body(request: Request, most: int = MOST_BYTES, big: ClassError | None = None) -> bytes:
    """What was sent, as long as it is not too much; the rest is not read."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise big or ClassError(413, "classroom.error.wrong")
        parts.append(part)
    return b"".join(parts)


def _read(adapter: TypeAdapter[Asked], body: bytes) -> Asked:
    try:
        return adapter.validate_json(body)
    except ValidationError as problem:
        raise ClassError(400, "classroom.error.wrong") from problem
