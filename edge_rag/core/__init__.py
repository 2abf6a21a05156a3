"""Values every room shares. Standard library only."""
