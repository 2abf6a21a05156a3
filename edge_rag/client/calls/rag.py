"""Questions and searches."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from edge_rag.api.v1 import rag_pb2
from edge_rag.client.calls.conversation import AsyncConversation
from edge_rag.client.connection import AsyncConnection
from edge_rag.client.errors import invalid_argument, unreadable_reply
from edge_rag.client.transport import AsyncReplies
from edge_rag.core.answer import Finished
from edge_rag.wire.answers import event_from_message, search_reply_from_message
from edge_rag.wire.requests import ask_to_message, search_to_message
from edge_rag.wire.types import AskEvent, AskOptions, SearchOptions, SearchReply


class AsyncRagCalls(AsyncConnection):
    """Calls of the ``Rag`` service."""

    async def ask(self, question: str, options: AskOptions | None = None) -> AsyncGenerator[AskEvent, None]:
        """Asks a question and streams the answer.

        The call is repeated, as the retry policy says, until the first event has arrived, and not from then on. Closing
        the generator early cancels the call, and the daemon stops writing the answer.

        Args:
            question: The question, 1 to 8,192 characters unless the daemon is configured otherwise.
            options: How to answer; None takes the daemon's defaults.

        Yields:
            ``PassagesReceived`` first, then ``TextDelta``, ``Citation`` and ``Unsupported`` as they arrive, and
            ``Finished`` last.

        Raises:
            InvalidArgument: The question or an option is unusable.
            NotFound: There is no such collection.
            Busy: The daemon's queue is full, for longer than the retry policy waits.
            AnswerTruncated: The answer was cut before it was complete in its format. Its text so far was yielded.
            DeadlineExceeded: The answer took too long.
            ClientError: The call failed otherwise. Events that were yielded before stay valid.

        Example:
            >>> async for event in client.ask("How often must the pump bearings be greased?"):
            ...     if isinstance(event, TextDelta):
            ...         print(event.text, end="", flush=True)
        """
        with invalid_argument():
            request = ask_to_message(question, options or AskOptions())
        replies, message = await self._repeat(lambda timeout_s: self._first_reply(request, timeout_s))
        finished = False
        async with replies:
            while message is not None:
                event = event_from_message(message)
                if event is not None:
                    finished = isinstance(event, Finished)
                    yield event
                message = await anext(replies, None)
        if not finished:
            raise unreadable_reply("the answer ended without its last message")

    def conversation(self, options: AskOptions | None = None) -> AsyncConversation:
        """Begins a conversation, whose questions may leave something to the turns before them. Makes no call.

        Args:
            options: How to answer; None takes the daemon's defaults. Its turns are the beginning of the conversation.

        Example:
            >>> conversation = client.conversation(AskOptions(max_sentences=2))
            >>> for question in ("How often must the pump bearings be greased?", "With which grease?"):
            ...     async for event in conversation.ask(question):
            ...         if isinstance(event, TextDelta):
            ...             print(event.text, end="", flush=True)
        """
        return AsyncConversation(self.ask, options or AskOptions())

    async def search(self, query: str, options: SearchOptions | None = None) -> SearchReply:
        """Finds passages, without writing an answer.

        Args:
            query: What to find, 1 to 8,192 characters unless the daemon is configured otherwise.
            options: How to search; None takes the daemon's defaults.

        Example:
            >>> found = await client.search("seal water pressure", SearchOptions(limit=3))
            >>> for hit in found.hits:
            ...     print(hit.document, hit.start, hit.end, hit.score)
        """
        with invalid_argument():
            request = search_to_message(query, options or SearchOptions())
        return search_reply_from_message(await self._call(self._transport.stubs.rag.Search, request))

    async def _first_reply(
        self, request: rag_pb2.AskRequest, timeout_s: float | None
    ) -> tuple[AsyncReplies[rag_pb2.AskResponse], rag_pb2.AskResponse | None]:
        replies = self._transport.stream(self._transport.stubs.rag.Ask, request, timeout_s)
        try:
            first = await anext(replies, None)
            if first is None:
                raise unreadable_reply("the answer ended without a message")
        except BaseException:
            replies.close()
            raise
        return replies, first
