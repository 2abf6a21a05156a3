"""The number of the form that a file of this program has."""

from __future__ import annotations

import json


def is_newer(content: bytes, newest: int) -> bool:
    """Whether a JSON file says that it has a form that this version does not know yet.

    Args:
        content: The file; anything.
        newest: Number of the newest form this version knows.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return False
    number = document.get("format") if isinstance(document, dict) else None
    return isinstance(number, int) and number > newest
