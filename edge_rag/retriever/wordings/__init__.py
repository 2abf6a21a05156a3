"""Wordings of a question: the original, and those completed by the collection and the conversation; pure."""
