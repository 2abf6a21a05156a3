"""Answer generation on remote machines, hedged with local generation."""
