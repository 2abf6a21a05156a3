"""How values look as JSON, on the command line and over HTTP."""
