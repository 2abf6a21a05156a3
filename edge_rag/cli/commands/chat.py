"""``edge-rag chat``: Answers questions of a conversation, each of which may refer to earlier ones."""

from __future__ import annotations

import sys

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode

_EPILOG = """\b
Examples:
  edge-rag chat
  edge-rag chat --collection manuals --mode cite
  edge-rag chat --filter 'tag = "pump"' --sentences 3
  printf '%s\\n' "How often are the bearings greased?" "With what?" | edge-rag chat --json | jq -r .answer

\b
Lines that begin with / are commands: /sources, /new, /mode, /collection, /help and /quit. Ctrl-C stops an answer and
keeps the chat, Ctrl-D ends it. The daemon keeps nothing of a conversation. Typed lines are kept in
~/.local/state/edge-rag/chat-history, which only its owner may read, unless there is --no-history.

\b
Exit codes: 0, and where nobody types the questions 1 if one failed; 3 if the daemon is not reached any more.
"""


@click.command(epilog=_EPILOG)
@options.collection
@click.option(
    "--mode",
    type=click.Choice(["quote", "cite", "free"]),
    help="How answers are written, as for edge-rag ask. [default: the daemon's]",
)
@click.option("--sentences", type=click.IntRange(1, 8), help="Maximum number of quoted sentences, as for edge-rag ask.")
@click.option("--max-tokens", type=click.IntRange(1, 8192), help="Maximum length of an answer, as for edge-rag ask.")
@options.filter_text
@click.option("--no-history", is_flag=True, help="Neither read nor keep typed lines.")
@options.connection
def chat(
    collection: str,
    mode: str | None,
    sentences: int | None,
    max_tokens: int | None,
    filter_text: str | None,
    no_history: bool,
    server: str | None,
    timeout_s: float | None,
    as_json: bool,
) -> ExitCode:
    """Answers questions of a conversation, each of which may refer to earlier ones.

    At a terminal, lines can be edited and earlier ones found again. Otherwise standard input has one question a line.
    """
    from edge_rag.cli.chat.history import History, history_path
    from edge_rag.cli.chat.lines import piped_lines, typed_lines
    from edge_rag.cli.chat.session import Chat
    from edge_rag.cli.output.terminal import note
    from edge_rag.client import AskOptions
    from edge_rag.core.query import AnswerMode

    ask_options = AskOptions(
        collection=collection,
        mode=AnswerMode(mode) if mode else None,
        max_sentences=sentences,
        max_tokens=max_tokens,
        filter=options.read_filter(filter_text),
    )
    typed = sys.stdin.isatty() and not as_json
    with options.open_client(server, timeout_s) as client:
        session = Chat(client, ask_options, as_json, typed)
        if not typed:
            return session.run(piped_lines())
        note(f"Ask about the documents of collection {collection}. /help lists commands, Ctrl-D ends the chat.", "dim")
        return session.run(typed_lines(None if no_history else History(history_path())))
