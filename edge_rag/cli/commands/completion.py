"""``edge-rag completion``: Prints the completion of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from edge_rag.cli import options
from edge_rag.cli.output.terminal import emit


@click.command(
    epilog="""\b
Examples:
  edge-rag completion bash > ~/.local/share/bash-completion/completions/edge-rag
  edge-rag completion zsh > ~/.zfunc/_edge-rag        # a folder of fpath
  edge-rag completion fish > ~/.config/fish/completions/edge-rag.fish
"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@options.as_json
@click.pass_context
def completion(context: click.Context, shell: str, as_json: bool) -> None:
    """Prints the completion of a shell. It completes commands, options and their values."""
    made = get_completion_class(shell)
    assert made is not None
    script = made(context.find_root().command, {}, "edge-rag", "_EDGE_RAG_COMPLETE").source()
    if as_json:
        emit({"shell": shell, "script": script})
    else:
        click.echo(script)
