"""The entry point of the command line: the group of commands, and how errors become messages and exit codes.

Command modules are imported when their command runs, so that ``--version`` and ``--help`` import almost nothing.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

import edge_rag
from edge_rag.cli.exit_codes import ExitCode, error_json, exit_code, is_client_error
from edge_rag.cli.output.help import write_summaries
from edge_rag.cli.output.terminal import emit, note
from edge_rag.core.address import ADDRESS_VARIABLE
from edge_rag.errors import EdgeRagError

# Set before gRPC is imported, which writes lines of its own to standard error, into JSON, too.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

_EPILOG = """\b
Examples:
  edge-rag serve &
  edge-rag ingest manuals/
  edge-rag ask "How often must the pump bearings be greased?"

\b
Exit codes:
  0    success
  1    failure; at least one document, question or check failed
  2    the command line, a setting or a field of the request is invalid
  3    no daemon was reached, or it is not ready
  4    no such collection, document or model
  5    refused: too busy, too large for the device, or not allowed
  6    the time limit was exceeded
  7    an answer was cut before it was complete in its format
  130  Ctrl-C
"""


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command that is not imported yet."""

    module: str
    help: str


_FOLDER: Final = Path(__file__).with_name("commands")
_HEADLINE: Final = re.compile(r'^(?:""")?``edge-rag (\w+)``: (.+?)(?:""")?$', re.MULTILINE)


def _find_commands() -> Mapping[str, LazyCommand]:
    commands: dict[str, LazyCommand] = {}
    for path in sorted(_FOLDER.rglob("*.py")):
        module = ".".join(path.relative_to(_FOLDER).with_suffix("").parts)
        with path.open(encoding="utf-8") as file:
            beginning = file.read(400)
        commands |= {name: LazyCommand(module, summary) for name, summary in _HEADLINE.findall(beginning)}
    return dict(sorted(commands.items()))


COMMANDS: Final = _find_commands()


class CommandLine(click.Group):
    """A group that imports a command when it runs, and ends the process with an ``ExitCode``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        command = getattr(importlib.import_module(f"edge_rag.cli.commands.{lazy.module}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands without importing them."""
        write_summaries(formatter, [(name, click.Command(name, help=lazy.help)) for name, lazy in COMMANDS.items()])

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
            code = _report_click_error(error, as_json)
        except (click.Abort, KeyboardInterrupt):
            code = _report({"code": "CANCELLED", "message": "cancelled"}, ExitCode.INTERRUPTED, as_json)
        except BrokenPipeError:
            # Python flushes standard output once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = ExitCode.FAILURE
        except Exception as error:
            if isinstance(error, EdgeRagError) or is_client_error(error):
                code = _report(error_json(error), exit_code(error), as_json)
            else:
                raise
        sys.exit(int(code or 0))


def _report(error: dict[str, str], code: ExitCode, as_json: bool) -> ExitCode:
    if as_json:
        emit({"error": error})
    else:
        note(f"edge-rag: {error['message']}", "red")
    return code


def _report_click_error(error: click.ClickException, as_json: bool) -> ExitCode:
    usage = isinstance(error, click.UsageError)
    code = ExitCode.USAGE if usage else ExitCode.FAILURE
    if not as_json and usage:
        error.show()
        return code
    return _report({"code": "USAGE" if usage else "FAILURE", "message": error.format_message()}, code, as_json)


def _set_server(_: click.Context, __: click.Parameter, given: str | None) -> None:
    if given is not None:
        os.environ[ADDRESS_VARIABLE] = given


@click.group(cls=CommandLine, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(edge_rag.__version__, prog_name="edge-rag")
@click.option(
    "--server",
    metavar="HOST:PORT",
    expose_value=False,
    callback=_set_server,
    help=f"Daemon to call, as {ADDRESS_VARIABLE}; also after the command.",
)
def main() -> None:
    """Cited answers from this machine's own documents, without a cloud."""


if __name__ == "__main__":
    main()
