"""Orders passages and weighs their sentences."""
