"""One chat turn asked of a server that speaks OpenAI's protocol, streamed, so that every arrival has its time.

vLLM says more than the protocol knows, where its flags allow it: the ids of each chunk (`return_token_ids`), and with
the last chunk what speculation did for this request (`--enable-per-request-metrics`). What a server does not tell is
None. The key, where a server wants one, is read from SPECVIZ_SERVER_KEY and goes nowhere else.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

KEY = "SPECVIZ_SERVER_KEY"
# Of a whole answer. A server on two cores is slow, not gone.
PATIENCE = 300.0


class ServerError(ValueError):
    """A server that cannot be asked, or answers what nobody understands; `key` names the visitor's sentence."""

    def __init__(self, key: str, problem: str, /, **fields: Any) -> None:
        super().__init__(problem)
        self.key = key
        self.fields = fields


@dataclass(frozen=True, slots=True)
class Arrival:
    """A piece of an answer: milliseconds after the question was sent, and how many tokens came at once."""

    ms: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: text and ids (None where the server does not send them), the arrivals, and vLLM's own metrics.

    `prompt` are the ids that the server made of the question, `finish` its own word for why the answer ended.
    """

    text: str
    ids: tuple[int, ...] | None
    arrivals: tuple[Arrival, ...]
    tokens: int
    metrics: dict[str, Any] | None
    prompt: tuple[int, ...] | None = None
    finish: str | None = None

    @property
    def after_first(self) -> tuple[int, float]:
        """Tokens after the first arrival, and the seconds that they took."""
        if not self.arrivals:
            return 0, 0.0
        first, last = self.arrivals[0], self.arrivals[-1]
        return self.tokens - first.tokens, (last.ms - first.ms) / 1000


class Server:
    """A server at an address such as http://127.0.0.1:8000, and the one model that it is asked for."""

    def __init__(self, address: str, model: str | None = None) -> None:
        # Its import takes as long as a small page: only who asks a server waits for it.
        import openai

        self.address = address.rstrip("/")
        self._client = openai.OpenAI(
            base_url=f"{self.address}/v1", api_key=os.environ.get(KEY, "none"), timeout=PATIENCE, max_retries=0
        )
        self.model = model or self._only_model()

    def _only_model(self) -> str:
        with _told(self.address):
            models = [model.id for model in self._client.models.list().data]
        if not models:
            raise ServerError("error.server_empty", f"{self.address} serves no model", address=self.address)
        return models[0]

    def ask(self, prompt: str, max_tokens: int) -> Answer:
        """The answer to one chat turn at temperature 0, timed as it comes; the server applies its own template."""
        began = time.perf_counter()
        texts: list[str] = []
        ids: list[int] | None = []
        arrivals: list[Arrival] = []
        usage, metrics, asked, finish = 0, None, None, None
        with _told(self.address):
            stream = self._client.chat.completions.create(
                model=self.model,
                messages=[{"role": "user", "content": prompt}],
                temperature=0.0,
                max_tokens=max_tokens,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"return_token_ids": True},
            )
            for chunk in stream:
                if chunk.usage:
                    usage = chunk.usage.completion_tokens
                    metrics = (chunk.model_extra or {}).get("metrics")
                # vLLM says the prompt's ids once, with the first chunk.
                asked = asked or (chunk.model_extra or {}).get("prompt_token_ids")
                for choice in chunk.choices:
                    finish = choice.finish_reason or finish
                    told = (choice.model_extra or {}).get("token_ids")
                    if choice.delta.content or told:
                        texts.append(choice.delta.content or "")
                        # A server that sends no ids is taken to send a token a chunk.
                        arrivals.append(Arrival(1000 * (time.perf_counter() - began), len(told) if told else 1))
                        ids = [*ids, *told] if ids is not None and told else None
        return Answer(
            "".join(texts),
            None if ids is None else tuple(ids),
            tuple(arrivals),
            usage or sum(each.tokens for each in arrivals),
            metrics if isinstance(metrics, dict) else None,
            tuple(asked) if asked else None,
            finish,
        )

    def close(self) -> None:
        """Let its connections go."""
        self._client.close()


@contextmanager
def _told(address: str) -> Iterator[None]:
    """What the client's errors mean, in a sentence for a person."""
    import openai

    try:
        yield
    except openai.APIConnectionError as problem:
        # A timeout is one too.
        raise ServerError("error.server_away", f"{address} does not answer", address=address) from problem
    except openai.APIStatusError as problem:
        said = f"{address} answered {problem.status_code}"
        raise ServerError("error.server_said", said, address=address, status=problem.status_code) from problem
    except (openai.OpenAIError, json.JSONDecodeError) as problem:
        # A chunk that is no JSON the client lets through as it is.
        raise ServerError("error.server_odd", f"{address} sent what is no answer", address=address) from problem
