"""``edge-rag mcp``: Serves the documents to an agent or editor over MCP on standard input and output."""

from __future__ import annotations

import sys

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import note

_EPILOG = """\b
Examples:
  claude mcp add documents -- edge-rag mcp
  edge-rag mcp --server box.lan:7421
  edge-rag mcp --server box.lan:7421 --url https://box.lan:7480

\b
The entry of a program that reads mcp.json:
  {"mcpServers": {"documents": {"command": "edge-rag", "args": ["mcp"]}}}
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--url",
    metavar="URL",
    help="URL of the daemon's HTTP server, for the URLs of results. [default: the one that the daemon reports, else "
    "results are named edge-rag://...]",
)
@options.server
@options.timeout
def mcp(url: str | None, server: str | None, timeout_s: float | None) -> ExitCode:
    """Serves the documents to an agent or editor over MCP on standard input and output.

    The program that uses it starts it, and ends it by closing its input. Tools: search, fetch, ask, list_documents and
    list_collections. They are those of the daemon's own endpoint /mcp, which other programs reach over HTTP.
    """
    if url is not None and not url.startswith(("http://", "https://")):
        raise click.BadParameter("must begin with http:// or https://", param_hint="--url")
    if sys.stdin.isatty():
        note("speaks MCP with the program that starts it; Ctrl-D ends it", "dim")
    import asyncio

    asyncio.run(_serve(url, server, timeout_s))
    return ExitCode.OK


async def _serve(url: str | None, server: str | None, timeout_s: float | None) -> None:
    from edge_rag.client import AsyncClient, ClientError
    from edge_rag.server.mcp.remote import RemoteBox
    from edge_rag.server.mcp.stdio import StdioServer, lines_of

    output = sys.stdout.buffer

    def write(line: bytes) -> None:
        output.write(line)
        output.flush()

    async with AsyncClient(server, timeout_s=timeout_s) as client:
        server_side = StdioServer(RemoteBox(client, url), (ClientError,), write)
        try:
            await server_side.serve(lines_of(sys.stdin.fileno()))
        except* BrokenPipeError:
            raise BrokenPipeError from None
