"""One description of a call, which both clients have as a method."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import update_wrapper
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from edge_rag.client.async_driver import AsyncDriver
from edge_rag.client.call_flow import Flow, Telling, Terms
from edge_rag.client.sync_driver import BlockingDriver

P = ParamSpec("P")
T = TypeVar("T")


class Single(Generic[P, T]):
    """A call with one result: a method that returns it, or that is awaited for it.

    Args:
        flow: What the call does; its arguments after the terms are those of the method.
    """

    def __init__(self, flow: Callable[Concatenate[Terms, P], Flow[T]]) -> None:
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

    def __init__(self, flow: Callable[Concatenate[Terms, P], Telling[T]]) -> None:
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
