"""What a model may be called, wherever a name is read: it is also the name of a folder."""

from __future__ import annotations

import re
from typing import Final

LONGEST_MODEL_NAME: Final = 64
"""Most characters of a model's name."""

_NAME: Final = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{LONGEST_MODEL_NAME - 1}}}")


def is_model_name(text: str) -> bool:
    """Whether a model may have this name: 1 to 64 of a-z, 0-9, ``.``, ``_`` and ``-``, the first a letter or digit."""
    return _NAME.fullmatch(text) is not None
