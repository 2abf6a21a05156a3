"""A chat: questions of one conversation and commands, line by line."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Final
from uuid import uuid4

import click

from edge_rag.cli.batch import QuestionLine
from edge_rag.cli.exit_codes import ExitCode, error_json
from edge_rag.cli.output.answers import (
    Answer,
    cited_by_source,
    collect,
    cut_line,
    mode_line,
    searched_line,
    source_lines,
    warning_lines,
)
from edge_rag.cli.output.terminal import StreamedText, emit, note, print_line
from edge_rag.client import AskEvent, AskOptions, CallStatus, Client, ClientError, PassagesReceived
from edge_rag.core.query import AnswerMode

MODES: Final = tuple(AnswerMode)
"""Modes of an answer in a chat."""

HELP: Final = """\
/sources          the sources of the last answer, with what was quoted
/new              begin a new conversation: forget the questions so far
/mode MODE        answer in mode quote, cite, free or extract from now on
/collection NAME  ask another collection, in a new conversation
/help             this list
/quit             end the chat, like Ctrl-D
Ctrl-C stops an answer. Any other line is a question, which may leave something to those before it."""

_COMMAND: Final = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.IGNORECASE | re.DOTALL)


class _Quit(Exception):
    """Ends the chat."""


class Chat:
    """One conversation at a time with a daemon."""

    def __init__(self, client: Client, options: AskOptions, as_json: bool, typed: bool) -> None:
        self._conversation = client.conversation(options)
        self._as_json = as_json
        self._typed = typed
        self._last: Answer | None = None
        self._commands: dict[str, Callable[[str], None]] = {
            "sources": self._show_sources,
            "new": self._begin_anew,
            "mode": self._set_mode,
            "collection": self._set_collection,
            "help": lambda _: self._print(HELP.splitlines()),
            "quit": self._quit,
        }

    def run(self, lines: Iterable[QuestionLine]) -> ExitCode:
        """Answers lines until they end or one is ``/quit``.

        Returns:
            ``OK``, or ``FAILURE`` if lines that nobody types failed.
        """
        failed = False
        try:
            for line in lines:
                try:
                    self._take(line)
                except ClientError as error:
                    if not error.connected:
                        raise
                    failed = True
                    self._report(line.text, error)
                except KeyboardInterrupt:
                    if not self._typed:
                        raise
                    note("\nstopped", "dim")
        except _Quit:
            pass
        return ExitCode.FAILURE if failed and not self._typed else ExitCode.OK

    def _take(self, line: QuestionLine) -> None:
        if line.error is not None:
            raise line.error
        command = _COMMAND.fullmatch(line.text)
        if command is None:
            self._ask(line.text)
            return
        run = self._commands.get(command[1].lower())
        if run is None:
            raise _unusable(f"there is no command /{command[1]}", "/help lists the commands")
        run((command[2] or "").strip())

    def _ask(self, question: str) -> None:
        request_id = uuid4().hex
        self._conversation.options = replace(self._conversation.options, request_id=request_id)
        streamed = StreamedText()
        write = (lambda _: None) if self._as_json else streamed.write
        try:
            with closing(self._conversation.ask(question)) as events:
                answer = collect(request_id, question, self._noting(question, events), write)
        except ClientError:
            if not self._as_json:
                streamed.end()
            raise
        self._last = answer
        if self._as_json:
            emit(answer.as_json())
            return
        streamed.end()
        if lines := source_lines(answer):
            self._print(["", *lines])
        for text in warning_lines(answer):
            note(text, "yellow")
        for text in filter(None, (cut_line(answer.finished), mode_line(answer))):
            note(text, "dim")
        click.echo()

    def _noting(self, question: str, events: Generator[AskEvent, None, None]) -> Iterator[AskEvent]:
        for event in events:
            if isinstance(event, PassagesReceived):
                searched = searched_line(question, event.standalone_question, event.did_you_mean)
                if searched and not self._as_json:
                    note(searched, "dim")
            yield event

    def _report(self, question: str, error: ClientError) -> None:
        if self._as_json:
            emit({"question": question, "error": error_json(error)})
        else:
            note(str(error), "red")

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            if self._as_json:
                note(line)
            else:
                print_line(line)

    def _show_sources(self, _: str) -> None:
        if self._last is None:
            raise _unusable("there is no answer yet", "Ask a question first")
        cited = cited_by_source(self._last)
        for number, (source, citations) in enumerate(cited.items(), start=1):
            passages = self._last.found.passages
            unnamed = {each.passage for each in citations if not each.section}  # a daemon of an earlier version
            sections = {passages[place].context for place in unnamed if place < len(passages)}
            texts = dict.fromkeys(line for each in citations for line in each.text.splitlines())
            self._print([f"[{number}] {source}"])
            self._print(f"    {' > '.join(section)}" for section in sorted(sections) if section)
            self._print(f"    | {text}" for text in texts)
        if not cited:
            self._print(source_lines(self._last) or ["The last answer cites nothing."])

    def _begin_anew(self, _: str) -> None:
        self._conversation.clear()
        self._last = None
        note("a new conversation begins", "dim")

    def _set_mode(self, name: str) -> None:
        modes = {mode.value: mode for mode in MODES}
        if name not in modes:
            raise _unusable(f"/mode needs one of {', '.join(modes)}", "")
        self._conversation.options = replace(self._conversation.options, mode=modes[name])
        note(f"answers are in mode {name} from now on", "dim")

    def _set_collection(self, name: str) -> None:
        if not name:
            raise _unusable("/collection needs the name of a collection", "")
        self._conversation.options = replace(self._conversation.options, collection=name)
        self._begin_anew("")

    def _quit(self, _: str) -> None:
        raise _Quit


def _unusable(problem: str, advice: str) -> ClientError:
    return ClientError(CallStatus.INVALID_ARGUMENT, problem, advice=advice)
