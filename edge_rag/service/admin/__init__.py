"""What administrators do: tokens, models and what people think of answers."""
