"""``edge-rag search``: Finds passages without generating an answer."""

from __future__ import annotations

from itertools import starmap, zip_longest
from typing import TYPE_CHECKING, Any

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.answers import explanation_table, format_source, searched_line, stage_line
from edge_rag.cli.output.terminal import emit, note, print_block, print_line, shows_times
from edge_rag.core.shapes.encoder import encode
from edge_rag.core.shapes.views import FoundHits, SearchHit, SearchTimings

if TYPE_CHECKING:
    from edge_rag.client import SearchReply

_EPILOG = """\b
Examples:
  edge-rag search "seal water pressure"
  edge-rag search --limit 3 --no-rerank "hydrogen sulphide"
  edge-rag search --filter 'year >= 2020 and name ~ "pumps/*"' "seal water"
  edge-rag search --explain "hydrogen sulphide"
  edge-rag search --json "generator oil" | jq -r '.hits[].document'
  edge-rag search --questions questions.txt > hits.jsonl
"""


@click.command(epilog=_EPILOG)
@click.argument("query", required=False)
@options.collection
@click.option("--limit", type=click.IntRange(1, 100), help="Maximum number of hits. [default: 10]")
@click.option("--rerank/--no-rerank", default=None, help="Order the hits with the reranker. [default: rerank]")
@options.filter_text
@click.option("--explain", is_flag=True, help="Show how each hit was ranked: ranks, scores, boost, merged chunks.")
@options.questions
@options.concurrency
@options.verbosity
@options.connection
def search(
    query: str | None,
    collection: str,
    limit: int | None,
    rerank: bool | None,
    filter_text: str | None,
    explain: bool,
    questions: str | None,
    concurrency: int,
    verbose: bool,
    quiet: bool,
    server: str | None,
    timeout_s: float | None,
    as_json: bool,
) -> ExitCode:
    """Finds passages without generating an answer."""
    from edge_rag.client import SearchOptions

    options.require_one_question(query, questions)
    search_options = SearchOptions(
        collection=collection,
        limit=limit,
        rerank=rerank,
        filter=options.read_filter(filter_text),
        explain=explain,
    )
    if questions is not None:
        from edge_rag.cli.batch import BATCH_RETRY_S, answer_file

        with options.open_client(server, timeout_s, BATCH_RETRY_S) as client:
            return answer_file(questions, concurrency, lambda text: _as_json(text, client.search(text, search_options)))
    text = query or ""
    with options.open_client(server, timeout_s) as client:
        reply = client.search(text, search_options)
        if not reply.hits and not quiet:
            options.note_missing_fields(client, collection, search_options.filter)
    if as_json:
        emit(_as_json(text, reply))
    else:
        _show(text, reply, verbose, quiet)
    return ExitCode.OK


def _as_json(question: str, reply: SearchReply) -> dict[str, Any]:
    hits = starmap(SearchHit.explained, zip_longest(reply.hits, reply.explanations))
    times = SearchTimings(reply.stages)
    found: dict[str, Any] = encode(
        FoundHits(question, reply.standalone_question, reply.did_you_mean, tuple(hits), times)
    )
    return found


def _show(question: str, reply: SearchReply, verbose: bool, quiet: bool) -> None:
    if not quiet and (searched := searched_line(question, reply.standalone_question, reply.did_you_mean)):
        note(searched, "dim")
    for number, hit in enumerate(reply.hits, start=1):
        headings = f"  ({' > '.join(hit.context)})" if hit.context else ""
        where = format_source(hit.document, hit.page, hit.start, hit.end)
        print_line(f"{number}. {where}, score {hit.score:.3f}{headings}")
        print_block(hit.text, "   ")
        if hit.duplicates:
            print_line(f"   also in: {', '.join(duplicate.document for duplicate in hit.duplicates)}")
        click.echo()
    if reply.explanations:
        for line in explanation_table(reply.explanations):
            click.echo(line)
    if quiet:
        return
    if not reply.hits:
        note("nothing found")
    if shows_times(verbose):
        note(stage_line(reply.stages), "dim")
