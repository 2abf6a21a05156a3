"""The two clients."""

from __future__ import annotations

from edge_rag.client.async_driver import AsyncDriver
from edge_rag.client.calls import admin as operating
from edge_rag.client.calls import documents as keeping
from edge_rag.client.calls import ingest as ingesting
from edge_rag.client.calls import rag as answering
from edge_rag.client.operation import Single, Streamed
from edge_rag.client.sync_driver import BlockingDriver


class Operations:
    """What can be asked of a daemon."""

    ask = Streamed(answering.ask)
    search = Single(answering.search)

    ingest = Single(ingesting.ingest)
    start_ingest = Streamed(ingesting.start_ingest)
    watch_job = Streamed(ingesting.watch_job)
    jobs = Single(ingesting.jobs)
    cancel_job = Single(ingesting.cancel_job)

    document = Single(keeping.document)
    documents = Streamed(keeping.documents)
    delete = Single(keeping.delete)
    create_collection = Single(keeping.create_collection)
    collection = Single(keeping.collection)
    collections = Single(keeping.collections)
    update_collection = Single(keeping.update_collection)
    delete_collection = Single(keeping.delete_collection)

    wait_until_serving = Single(operating.wait_until_serving)
    status = Single(operating.status)
    watch_status = Streamed(operating.watch_status)
    whoami = Single(operating.whoami)
    usage = Single(operating.usage)
    use_model = Single(operating.use_model)
    move_index = Single(operating.move_index)
    backup = Single(operating.backup)
    decisions = Streamed(operating.decisions)


class Client(Operations, BlockingDriver):
    """A connection to one daemon. May be used from several threads at once.

    Args:
        address: HOST:PORT or unix:PATH; None takes EDGE_RAG_SERVER, else 127.0.0.1:7421.
        timeout_s: Deadline of each call with all its repetitions, seconds; None leaves it to the server.
        retry: When a call is repeated.
        credentials: For a server with TLS; None takes what the environment names or ``edge-rag connect`` kept for the
            address, and calls without TLS where there is nothing.

    Raises:
        ClientError: INVALID_ARGUMENT, the address is of neither form, or a file of credentials cannot be read.

    Example:
        >>> with Client(timeout_s=60) as client:
        ...     print(client.search("pump bearing grease").hits[0].text)
    """


class AsyncClient(Operations, AsyncDriver):
    """A connection to one daemon, for one event loop; any number of tasks may use it at once.

    Its methods are those of ``Client`` and take the same arguments. One that returns a value there is awaited here, and
    one that yields values there is gone through with ``async for``. Cancelling a task cancels its call. Files are read
    and written on other threads.

    Args:
        address: HOST:PORT or unix:PATH; None takes EDGE_RAG_SERVER, else 127.0.0.1:7421.
        timeout_s: Deadline of each call with all its repetitions, seconds; None leaves it to the server.
        retry: When a call is repeated.
        credentials: As for ``Client``.

    Raises:
        ClientError: INVALID_ARGUMENT, the address is of neither form, or a file of credentials cannot be read.

    Example:
        >>> async with AsyncClient(timeout_s=60) as client:
        ...     found = await client.search("pump bearing grease")
        ...     print(found.hits[0].text)
        ...     async with aclosing(client.ask("How often must the pump bearings be greased?")) as events:
        ...         async for event in events:
        ...             print(event)
    """
