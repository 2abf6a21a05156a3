"""``edge-rag completion``: Prints the completion of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(
    epilog="""\b
Examples:
  edge-rag completion bash > ~/.local/share/bash-completion/completions/edge-rag
  edge-rag completion zsh > ~/.zfunc/_edge-rag        # a folder of fpath
  edge-rag completion fish > ~/.config/fish/completions/edge-rag.fish
"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Prints the completion of a shell, which completes commands, options and their values."""
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "edge-rag", "_EDGE_RAG_COMPLETE").source())
