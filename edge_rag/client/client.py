"""The two clients.

One description of a call, which both clients have as a method.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import update_wrapper
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from edge_rag.client.async_driver import AsyncDriver
from edge_rag.client.call_flow import CallOptions, Flow, Streaming
from edge_rag.client.calls import admin as operating
from edge_rag.client.calls import documents as keeping
from edge_rag.client.calls import ingest as ingesting
from edge_rag.client.calls import rag as answering
from edge_rag.client.sync_driver import BlockingDriver

P = ParamSpec("P")
T = TypeVar("T")


class Single(Generic[P, T]):
    """A call with one result: a method that returns it, or that is awaited for it.

    Args:
        flow: What the call does; its arguments after the terms are those of the method.
    """

    def __init__(self, flow: Callable[Concatenate[CallOptions, P], Flow[T]]) -> None:
        def method(client: BlockingDriver | AsyncDriver, *args: P.args, **kwargs: P.kwargs) -> Any:
            return client.complete(flow(client.terms, *args, **kwargs))

        self._method = _described(method, flow)

    @overload
    def __get__(self, client: BlockingDriver, owner: type[BlockingDriver]) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncDriver, owner: type[AsyncDriver]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: type[object]) -> Callable[..., Any]: ...
    def __get__(self, client: BlockingDriver | AsyncDriver | None, owner: type[object]) -> Callable[..., Any]:
        return self._method if client is None else MethodType(self._method, client)


class Streamed(Generic[P, T]):
    """A call that tells one value after the other: a method that returns a generator, or an asynchronous one.

    Args:
        flow: What the call does; its arguments after the terms are those of the method.
    """

    def __init__(self, flow: Callable[Concatenate[CallOptions, P], Streaming[T]]) -> None:
        def method(client: BlockingDriver | AsyncDriver, *args: P.args, **kwargs: P.kwargs) -> Any:
            return client.iterate(flow(client.terms, *args, **kwargs))

        self._method = _described(method, flow)

    @overload
    def __get__(self, client: BlockingDriver, owner: type[BlockingDriver]) -> Callable[P, Generator[T, None, None]]: ...
    @overload
    def __get__(self, client: AsyncDriver, owner: type[AsyncDriver]) -> Callable[P, AsyncGenerator[T, None]]: ...
    @overload
    def __get__(self, client: None, owner: type[object]) -> Callable[..., Any]: ...
    def __get__(self, client: BlockingDriver | AsyncDriver | None, owner: type[object]) -> Callable[..., Any]:
        return self._method if client is None else MethodType(self._method, client)


def _described(method: Callable[..., Any], flow: Callable[..., Any]) -> Callable[..., Any]:
    """Lets ``help`` show a method like the flow it goes through."""
    update_wrapper(method, flow)
    signature = inspect.signature(flow)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [own, *list(signature.parameters.values())[1:]]
    described: Any = method
    described.__signature__ = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    return method


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
