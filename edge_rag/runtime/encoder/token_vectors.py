"""A text as one vector a token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class TokenVectors:
    """A text as one vector a token; special tokens are left out.

    Attributes:
        vectors: float32 [tokens, dimension], each of unit length; no rows where the text has no tokens.
        offsets: int32 [tokens, 2]: each token's first character in the text and one past its last, in code points.
    """

    vectors: NDArray[np.float32]
    offsets: NDArray[np.int32]
