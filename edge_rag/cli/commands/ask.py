"""``edge-rag ask``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from edge_rag.cli import options
from edge_rag.cli.batch import BATCH_RETRY, answer_file
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.answers import Answer, citation_lines, finish_line, gather
from edge_rag.cli.output.terminal import emit, notes, visible, write
from edge_rag.client import AskOptions, Client, ClientError
from edge_rag.core.query import AnswerMode, Priority

_EPILOG = """\b
Examples:
  edge-rag ask "How often must the pump bearings be greased?"
  edge-rag ask --mode cite "How do I start the pump after an emergency stop?"
  edge-rag ask --sentences 3 "What do I do when the gas alarm sounds?"
  edge-rag ask --filter 'tag = "pump" and not draft = true' "How often is it greased?"
  edge-rag ask --json "Who is the duty electrician?" | jq -r .answer
  edge-rag ask --questions questions.txt --concurrency 8 > answers.jsonl
  edge-rag ask --regex "[0-9,]+ (hours|days)" "How often must the pump bearings be greased?"
  edge-rag ask --json-schema report.schema.json --max-tokens 500 "Fill in the greasing report."
"""


@click.command(epilog=_EPILOG)
@click.argument("question", required=False)
@options.collection
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in AnswerMode]),
    help="quote: every word is a sentence of a cited document; cite: the model writes, and each sentence is checked "
    "against the documents; free: the model writes. [default: the daemon's]",
)
@click.option("--sentences", type=click.IntRange(1, 8), help="Most sentences to quote. [default: 1]")
@click.option("--passages", type=click.IntRange(1, 32), help="Most passages put before the model. [default: 4]")
@click.option("--max-tokens", type=click.IntRange(1, 8192), help="Most tokens of the answer. [default: 256]")
@click.option("--temperature", type=click.FloatRange(0, 2), help="0 takes the likeliest token. [default: 0]")
@click.option("--top-k", type=click.IntRange(0), help="Draw from the k likeliest tokens; 0 is all. [default: 0]")
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), help="Draw from this much probability.")
@click.option("--repetition-penalty", type=click.FloatRange(1, 10), help="Makes repeating less likely; 1 is off.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="The same seed draws the same answer.")
@click.option("--stop", multiple=True, metavar="TEXT", help="Ends the answer before this text; may be repeated.")
@click.option(
    "--priority",
    type=click.Choice([priority.name.lower() for priority in Priority]),
    help="Who goes first when many ask. [default: interactive]",
)
@click.option(
    "--json-schema",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The answer is JSON that validates under the schema in this file, unless --max-tokens cuts it. Mode free.",
)
@click.option(
    "--regex",
    metavar="PATTERN",
    help="The whole answer matches this regular expression, unless --max-tokens cuts it. Mode free.",
)
@click.option("--request-id", metavar="ID", help="Name for the log and for audit --request. [default: a random one]")
@options.filter_text
@options.questions
@options.concurrency
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
    json_schema: Path | None,
    regex: str | None,
    request_id: str | None,
    filter_text: str | None,
    questions: str | None,
    concurrency: int,
    server: str | None,
    timeout_s: float | None,
    as_json: bool,
) -> ExitCode:
    """Asks a question of the documents; the answer streams with its sources."""
    options.one_question(question, questions)
    if request_id is not None and questions is not None:
        raise click.UsageError("--request-id names one question; with --questions each gets a name of its own.")
    wanted = AskOptions(
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
        filter=options.read_filter(filter_text),
    )
    if questions is not None:
        with Client(server, timeout_s=timeout_s, retry=BATCH_RETRY) as client:

            def answer(text: str) -> dict[str, Any]:
                named = replace(wanted, request_id=uuid4().hex)
                return _gather(client, text, named, lambda _: None).as_json()

            return answer_file(questions, concurrency, answer)
    with Client(server, timeout_s=timeout_s) as client:
        _ask_one(client, question or "", replace(wanted, request_id=request_id or uuid4().hex), as_json)
    return ExitCode.OK


def _read(schema: Path) -> str:
    try:
        return schema.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{schema}: {error}", param_hint="--json-schema") from error


def _ask_one(client: Client, question: str, wanted: AskOptions, as_json: bool) -> None:
    if as_json:
        emit(_gather(client, question, wanted, lambda _: None).as_json())
        return
    try:
        answer = _gather(client, question, wanted, write)
    except ClientError as error:
        if error.connected:
            notes().print(visible(f"request {wanted.request_id}"), style="dim")
        raise
    click.echo()
    if answer.citations:
        click.echo()
        for line in citation_lines(answer.citations):
            click.echo(visible(line))
    notes().print(f"\n{finish_line(answer.finished)}\nrequest {answer.request_id}", style="dim")


def _gather(client: Client, question: str, wanted: AskOptions, on_text: Callable[[str], None]) -> Answer:
    return gather(wanted.request_id or "", question, client.ask(question, wanted), on_text)
