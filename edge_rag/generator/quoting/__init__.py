"""Quoted answers: which text of the passages answers the question, and how it is laid out; pure."""
