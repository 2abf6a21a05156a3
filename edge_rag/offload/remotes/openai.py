"""A remote with the OpenAI-compatible HTTP API: vLLM, llama.cpp, OpenVINO Model Server, Triton's OpenAI frontend."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import httpx2

from edge_rag.core.answer import FinishReason, Usage
from edge_rag.core.generation import TextChunk
from edge_rag.core.placement import OffloadUse
from edge_rag.core.query import AnswerFormat
from edge_rag.errors import RemoteFailed
from edge_rag.offload.ports import OutboundRequest, RemoteEvent, RemoteFinished
from edge_rag.offload.remotes.tls_trust import Trust, anchor, tls_context

_DONE: Final = "[DONE]"
_MAX_EVENT_BYTES: Final = 1 << 20
_CONNECT_S: Final = 10.0
_MAX_RETIRED: Final = 4
_BUSY: Final = frozenset({429, 503})
_REASONS: Final = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


class OpenAiRemote:
    """Implements ``Remote`` with ``POST /chat/completions``, streamed as server-sent events.

    The API takes messages and returns text, so answers in a required format are not supported.

    Args:
        address: Base URL, for example ``https://10.0.0.9:8000/v1``.
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

    def supports(self, form: AnswerFormat | None, redacted: bool) -> bool:
        return form is None

    def serialize(self, outbound: OutboundRequest) -> bytes:
        """Returns the request body, JSON."""
        sampling = outbound.sampling
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": "system", "content": outbound.system}, {"role": "user", "content": outbound.user}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
        }
        # Only some servers support the last two, so parameters are sent only if they differ from the default.
        optional: dict[str, tuple[Any, Any]] = {
            "top_p": (sampling.top_p, 1.0),
            "seed": (sampling.seed, None),
            "stop": (list(sampling.stop), []),
            "top_k": (sampling.top_k, 0),
            "repetition_penalty": (sampling.repetition_penalty, 1.0),
        }
        body |= {key: value for key, (value, default) in optional.items() if value != default}
        return json.dumps(body).encode()

    async def send(self, body: bytes, timeout_s: float | None) -> AsyncGenerator[RemoteEvent, None]:
        """Sends a request and yields its events; see ``Remote``."""
        try:
            client = await self._client_for(timeout_s)
            token = self._trust.token()
            headers = {"content-type": "application/json"}
            if token is not None:
                headers["authorization"] = f"Bearer {token}"
            timeout = httpx2.Timeout(timeout_s, connect=_CONNECT_S if timeout_s is None else min(_CONNECT_S, timeout_s))
            async with client.sse(
                f"{self.address}/chat/completions",
                method="POST",
                content=body,
                headers=headers,
                timeout=timeout,
                max_event_size=_MAX_EVENT_BYTES,
            ) as events:
                status = events.response.status_code
                if status != httpx2.codes.OK:
                    raise RemoteFailed(f"the remote returned HTTP status {status}", busy=status in _BUSY)
                parser = _Parser()
                async for event in events:
                    for parsed in parser.parse(event.data):
                        yield parsed
                    if parser.done:
                        break
                yield parser.finish()
        except httpx2.ConnectError as error:
            self._retire_client()
            raise RemoteFailed(f"the remote cannot be reached: {error}") from error
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise RemoteFailed(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        clients = [*self._retired, *([] if self._client is None else [self._client])]
        self._retired, self._client = [], None
        for client in clients:
            await client.aclose()

    def _retire_client(self) -> None:
        """Lets the next request read certificates again, since they may have changed; running requests are not cut."""
        if self._trust.is_encrypted and self._client is not None:
            self._retired.append(self._client)
            self._client = None
            del self._retired[:-_MAX_RETIRED]

    async def _client_for(self, timeout_s: float | None) -> httpx2.AsyncClient:
        async with self._opening:
            if self._client is None:
                self._client = await self._open(min(_CONNECT_S, _CONNECT_S if timeout_s is None else timeout_s))
            return self._client

    async def _open(self, timeout_s: float) -> httpx2.AsyncClient:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32)
        if not self._trust.is_encrypted:
            return httpx2.AsyncClient(limits=limits, trust_env=False)
        url = httpx2.URL(self.address)
        trusted = await asyncio.to_thread(anchor, self._trust, url.host, url.port or 443, timeout_s)
        return httpx2.AsyncClient(verify=tls_context(trusted), limits=limits, trust_env=False)


class _Parser:
    """Parses the events of one answer."""

    def __init__(self) -> None:
        self.done = False
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None

    def parse(self, data: str) -> list[RemoteEvent]:
        """Parses one server-sent event.

        Raises:
            RemoteFailed: It is invalid.
        """
        if data.strip() == _DONE:
            self.done = True
            return []
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise RemoteFailed("the remote sent an event that is not JSON") from error
        if not isinstance(chunk, dict) or "error" in chunk:
            raise RemoteFailed(f"the remote sent an error: {str(chunk)[:200]}")
        self._usage = _usage(chunk.get("usage")) or self._usage
        events: list[RemoteEvent] = []
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                raise RemoteFailed("the remote sent an invalid choice")
            delta = choice.get("delta")
            text = delta.get("content") if isinstance(delta, dict) else None
            if isinstance(text, str) and text:
                events.append(TextChunk(_valid_unicode(text)))
            reason = choice.get("finish_reason")
            if isinstance(reason, str):
                if reason not in _REASONS:
                    raise RemoteFailed(f"the remote ended with finish reason {reason[:40]!r}")
                self._reason = _REASONS[reason]
        return events

    def finish(self) -> RemoteFinished:
        """Returns the end of the answer.

        Raises:
            RemoteFailed: There was no finish reason.
        """
        if self._reason is None:
            raise RemoteFailed("the remote ended the stream without a finish reason")
        return RemoteFinished(self._reason, self._usage)


def _valid_unicode(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RemoteFailed("the remote sent an unpaired surrogate") from error
    return text


def _usage(value: object) -> Usage | None:
    if not isinstance(value, Mapping):
        return None
    prompt, generated = value.get("prompt_tokens"), value.get("completion_tokens")
    if not isinstance(prompt, int) or not isinstance(generated, int) or min(prompt, generated) < 0:
        return None
    return Usage(prompt, 0, generated)
