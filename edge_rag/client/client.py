"""The client of a daemon."""

from __future__ import annotations

from edge_rag.client.calls.admin import AsyncAdminCalls
from edge_rag.client.calls.documents import AsyncDocumentCalls
from edge_rag.client.calls.ingest import AsyncIngestCalls
from edge_rag.client.calls.rag import AsyncRagCalls


class AsyncClient(AsyncRagCalls, AsyncIngestCalls, AsyncDocumentCalls, AsyncAdminCalls):
    """A connection to one daemon, for one event loop; any number of tasks may use it at once.

    Cancelling a task cancels its call. Files are read and written on other threads. A call that fails raises
    ``ClientError`` or the subclass of it that says what the caller can do.

    Args:
        address: HOST:PORT or unix:PATH; None for EDGE_RAG_SERVER, else 127.0.0.1:7421.
        timeout_s: Deadline of each call with all its repetitions, seconds; None leaves it to the server.
        retry: When a call is repeated.
        credentials: For a server with TLS; None for those that the environment names or ``edge-rag connect`` stored for
            the address, and for a connection without TLS if there are none.

    Raises:
        InvalidArgument: The address is of neither form, or a file of credentials cannot be read.

    Example:
        >>> async with AsyncClient(timeout_s=60) as client:
        ...     found = await client.search("pump bearing grease")
        ...     print(found.hits[0].text)
        ...     async with aclosing(client.ask("How often must the pump bearings be greased?")) as events:
        ...         async for event in events:
        ...             print(event)
    """
