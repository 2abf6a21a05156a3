"""Doing less where the board suffers: readers of heat, power and memory, and controllers that are pure."""
