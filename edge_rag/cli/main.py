"""The command line's entry: the group of commands, and how errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

import edge_rag
from edge_rag.cli.commands.access.connect import connect
from edge_rag.cli.commands.access.discover import discover
from edge_rag.cli.commands.access.pair import pair
from edge_rag.cli.commands.access.tls import tls
from edge_rag.cli.commands.access.token import token
from edge_rag.cli.commands.ask import ask
from edge_rag.cli.commands.audit import audit
from edge_rag.cli.commands.doctor import doctor
from edge_rag.cli.commands.documents.backup import backup, restore
from edge_rag.cli.commands.documents.collections import collections
from edge_rag.cli.commands.documents.docs import docs
from edge_rag.cli.commands.documents.ingest import ingest
from edge_rag.cli.commands.documents.jobs import jobs
from edge_rag.cli.commands.documents.watch import watch
from edge_rag.cli.commands.models.group import models
from edge_rag.cli.commands.profile import profile
from edge_rag.cli.commands.search import search
from edge_rag.cli.commands.serve import serve
from edge_rag.cli.commands.status import status
from edge_rag.cli.commands.usage import usage
from edge_rag.cli.exit_codes import ExitCode, error_object, exit_code
from edge_rag.cli.output.terminal import emit, notes, visible
from edge_rag.client import ClientError
from edge_rag.errors import EdgeRagError

_EPILOG = """\b
Examples:
  edge-rag serve &
  edge-rag ingest manuals/
  edge-rag ask "How often must the pump bearings be greased?"

\b
Exit codes:
  0    done
  1    failed; at least one document, question or check did
  2    the command line, a setting or a field of the request is unusable
  3    no daemon was reached, or it is not ready
  4    no such collection, document or model
  5    refused: too busy, too large for the device, or not allowed
  6    out of time
  130  Ctrl-C
"""


class CommandLine(click.Group):
    """The group of commands; ends the process with one of ``ExitCode``."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *rest: Any, **settings: Any) -> Any:
        """Runs a command and exits."""
        arguments = list(sys.argv[1:] if args is None else args)
        settings["standalone_mode"] = False
        if os.environ.get("NO_COLOR"):
            settings["color"] = False
        as_json = "--json" in arguments
        try:
            code = super().main(arguments, prog_name, *rest, **settings)
        except click.ClickException as error:
            code = _fail_click(error, as_json)
        except (EdgeRagError, ClientError) as error:
            code = _fail(error_object(error), exit_code(error), as_json)
        except (click.Abort, KeyboardInterrupt):
            code = _fail({"code": "CANCELLED", "message": "cancelled"}, ExitCode.INTERRUPTED, as_json)
        except BrokenPipeError:
            # Python flushes standard output once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = ExitCode.FAILURE
        sys.exit(int(code or 0))


def _fail(error: dict[str, str], code: ExitCode, as_json: bool) -> ExitCode:
    if as_json:
        emit({"error": error})
    else:
        notes().print(visible(f"edge-rag: {error['message']}"), style="red")
    return code


def _fail_click(error: click.ClickException, as_json: bool) -> ExitCode:
    usage = isinstance(error, click.UsageError)
    code = ExitCode.USAGE if usage else ExitCode.FAILURE
    if not as_json and usage:
        error.show()
        return code
    return _fail({"code": "USAGE" if usage else "FAILURE", "message": error.format_message()}, code, as_json)


@click.group(cls=CommandLine, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(edge_rag.__version__, prog_name="edge-rag")
def main() -> None:
    """Cited answers from this box's own documents, without a cloud."""


for command in (
    serve,
    ingest,
    watch,
    jobs,
    backup,
    restore,
    ask,
    search,
    docs,
    collections,
    status,
    audit,
    usage,
    models,
    token,
    tls,
    pair,
    connect,
    discover,
    doctor,
    profile,
):
    main.add_command(command)


if __name__ == "__main__":
    main()
