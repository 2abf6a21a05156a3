"""A typed client of the daemon: ``Client`` blocks, ``AsyncClient`` is for asyncio.

What a call does is described once, in ``answering``, ``ingesting``, ``keeping`` and ``operating``, as a flow (``flow``)
over pure requests, replies, failures and retries; ``blocking`` and ``asynchronous`` carry it out.
"""

from edge_rag.client.call_flow import RetryPolicy
from edge_rag.client.calls.ingest import OutgoingDocument
from edge_rag.client.client import AsyncClient, Client
from edge_rag.client.credentials import Credentials
from edge_rag.client.failures import CallStatus, ClientError
from edge_rag.client.filter_text import parse_filter
from edge_rag.client.requests import AskOptions, SearchOptions
from edge_rag.client.values import AskEvent, FoundPassage, PassagesReceived, SearchReply
from edge_rag.core.answer import Citation, Finished, TextDelta, Unsupported

__all__ = [
    "AskEvent",
    "AskOptions",
    "AsyncClient",
    "CallStatus",
    "Citation",
    "Client",
    "ClientError",
    "Credentials",
    "Finished",
    "FoundPassage",
    "OutgoingDocument",
    "PassagesReceived",
    "RetryPolicy",
    "SearchOptions",
    "SearchReply",
    "TextDelta",
    "Unsupported",
    "parse_filter",
]
