"""Token vectors of texts that several rerankers and questions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge_rag.runtime.encoder.text_encoder import TextEncoder, TokenVectors

_MOST_TEXTS: Final = 5_000


class RememberedVectors:
    """Encodes a text once for as long as it is remembered; allowed, as its vectors do not depend on its neighbours."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._known: dict[str, TokenVectors] = {}

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Returns the token vectors of each text, in order."""
        if len(self._known) > _MOST_TEXTS:
            self._known.clear()
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, self._encoder.token_vectors(new), strict=True))
        return [self._known[text] for text in texts]
