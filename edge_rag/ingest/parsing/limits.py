"""What reading one document may cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ParsingLimits:
    """What reading one document may cost; a document that needs more is refused.

    Attributes:
        max_bytes: Largest document, bytes.
        max_unpacked_bytes: Most bytes that the compressed parts of one file may hold together.
        max_characters: Most characters of stored text.
        max_blocks: Most headings, paragraphs, items and rows.
        max_pages: Most pages.
        max_scanned_pages: Most pages of one document that have to be recognized.
        max_scan_pixels: Most pixels that a scanned page is drawn with.
        wall_seconds: Longest time, whatever the process is doing; a scanned page adds some, and its recognition
            is not counted.
        cpu_seconds: Most processor time.
        memory_bytes: Address space of the parser process, its own 100 MB or so included.
        documents_per_process: After so many documents a fresh process takes over, so that nothing piles up.
    """

    max_bytes: int = 64 * 2**20
    max_unpacked_bytes: int = 256 * 2**20
    max_characters: int = 20_000_000
    max_blocks: int = 500_000
    max_pages: int = 5_000
    max_scanned_pages: int = 500
    max_scan_pixels: int = 25_000_000
    wall_seconds: int = 60
    cpu_seconds: int = 30
    memory_bytes: int = 2**30
    documents_per_process: int = 500
