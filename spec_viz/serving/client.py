"""One chat turn asked of a server that speaks OpenAI's protocol, streamed, so that every arrival has its time.

vLLM says more than the protocol knows, where its flags allow it: the ids of each chunk (`return_token_ids`), how many
tokens are out (`continuous_usage_stats`), and with the last chunk what speculation did for this request
(`--enable-per-request-metrics`). What a server does not tell is None. What it sends is limited by `wire`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from spec_viz.engine.trace import Anything, Milliseconds, Token
from spec_viz.serving.gate import Place
from spec_viz.serving.problems import ServerError
from spec_viz.serving.wire import SHORT, STREAM, Stop, Wire, never


@dataclass(frozen=True, slots=True)
class Arrival:
    """A piece of an answer: milliseconds after the question was sent, and how many tokens came at once.

    Sent is when its first byte went out on a connection that was open by then, as in `vllm bench serve`, which keeps
    its connections (`vllm/benchmarks/lib/endpoint_request_func.py`).
    """

    ms: Milliseconds
    tokens: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: text and ids (None where the server does not send them), the arrivals, and vLLM's own metrics.

    `prompt` are the ids that the server made of the question, `finish` its own word for why the answer ended.
    """

    text: str
    ids: tuple[Token, ...] | None
    arrivals: tuple[Arrival, ...]
    tokens: int
    metrics: Anything | None
    prompt: tuple[Token, ...] | None = None
    finish: str | None = None

    @property
    def after_first(self) -> tuple[int, float]:
        """Tokens after the first arrival, and the seconds that they took."""
        if not self.arrivals:
            return 0, 0.0
        first, last = self.arrivals[0], self.arrivals[-1]
        return self.tokens - first.tokens, (last.ms - first.ms) / 1000


class BrokenOffError(ServerError):
    """An answer that ended in the middle; `answer` is what had come, without an end."""

    def __init__(self, problem: ServerError, answer: Answer) -> None:
        super().__init__(problem.key, str(problem), **problem.fields)
        self.answer = answer


# What is told of an answer while it comes: a piece of its text, and its arrival.
Hear = Callable[[str, Arrival], None]


def _deaf(_text: str, _arrival: Arrival) -> None:
    """Nobody listens."""


# ---------------------------------------------------------------- what a server may send


@dataclass(frozen=True, slots=True)
class _Delta:
    content: str | None = None
    # What a reasoning model thinks; older servers call it reasoning_content.
    reasoning: str | None = None
    reasoning_content: str | None = None

    @property
    def text(self) -> str:
        return self.content or self.reasoning or self.reasoning_content or ""


@dataclass(frozen=True, slots=True)
class _Choice:
    delta: _Delta
    finish_reason: str | None = None
    token_ids: tuple[Token, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Usage:
    completion_tokens: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class _Chunk:
    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None
    metrics: Anything | None = None
    prompt_token_ids: tuple[Token, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Card:
    id: str
    max_model_len: Annotated[int, Field(gt=0)] | None = None


@dataclass(frozen=True, slots=True)
class _Models:
    data: tuple[_Card, ...]


@dataclass(frozen=True, slots=True)
class _Version:
    version: str


@dataclass(frozen=True, slots=True)
class _Text:
    prompt: str


_CHUNK, _MODELS, _VERSION, _TEXT = (TypeAdapter[Any](kind) for kind in (_Chunk, _Models, _Version, _Text))


@dataclass(slots=True)
class _Heard:
    """An answer as far as it has come."""

    texts: list[str] = field(default_factory=list)
    ids: list[int] | None = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    counted: int = 0
    metrics: dict[str, Any] | None = None
    prompt: tuple[int, ...] | None = None
    finish: str | None = None

    def take(self, chunk: _Chunk, ms: float, hear: Hear) -> None:
        before = self.counted
        if chunk.usage:
            self.counted = max(before, chunk.usage.completion_tokens)
        self.metrics = chunk.metrics or self.metrics
        # vLLM says the prompt's ids once, with the first chunk.
        self.prompt = self.prompt or chunk.prompt_token_ids
        for choice in chunk.choices[:1]:
            self.finish = choice.finish_reason or self.finish
            if choice.delta.text or choice.token_ids:
                # A server that neither sends ids nor counts is taken to send a token a chunk.
                arrival = Arrival(ms, len(choice.token_ids or ()) or self.counted - before or 1)
                if self.ids is not None and choice.token_ids:
                    self.ids.extend(choice.token_ids)
                else:
                    self.ids = None
                self.texts.append(choice.delta.text)
                self.arrivals.append(arrival)
                hear(choice.delta.text, arrival)

    def answer(self) -> Answer:
        return Answer(
            "".join(self.texts),
            None if self.ids is None else tuple(self.ids),
            tuple(self.arrivals),
            self.counted or sum(each.tokens for each in self.arrivals),
            self.metrics,
            self.prompt,
            self.finish,
        )


class Server:
    """A server at an address such as http://127.0.0.1:8000, and the one model that it is asked for."""

    def __init__(self, address: str | Place, model: str | None = None) -> None:
        self._wire = Wire(Place.of(address))
        self.address = self._wire.address
        # What it serves, and the longest context of each where it tells.
        self.served = self.models()
        if model and model not in self.served:
            said = f"{self.address} does not serve {model}"
            raise ServerError("error.server_model", said, address=self.address, model=model)
        self.model = model or next(iter(self.served))
        self._tells_texts = True

    def models(self, stop: Stop = never) -> dict[str, int | None]:
        """What it serves, and the longest context of each where it tells; ServerError where it serves nothing."""
        told: _Models = self._parsed(_MODELS, self._wire.read("/v1/models", SHORT, stop=stop))
        if not told.data:
            raise ServerError("error.server_empty", f"{self.address} serves no model", address=self.address)
        return {card.id: card.max_model_len for card in told.data}

    def version(self, stop: Stop = never) -> str | None:
        """vLLM's version; None where this path says nothing of the kind, as with other servers."""
        try:
            told: _Version = self._parsed(_VERSION, self._wire.read("/version", SHORT, stop=stop))
        except ServerError as problem:
            if problem.key in ("error.server_said", "error.server_odd", "error.server_web"):
                return None
            raise
        return told.version

    def ask(self, prompt: str, max_tokens: int, *, stop: Stop = never, hear: Hear = _deaf) -> Answer:
        """The answer to one chat turn at temperature 0, timed as it comes; the server applies its own template.

        `hear` is told of every arrival. ServerError where it cannot be had, BrokenOffError where some of it had come.
        """
        heard = _Heard()
        try:
            self._listen(prompt, max_tokens, heard, stop, hear)
        except ServerError as problem:
            if heard.arrivals:
                raise BrokenOffError(problem, heard.answer()) from problem
            raise
        return heard.answer()

    def _listen(self, prompt: str, max_tokens: int, heard: _Heard, stop: Stop, hear: Hear) -> None:
        with (
            self._wire.speak(STREAM, stop=stop) as (client, clock),
            client.chat.completions.create(
                model=self.model,
                messages=[{"role": "user", "content": prompt}],
                temperature=0.0,
                max_tokens=max_tokens,
                stream=True,
                extra_body={
                    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
                    "return_token_ids": True,
                },
            ) as stream,
        ):
            for chunk in stream:
                ms = clock()
                # The client takes a chunk as it comes, of whatever shape; as JSON again, half a letter is refused too.
                heard.take(self._parsed(_CHUNK, json.dumps(chunk, default=_dumped)), ms, hear)
        if heard.finish is None:
            key = "error.server_broke" if heard.arrivals else "error.server_odd"
            raise ServerError(key, f"{self.address} ended without an end", address=self.address)

    def texts(self, ids: list[int], stop: Stop = never) -> dict[int, tuple[str, str | None]]:
        """The text of each id, as far as the server tells (`/detokenize`); one that is no whole letters is left out.

        A server that fails at one is not asked for another.
        """
        found: dict[int, tuple[str, str | None]] = {}
        for id_ in ids if self._tells_texts else ():
            try:
                body = {"model": self.model, "tokens": [id_]}
                told = self._wire.read("/detokenize", SHORT, body=body, stop=stop)
                text = self._parsed(_TEXT, told).prompt
            except ServerError as problem:
                # Not every server has it; the ids stand for themselves then.
                self._tells_texts = problem.key == "error.server_stopped"
                break
            if "\ufffd" not in text:
                found[id_] = (text, None)
        return found

    def _parsed(self, kind: TypeAdapter[Any], text: str | bytes) -> Any:
        try:
            return kind.validate_json(text)
        except ValidationError:
            # Not its words: they quote what was sent.
            said = f"{self.address} sent what is no answer"
            raise ServerError("error.server_odd", said, address=self.address) from None


def _dumped(part: BaseModel) -> dict[str, Any]:
    return part.model_dump(warnings=False)
