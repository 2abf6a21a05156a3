"""The composition root: opens models and data and wires every part together."""
