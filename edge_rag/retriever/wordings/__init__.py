"""Wordings of a question: as it was asked, and as the collection and the conversation complete it; pure."""
