"""Questions and searches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import cast

import grpc

from edge_rag.api.v1 import rag_pb2
from edge_rag.client import replies, requests
from edge_rag.client.channel import AnswerCall
from edge_rag.client.connection import Connection
from edge_rag.client.failures import client_error, unreadable_reply
from edge_rag.client.requests import AskOptions, SearchOptions
from edge_rag.client.values import (
    AskEvent,
    SearchReply,
)
from edge_rag.core.answer import Finished


class AnswerCalls(Connection):
    """Asks and searches."""

    def ask(self, question: str, options: AskOptions | None = None) -> Iterator[AskEvent]:
        """Asks a question.

        Args:
            question: The question.
            options: How it is to be answered.

        Yields:
            ``PassagesReceived`` first, then ``TextDelta``, ``Citation`` and ``Unsupported`` as they come, ``Finished``
            last. Closing the iterator early cancels the call.

        Raises:
            ClientError: The call failed; events already yielded stand.
        """
        request = requests.ask_request(question, options or AskOptions())
        first, rest = self._repeat(lambda timeout_s: self._start_answer(request, timeout_s))
        try:
            event: AskEvent | None = None
            for message in chain((first,), rest):
                event = replies.ask_event(message)
                if event is not None:
                    yield event
            if not isinstance(event, Finished):
                raise unreadable_reply("the answer ended without its last message")
        except grpc.RpcError as failure:
            raise client_error(failure, self.address) from failure
        finally:
            rest.cancel()

    def search(self, query: str, options: SearchOptions | None = None) -> SearchReply:
        """Finds passages.

        Raises:
            ClientError: The call failed.
        """
        request = requests.search_request(query, options or SearchOptions())
        return replies.search_reply(self._repeat(lambda timeout_s: self._rag.Search(request, timeout=timeout_s)))

    def _start_answer(
        self, request: rag_pb2.AskRequest, timeout_s: float | None
    ) -> tuple[rag_pb2.AskResponse, AnswerCall]:
        call = cast(AnswerCall, self._rag.Ask(request, timeout=timeout_s))
        try:
            return next(call), call
        except StopIteration:
            raise unreadable_reply("the answer ended without a message") from None
        except BaseException:
            call.cancel()
            raise
