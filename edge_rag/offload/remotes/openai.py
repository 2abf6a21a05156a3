"""A server with the OpenAI-compatible HTTP API: vLLM, llama.cpp's, OpenVINO Model Server, Triton's front end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import httpx2

from edge_rag.core.answer import FinishReason, Usage
from edge_rag.core.generation import TextChunk
from edge_rag.core.placement import OffloadUse
from edge_rag.core.query import AnswerFormat, AnswerMode
from edge_rag.errors import RemoteFailed
from edge_rag.offload.generation.request_builder import Order
from edge_rag.offload.ports import Ended, Heard
from edge_rag.offload.remotes.tls_trust import Trust, anchor, tls_context

_DONE: Final = "[DONE]"
_LONGEST_EVENT_BYTES: Final = 1 << 20
_CONNECT_S: Final = 10.0
_MOST_RETIRED: Final = 4
_BUSY: Final = frozenset({429, 503})
_REASONS: Final = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


class OpenAiRemote:
    """Implements ``Remote`` with ``POST /chat/completions``, streamed as server-sent events.

    It is given messages and gives text. So it writes answers that are free or checked here, but does not quote: there
    the model may only say the passages' sentences.

    Args:
        name: What it is called.
        address: Base URL, for example ``https://10.0.0.9:8000/v1``.
        model: Name of the model there.
        trust: What it has to show, and is shown.
    """

    kind = "openai"
    uses = frozenset({OffloadUse.GENERATE})

    def __init__(self, name: str, address: str, model: str, trust: Trust) -> None:
        self.name = name
        self.address = address.rstrip("/")
        self._model = model
        self._trust = trust
        self._client: httpx2.AsyncClient | None = None
        self._opening = asyncio.Lock()
        self._retired: list[httpx2.AsyncClient] = []

    def able(self, mode: AnswerMode, form: AnswerFormat | None, redacted: bool) -> bool:
        """Whether it can write such an answer."""
        return mode is not AnswerMode.QUOTE and form is None

    def seal(self, order: Order) -> bytes:
        """Returns the body of the request, JSON."""
        sampling = order.sampling
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": "system", "content": order.system}, {"role": "user", "content": order.user}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
        }
        # The API knows no others of ours, and the last two only some servers do: said only where they change anything.
        optional: dict[str, tuple[Any, Any]] = {
            "top_p": (sampling.top_p, 1.0),
            "seed": (sampling.seed, None),
            "stop": (list(sampling.stop), []),
            "top_k": (sampling.top_k, 0),
            "repetition_penalty": (sampling.repetition_penalty, 1.0),
        }
        body |= {key: value for key, (value, default) in optional.items() if value != default}
        return json.dumps(body).encode()

    async def send(self, sealed: bytes, within_s: float | None) -> AsyncGenerator[Heard, None]:
        """Sends a request and yields what comes back; see ``Remote``."""
        try:
            client = await self._connected(within_s)
            token = self._trust.token()
            headers = {"content-type": "application/json"}
            if token is not None:
                headers["authorization"] = f"Bearer {token}"
            timeout = httpx2.Timeout(within_s, connect=_CONNECT_S if within_s is None else min(_CONNECT_S, within_s))
            async with client.sse(
                f"{self.address}/chat/completions",
                method="POST",
                content=sealed,
                headers=headers,
                timeout=timeout,
                max_event_size=_LONGEST_EVENT_BYTES,
            ) as events:
                status = events.response.status_code
                if status != httpx2.codes.OK:
                    raise RemoteFailed(f"it answered with HTTP status {status}", busy=status in _BUSY)
                reader = _Reader()
                async for event in events:
                    for heard in reader.read(event.data):
                        yield heard
                    if reader.done:
                        break
                yield reader.end()
        except httpx2.ConnectError as error:
            self._connect_anew()
            raise RemoteFailed(f"it cannot be reached: {error}") from error
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise RemoteFailed(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Lets connections go."""
        clients = [*self._retired, *([] if self._client is None else [self._client])]
        self._retired, self._client = [], None
        for client in clients:
            await client.aclose()

    def _connect_anew(self) -> None:
        """Has the next request read certificates anew, as they may have changed; others keep their connections."""
        if self._trust.is_encrypted and self._client is not None:
            self._retired.append(self._client)
            self._client = None
            del self._retired[:-_MOST_RETIRED]

    async def _connected(self, within_s: float | None) -> httpx2.AsyncClient:
        async with self._opening:
            if self._client is None:
                self._client = await self._open(min(_CONNECT_S, _CONNECT_S if within_s is None else within_s))
            return self._client

    async def _open(self, within_s: float) -> httpx2.AsyncClient:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32)
        if not self._trust.is_encrypted:
            return httpx2.AsyncClient(limits=limits, trust_env=False)
        url = httpx2.URL(self.address)
        believed = await asyncio.to_thread(anchor, self._trust, url.host, url.port or 443, within_s)
        return httpx2.AsyncClient(verify=tls_context(believed), limits=limits, trust_env=False)


class _Reader:
    """Reads the events of one answer."""

    def __init__(self) -> None:
        self.done = False
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None

    def read(self, data: str) -> list[Heard]:
        """Returns what an event says.

        Raises:
            RemoteFailed: It is none that such a server sends.
        """
        if data.strip() == _DONE:
            self.done = True
            return []
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise RemoteFailed("it sent an event that is not JSON") from error
        if not isinstance(chunk, dict) or "error" in chunk:
            raise RemoteFailed(f"it sent an error: {str(chunk)[:200]}")
        self._usage = _usage(chunk.get("usage")) or self._usage
        heard: list[Heard] = []
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                raise RemoteFailed("it sent a choice that is none")
            delta = choice.get("delta")
            text = delta.get("content") if isinstance(delta, dict) else None
            if isinstance(text, str) and text:
                heard.append(TextChunk(_whole_characters(text)))
            reason = choice.get("finish_reason")
            if isinstance(reason, str):
                if reason not in _REASONS:
                    raise RemoteFailed(f"it ended for the reason {reason[:40]!r}")
                self._reason = _REASONS[reason]
        return heard

    def end(self) -> Ended:
        """Returns the end of the answer.

        Raises:
            RemoteFailed: It broke off.
        """
        if self._reason is None:
            raise RemoteFailed("it stopped without an end")
        return Ended(self._reason, self._usage)


def _whole_characters(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RemoteFailed("it sent half a character") from error
    return text


def _usage(given: object) -> Usage | None:
    if not isinstance(given, Mapping):
        return None
    prompt, generated = given.get("prompt_tokens"), given.get("completion_tokens")
    if not isinstance(prompt, int) or not isinstance(generated, int) or min(prompt, generated) < 0:
        return None
    return Usage(prompt, 0, generated)
