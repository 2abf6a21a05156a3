"""An immutable IVF segment: a large part of a collection's vectors in one memory-mapped file.

Vectors are stored with 8 bits per dimension (FAISS's SQ8) in lists around the centroids of a k-means (IVF); a search
reads the lists nearest to the question. Lists are mapped, not loaded: what a search touches becomes page cache, which
the kernel reclaims when memory is short.

File layout, little-endian: for each list its codes, uint8 [size, dimension], then the positions of its vectors, int64
[size]; then the ids of all positions, int64 [count], ascending; the sizes of the lists, int64 [lists]; the FAISS index
without its lists; ``SegmentReport`` and the lengths of these parts as JSON; the length of that JSON, int64. The
position of a vector is the rank of its id.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import StorageCorrupt
from edge_rag.index.file import HashedFile
from edge_rag.index.flat import EMPTY_RANKING, Ranking

# FAISS annotates its C++ signatures; its Python wrappers accept more types.
_faiss: Any = faiss
_LENGTH = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """Measurements of the build of a segment.

    Attributes:
        recall: Share of the 10 exact nearest neighbours found, over the hardest vectors of a sample, 0 to 1.
        built_at: Time of the build, Unix time in seconds.
        build_s: Duration of the build, seconds.
    """

    probes: int
    recall: float
    built_at: float
    build_s: float


class Segment:
    """An open segment. May be searched from any thread.

    Attributes:
        ids: Ids of the vectors, int64 [count], ascending.
    """

    def __init__(self, index: Any, ids: NDArray[np.int64], report: SegmentReport, size_bytes: int) -> None:
        self._index = index
        self.ids = ids
        self.report = report
        self.size_bytes = size_bytes
        self._unrestricted = _faiss.SearchParametersIVF(nprobe=report.probes)

    @classmethod
    def open(cls, path: Path, dimension: int) -> Segment:
        """Maps a segment whose bytes have been verified.

        Raises:
            StorageCorrupt: It is not a segment, or has vectors of another length.
        """
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(size - _LENGTH.size)
            (footer_bytes,) = _LENGTH.unpack(file.read())
            file.seek(size - _LENGTH.size - footer_bytes)
            footer = json.loads(file.read(footer_bytes))
            count, lists, index_bytes = footer["count"], footer["lists"], footer["index_bytes"]
            past_lists = size - _LENGTH.size - footer_bytes - index_bytes - 8 * (lists + count)
            file.seek(past_lists + 8 * count)
            sizes = np.frombuffer(file.read(8 * lists), dtype="<i8")
            index = _faiss.deserialize_index(np.frombuffer(file.read(index_bytes), dtype=np.uint8))
        if index.d != dimension or index.nlist != lists:
            raise StorageCorrupt(f"{path} holds vectors of length {index.d}, not {dimension}")
        ids = np.asarray(np.memmap(path, dtype="<i8", mode="r", offset=past_lists, shape=(count,)))
        attach_lists(index, path, sizes, past_lists)
        return cls(index, ids, SegmentReport(**footer["report"]), size)

    def __len__(self) -> int:
        return len(self.ids)

    def positions(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        positions = np.searchsorted(self.ids, ids)
        inside = positions < len(self.ids)
        found: NDArray[np.int64] = positions[inside][self.ids[positions[inside]] == ids[inside]]
        return found

    def search(self, questions: NDArray[np.float32], limit: int, allowed: NDArray[np.bool_] | None) -> Ranking:
        """Ranks vectors for each question.

        With a restriction, more lists are read in proportion, and all of them if that still finds too few, so that
        ``limit`` vectors are found if there are as many.

        Args:
            questions: float32 [n, dimension].
            allowed: Whether the vector at each position may be found, [count]; all if None.
        """
        count = len(self) if allowed is None else int(np.count_nonzero(allowed))
        wanted = min(limit, count)
        if wanted == 0:
            return EMPTY_RANKING.repeated(len(questions))
        selector = None if allowed is None else _faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
        lists = int(self._index.nlist)
        probes = min(lists, ceil(self.report.probes * len(self) / count))
        scores, positions = self._probe(questions, wanted, probes, selector)
        if probes < lists and (positions < 0).any():
            scores, positions = self._probe(questions, wanted, lists, selector)
        return Ranking(scores, np.where(positions < 0, np.int64(-1), self.ids[positions]))

    def _probe(
        self, questions: NDArray[np.float32], wanted: int, probes: int, selector: Any
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        if selector is None and probes == self.report.probes:
            parameters = self._unrestricted
        else:
            parameters = _faiss.SearchParametersIVF(nprobe=probes, sel=selector)
        scores, positions = self._index.search(questions, wanted, params=parameters)
        return scores, positions


def write_tail(
    file: HashedFile, ids: NDArray[np.int64], sizes: NDArray[np.int64], index: bytes, report: SegmentReport
) -> None:
    """Writes the parts after the lists; ``index`` is the trained index without vectors, serialized by FAISS."""
    file.write(ids.astype("<i8").tobytes())
    file.write(sizes.astype("<i8").tobytes())
    file.write(index)
    footer = json.dumps(
        {"count": len(ids), "lists": len(sizes), "index_bytes": len(index), "report": asdict(report)}
    ).encode()
    file.write(footer)
    file.write(_LENGTH.pack(len(footer)))


def attach_lists(index: Any, path: Path, sizes: NDArray[np.int64], total_bytes: int) -> None:
    """Attaches the lists at the beginning of a file to a trained index without vectors."""
    lists = _faiss.OnDiskInvertedLists()
    lists.nlist = len(sizes)
    lists.code_size = index.code_size
    lists.filename = str(path)
    lists.totsize = total_bytes
    lists.read_only = True
    lists.prefetch_nthread = 0
    offset = 0
    for size in sizes.tolist():
        one = _faiss.OnDiskOneList()
        one.size = one.capacity = size
        one.offset = offset
        lists.lists.push_back(one)
        offset += size * (int(index.code_size) + 8)
    lists.do_mmap()
    index.replace_invlists(lists, True)
    lists.this.disown()
    index.ntotal = int(sizes.sum())
