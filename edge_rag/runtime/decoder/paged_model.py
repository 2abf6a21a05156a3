"""What a model over pages says of itself, and the steps and pages it refuses, wherever its pages are."""

from __future__ import annotations

from edge_rag.errors import InferenceFailed
from edge_rag.runtime.decoder.model_input import PackedStep, check_step
from edge_rag.runtime.lowering.geometry import PagedGeometry


class PagedModel:
    """A model's sizes and the number of its pages.

    Attributes:
        geometry: The model's sizes.
        pages: Number of pages, at least 1; page numbers are below this.
    """

    def __init__(self, geometry: PagedGeometry, pages: int) -> None:
        self.geometry = geometry
        self.pages = pages

    @property
    def vocabulary_size(self) -> int:
        """Token ids are below this."""
        return self.geometry.vocabulary_size

    @property
    def page_tokens(self) -> int:
        """Tokens a page holds."""
        return self.geometry.page_tokens

    @property
    def max_context(self) -> int:
        """Positions are below this, tokens."""
        return self.geometry.max_context

    @property
    def end_tokens(self) -> frozenset[int]:
        """Token ids that end a text."""
        return self.geometry.end_tokens

    def check_step(self, step: PackedStep) -> None:
        """Returns where a step can be run.

        Raises:
            InferenceFailed: It breaks a promise of ``PackedStep``.
        """
        check_step(
            step,
            vocabulary_size=self.vocabulary_size,
            max_context=self.max_context,
            page_tokens=self.page_tokens,
            pages=self.pages,
        )

    def check_pages(self, *pages: int) -> None:
        """Returns where all of the pages are there.

        Raises:
            InferenceFailed: One is not.
        """
        for page in pages:
            if not 0 <= page < self.pages:
                raise InferenceFailed(f"page {page} is outside [0, {self.pages})")
