"""Questions and searches."""

from __future__ import annotations

from edge_rag.api.v1 import rag_pb2
from edge_rag.client import replies, requests
from edge_rag.client.call_flow import (
    ASK,
    SEARCH,
    Begin,
    CallOptions,
    Flow,
    Streaming,
    Tell,
    received,
    repeated,
    repeating,
)
from edge_rag.client.failures import unreadable_reply
from edge_rag.client.requests import AskOptions, SearchOptions
from edge_rag.client.values import AskEvent, SearchReply
from edge_rag.core.answer import Finished


def ask(terms: CallOptions, question: str, options: AskOptions | None = None) -> Streaming[AskEvent]:
    """Asks a question.

    Repeated, as the retry policy says, until the first event has come, and not from then on.

    Args:
        question: The question.
        options: How it is to be answered.

    Yields:
        ``PassagesReceived`` first, then ``TextDelta``, ``Citation`` and ``Unsupported`` as they come, ``Finished``
        last. Closing the generator early cancels the call, and the daemon gives up the answer.

    Raises:
        ClientError: The call failed; events already yielded stand.

    Example:
        >>> for event in client.ask("How often must the pump bearings be greased?"):
        ...     if isinstance(event, TextDelta):
        ...         print(event.text, end="", flush=True)
    """
    request = requests.ask_request(question, options or AskOptions())

    def begin(timeout_s: float | None) -> Flow[rag_pb2.AskResponse]:
        yield Begin(ASK, request, timeout_s)
        first = yield from received(ASK)
        if first is None:
            raise unreadable_reply("the answer ended without a message")
        return first

    message: rag_pb2.AskResponse | None = yield from repeating(begin, terms)
    finished = False
    while message is not None:
        event = replies.ask_event(message)
        if event is not None:
            finished = isinstance(event, Finished)
            yield Tell(event)
        message = yield from received(ASK)
    if not finished:
        raise unreadable_reply("the answer ended without its last message")


def search(terms: CallOptions, query: str, options: SearchOptions | None = None) -> Flow[SearchReply]:
    """Finds passages.

    Raises:
        ClientError: The call failed.

    Example:
        >>> for hit in client.search("seal water pressure", SearchOptions(limit=3)).hits:
        ...     print(hit.document, hit.start, hit.end, hit.score)
    """
    request = requests.search_request(query, options or SearchOptions())
    return replies.search_reply((yield from repeated(SEARCH, lambda: request, terms)))
