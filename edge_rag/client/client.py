"""The blocking client."""

from __future__ import annotations

from edge_rag.client.answering import AnswerCalls
from edge_rag.client.ingesting import IngestCalls
from edge_rag.client.keeping import DocumentCalls
from edge_rag.client.operating import AdminCalls


class Client(AnswerCalls, IngestCalls, DocumentCalls, AdminCalls):
    """A connection to one daemon. May be used from several threads at once.

    Args:
        address: HOST:PORT or unix:PATH; None takes EDGE_RAG_SERVER, else 127.0.0.1:7421.
        timeout_s: Deadline of each call with all its repetitions, seconds; None leaves it to the server.
        retry: When a call is repeated.
        credentials: For a server with TLS; None takes what the environment names or ``edge-rag connect`` kept for the
            address, and calls without TLS where there is nothing.

    Raises:
        ClientError: INVALID_ARGUMENT, the address is of neither form, or a file of credentials cannot be read.
    """
