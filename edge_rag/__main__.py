"""``python -m edge_rag``: the command line."""

from edge_rag.cli.main import main

main(prog_name="edge-rag")
