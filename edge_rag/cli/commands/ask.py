"""``edge-rag ask``: Answers a question from the documents and cites its sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import StreamedText, emit, note, print_line, shows_times
from edge_rag.core.query import AnswerMode, Priority

if TYPE_CHECKING:
    from edge_rag.cli.output.answers import Answer
    from edge_rag.client import AskOptions, Client

_EPILOG = """\b
Examples:
  edge-rag ask "How often must the pump bearings be greased?"
  edge-rag ask --mode cite "How do I start the pump after an emergency stop?"
  edge-rag ask --sentences 3 "What do I do when the gas alarm sounds?"
  edge-rag ask --filter 'tag = "pump" and not draft = true' "How often is it greased?"
  edge-rag ask --json "Who is the duty electrician?" | jq -r .answer
  edge-rag ask --questions questions.txt --concurrency 8 > answers.jsonl
  edge-rag ask --regex "[1-4]" "Which passage answers this: How often must the pump bearings be greased?"
  edge-rag ask --json-schema report.schema.json --max-tokens 500 "Fill in the greasing report."
  edge-rag ask --mode extract "How often must the pump bearings be greased?"
  edge-rag ask --mode extract --schema '{"type": "object", "properties": {"interval": {"type": "string"}}}' \\
    "How often must the pump bearings be greased?"
"""


@click.command(epilog=_EPILOG)
@click.argument("question", required=False)
@options.collection
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in AnswerMode]),
    help="quote: the answer is sentences of cited documents; cite: the model writes, and each sentence is checked "
    "against the documents; free: the model writes, unchecked and without citations; extract: one value of the "
    "documents, or a --schema filled with such values. [default: the daemon's]",
)
@click.option(
    "--sentences",
    type=click.IntRange(1, 8),
    help="Maximum number of quoted points. [default: as many as the answer needs]",
)
@click.option("--passages", type=click.IntRange(1, 32), help="Maximum number of passages in the prompt. [default: 4]")
@click.option("--max-tokens", type=click.IntRange(1, 8192), help="Maximum length of the answer, tokens. [default: 256]")
@click.option("--temperature", type=click.FloatRange(0, 2), help="Sampling temperature; 0 is greedy. [default: 0]")
@click.option("--top-k", type=click.IntRange(0), help="Sample from the k most likely tokens; 0 is all. [default: 0]")
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    help="Sample from tokens with this total probability.",
)
@click.option("--repetition-penalty", type=click.FloatRange(1, 10), help="Penalty for repeated tokens; 1 is off.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="Seed of sampling: equal seeds, equal answers.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End the answer before this text; may be repeated.")
@click.option(
    "--priority",
    type=click.Choice([priority.name.lower() for priority in Priority]),
    help="Scheduling class under load. [default: interactive]",
)
@click.option(
    "--schema",
    "--json-schema",
    "json_schema",
    metavar="FILE|JSON",
    help="The answer is JSON that validates against this schema: in mode free, the default here, as the model writes "
    "it, where one that --max-tokens cuts is an error; in mode extract filled with values of the documents.",
)
@click.option(
    "--regex",
    metavar="PATTERN",
    help="Constrain the whole answer to this regular expression. Mode free, likewise.",
)
@click.option("--allow-truncated", is_flag=True, help="Print what --max-tokens leaves of an answer with a format.")
@click.option("--request-id", metavar="ID", help="Id in the log and for audit --request. [default: a random one]")
@options.filter_text
@options.questions
@options.concurrency
@options.verbosity
@options.connection
def ask(
    question: str | None,
    collection: str,
    mode: str | None,
    sentences: int | None,
    passages: int | None,
    max_tokens: int | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    repetition_penalty: float | None,
    seed: int | None,
    stop: tuple[str, ...],
    priority: str | None,
    json_schema: str | None,
    regex: str | None,
    allow_truncated: bool,
    request_id: str | None,
    filter_text: str | None,
    questions: str | None,
    concurrency: int,
    verbose: bool,
    quiet: bool,
    server: str | None,
    timeout_s: float | None,
    as_json: bool,
) -> ExitCode:
    """Answers a question from the documents and cites its sources."""
    from edge_rag.client import AskOptions

    options.require_one_question(question, questions)
    if request_id is not None and questions is not None:
        raise click.UsageError("--request-id is for one question; with --questions each gets a random id.")
    ask_options = AskOptions(
        collection=collection,
        mode=AnswerMode(mode) if mode else None,
        max_sentences=sentences,
        passages=passages,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        stop=stop,
        priority=Priority[priority.upper()] if priority else None,
        json_schema=None if json_schema is None else _read(json_schema),
        regex=regex,
        allow_truncated=allow_truncated,
        filter=options.read_filter(filter_text),
    )
    if questions is not None:
        from edge_rag.cli.batch import BATCH_RETRY_S, answer_file

        with options.open_client(server, timeout_s, BATCH_RETRY_S) as client:

            def answer(text: str) -> dict[str, Any]:
                return _answer(client, text, replace(ask_options, request_id=uuid4().hex), lambda _: None).as_json()

            return answer_file(questions, concurrency, answer)
    with options.open_client(server, timeout_s) as client:
        one = replace(ask_options, request_id=request_id or uuid4().hex)
        answered = _ask_one(client, question or "", one, as_json, verbose, quiet)
        if not answered.found.passages and not quiet:
            options.note_missing_fields(client, collection, ask_options.filter)
    return ExitCode.OK


def _read(schema: str) -> str:
    if schema.lstrip().startswith("{"):
        return schema
    try:
        return Path(schema).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{schema}: {error}", param_hint="--schema") from error


def _ask_one(
    client: Client, question: str, ask_options: AskOptions, as_json: bool, verbose: bool, quiet: bool
) -> Answer:
    from edge_rag.cli.output.answers import (
        cut_line,
        finish_line,
        mode_line,
        searched_line,
        source_lines,
        warning_lines,
    )
    from edge_rag.client import ClientError

    if as_json:
        answer = _answer(client, question, ask_options, lambda _: None)
        emit(answer.as_json())
        return answer
    streamed = StreamedText()
    # A cut answer is not in its format. It is not printed, so that no program reads it as if it were.
    formatted = ask_options.json_schema is not None or ask_options.regex is not None
    to_its_end = formatted and not ask_options.allow_truncated
    try:
        answer = _answer(client, question, ask_options, (lambda _: None) if to_its_end else streamed.write)
    except ClientError as error:
        if error.connected:
            note(f"request {ask_options.request_id}", "dim")
        raise
    if to_its_end:
        streamed.write(answer.text)
    streamed.end()
    if lines := source_lines(answer):
        click.echo()
        for line in lines:
            print_line(line)
    if quiet:
        return answer
    if warnings := warning_lines(answer):
        note("\n" + "\n".join(warnings), "yellow")
    if cut := cut_line(answer.finished):
        note(f"\n{cut}", "yellow")
    searched = searched_line(question, answer.found.standalone_question, answer.found.did_you_mean)
    details = [searched, mode_line(answer)]
    if shows_times(verbose):
        details.append(f"{finish_line(answer.finished)} · request {answer.request_id}")
    if any(details):
        note("\n" + "\n".join(filter(None, details)), "dim")
    return answer


def _answer(client: Client, question: str, ask_options: AskOptions, on_text: Callable[[str], None]) -> Answer:
    from edge_rag.cli.output.answers import collect

    return collect(ask_options.request_id or "", question, client.ask(question, ask_options), on_text)
