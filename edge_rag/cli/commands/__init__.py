"""One module per command, grouped by what the command works on."""
