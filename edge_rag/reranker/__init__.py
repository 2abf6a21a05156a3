"""Orders passages and weighs the evidence of their sentences."""
