"""``edge-rag docs``: Lists, shows, opens and deletes documents."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode, error_json, exit_code
from edge_rag.cli.output.help import Group
from edge_rag.cli.output.terminal import counted, emit, note, print_line, printable
from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.shapes.encoder import encode

_EPILOG = """\b
Examples:
  edge-rag docs list
  edge-rag docs show operating-manual.pdf
  edge-rag docs show --text parts-list.md
  edge-rag docs show --text --start 1200 --end 1400 parts-list.md
  edge-rag docs show parts-list.md --at 1200
  edge-rag docs open operating-manual.pdf
  edge-rag docs delete maintenance-log.txt
"""
_AROUND = 400
"""Characters shown before and after a place."""


@click.group(cls=Group, epilog=_EPILOG)
def docs() -> None:
    """Lists, shows, opens and deletes documents."""


@docs.command("list", epilog="\b\nExample:\n  edge-rag docs list --collection boiler --json")
@options.collection
@options.connection
def list_documents(collection: str, server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Lists the documents of a collection."""
    with options.open_client(server, timeout_s) as client:
        documents = list(client.documents(collection=collection))
    if as_json:
        emit({"documents": [encode(info) for info in documents]})
        return ExitCode.OK
    for info in sorted(documents, key=lambda info: info.name):
        print_line(f"{info.document_id}  {info.name}  ({_summary(info)})")
    note(f"{counted(len(documents), 'document')} in collection {collection}", "dim")
    return ExitCode.OK


@docs.command("show", epilog="\b\nExample:\n  edge-rag docs show operating-manual.pdf")
@click.argument("document")
@click.option("--text", "text_only", is_flag=True, help="Print the stored text that citations point into.")
@click.option("--start", type=click.IntRange(0), default=0, help="First character of the text to show.")
@click.option("--end", type=click.IntRange(0), help="One past the last character of the text to show.")
@click.option("--at", type=click.IntRange(0), help="Show the text around this character, with its line highlighted.")
@options.collection
@options.connection
def show_document(
    document: str,
    text_only: bool,
    start: int,
    end: int | None,
    at: int | None,
    collection: str,
    server: str | None,
    timeout_s: float | None,
    as_json: bool,
) -> ExitCode:
    """Shows one document, named by name or id."""
    if at is not None:
        text_only, start, end = True, max(0, at - _AROUND), at + _AROUND
    first, past = (start, end) if text_only or as_json else (0, 0)
    with options.open_client(server, timeout_s) as client:
        stored = client.document(document, collection=collection, start=first, end=past)
    if as_json:
        emit({"document": encode(stored.info), "text": stored.text})
    elif at is not None:
        _show_place(stored.text, at - start)
    elif text_only:
        click.echo(printable(stored.text))
    else:
        shown = encode(stored.info)
        metadata = shown.pop("metadata")
        for key, value in (
            *shown.items(),
            *((f"metadata.{key}", options.format_value(value)) for key, value in metadata.items()),
        ):
            print_line(f"{key}: {'-' if value is None or value == '' else value}")
    return ExitCode.OK


def _show_place(text: str, place: int) -> None:
    if place >= len(text):
        raise click.ClickException("the document's text ends before that character")
    first = text.rfind("\n", 0, place) + 1
    past = text.find("\n", place)
    past = len(text) if past < 0 else past
    line = printable(text[first:past])
    marked = click.style(line, reverse=True) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else f"→ {line}"
    click.echo(printable(text[:first]) + marked + printable(text[past:]))


@docs.command(
    "open", epilog="\b\nExamples:\n  edge-rag docs open manual.pdf\n  edge-rag docs open manual.pdf --at 1200"
)
@click.argument("document")
@click.option("--at", type=click.IntRange(0), default=0, help="Show the page with this character of the text.")
@options.collection
@options.connection
def open_document(
    document: str, at: int, collection: str, server: str | None, timeout_s: float | None, as_json: bool
) -> ExitCode:
    """Opens one document, named by name or id, in a browser at the place of a character."""
    from edge_rag.core.address import document_url

    with options.open_client(server, timeout_s) as client:
        info = client.document(document, collection=collection, end=0).info
        address = client.status().http_address
    if not address:
        raise click.ClickException("the daemon does not serve HTTP, which shows documents; see http.enabled")
    url = document_url(address, info.document_id, collection, at, at + 1)
    if as_json:
        emit({"url": url})
        return ExitCode.OK
    click.echo(url)
    return ExitCode.OK if click.launch(url) == 0 else ExitCode.FAILURE


@docs.command("delete", epilog="\b\nExample:\n  edge-rag docs delete maintenance-log.txt parts-list.md")
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT...")
@options.collection
@options.connection
def delete_documents(
    documents: tuple[str, ...], collection: str, server: str | None, timeout_s: float | None, as_json: bool
) -> ExitCode:
    """Deletes documents, named by name or id, with their text and vectors."""
    from edge_rag.client import CallStatus, ClientError

    code = ExitCode.OK
    deleted: list[dict[str, Any]] = []
    missing: list[dict[str, Any]] = []
    with options.open_client(server, timeout_s) as client:
        for document in documents:
            try:
                info = client.delete(document, collection=collection)
            except ClientError as error:
                if error.status is not CallStatus.NOT_FOUND:
                    raise
                code = exit_code(error)
                missing.append({"document": document, "error": error_json(error)})
                if not as_json:
                    note(str(error), "red")
            else:
                deleted.append(encode(info))
                if not as_json:
                    print_line(f"deleted  {info.name}")
    if as_json:
        emit({"deleted": deleted, "errors": missing})
    return code


def _summary(info: DocumentInfo) -> str:
    pages = f"{counted(info.pages, 'page')}, " if info.pages is not None else ""
    metadata = "".join(f", {key}={options.format_value(value)}" for key, value in encode(info)["metadata"].items())
    return f"{info.media_type}, {pages}{counted(info.chunks, 'passage')}, {counted(info.size_bytes, 'byte')}{metadata}"
