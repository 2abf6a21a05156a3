"""What the board suffers from, heat, want of power or of memory, and how much may run under it."""
