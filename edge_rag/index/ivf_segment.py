"""A large, unchanging part of a collection's vectors in one file, searched where it lies.

The vectors are kept as 8 bits a dimension (FAISS's SQ8), in lists around the centroids of a k-means (IVF); a search
reads the lists nearest to the question. The lists are mapped, not loaded: what a search touches becomes resident as
page cache, which the system takes back when memory is short.

Layout of the file, little-endian: per list its codes, uint8 [size, dimension], then their places, int64 [size]; then
the ids of all places, int64 [count], ascending; then the sizes of the lists, int64 [lists]; then the FAISS index
without its lists; then ``SegmentReport`` and the lengths of these parts as JSON; then the length of that, int64. A
place is a vector's rank by id.
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
from edge_rag.index.flat import NOTHING, Ranking

# Its own annotations are those of C++; what Python may pass is wider.
_faiss: Any = faiss
_LENGTH = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """What was found out about a segment when it was built.

    Attributes:
        probes: Lists a search reads; chosen for the recall.
        recall: Share of the 10 exact nearest neighbours found, over the hardest of a sample of the vectors, 0 to 1.
        built_at: When, Unix time, seconds.
        build_s: How long it took, seconds.
    """

    probes: int
    recall: float
    built_at: float
    build_s: float


class Segment:
    """An opened segment. May be searched from any thread.

    Attributes:
        ids: Ids of the vectors, int64 [count], ascending.
        report: What was found out when it was built.
        size_bytes: Size of the file.
    """

    def __init__(self, index: Any, ids: NDArray[np.int64], report: SegmentReport, size_bytes: int) -> None:
        self._index = index
        self.ids = ids
        self.report = report
        self.size_bytes = size_bytes
        self._unrestricted = _faiss.SearchParametersIVF(nprobe=report.probes)

    @classmethod
    def open(cls, path: Path, dimension: int) -> Segment:
        """Maps a segment whose bytes are vouched for already.

        Raises:
            OSError: It cannot be read.
            StorageCorrupt: It is no segment, or one of other vectors.
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

    def places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the places of those of the ascending ids that are here."""
        places = np.searchsorted(self.ids, ids)
        inside = places < len(self.ids)
        found: NDArray[np.int64] = places[inside][self.ids[places[inside]] == ids[inside]]
        return found

    def search(self, questions: NDArray[np.float32], limit: int, allowed: NDArray[np.bool_] | None) -> Ranking:
        """Ranks vectors for each question.

        A restriction makes a search read more lists in proportion, and all of them if it still falls short, so that
        ``limit`` are found wherever there are as many.

        Args:
            questions: float32 [n, dimension].
            limit: Most to find for each.
            allowed: Whether the vector of each place may be found, [count]; all if None.
        """
        count = len(self) if allowed is None else int(np.count_nonzero(allowed))
        wanted = min(limit, count)
        if wanted == 0:
            return NOTHING.repeated(len(questions))
        selector = None if allowed is None else _faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
        lists = int(self._index.nlist)
        probes = min(lists, ceil(self.report.probes * len(self) / count))
        scores, places = self._probe(questions, wanted, probes, selector)
        if probes < lists and (places < 0).any():
            scores, places = self._probe(questions, wanted, lists, selector)
        return Ranking(scores, np.where(places < 0, np.int64(-1), self.ids[places]))

    def _probe(
        self, questions: NDArray[np.float32], wanted: int, probes: int, selector: Any
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        if selector is None and probes == self.report.probes:
            parameters = self._unrestricted
        else:
            parameters = _faiss.SearchParametersIVF(nprobe=probes, sel=selector)
        scores, places = self._index.search(questions, wanted, params=parameters)
        return scores, places


def write_tail(
    file: HashedFile, ids: NDArray[np.int64], sizes: NDArray[np.int64], index: bytes, report: SegmentReport
) -> None:
    """Writes what follows the lists; ``index`` is the trained index without vectors, as FAISS writes it."""
    file.write(ids.astype("<i8").tobytes())
    file.write(sizes.astype("<i8").tobytes())
    file.write(index)
    footer = json.dumps(
        {"count": len(ids), "lists": len(sizes), "index_bytes": len(index), "report": asdict(report)}
    ).encode()
    file.write(footer)
    file.write(_LENGTH.pack(len(footer)))


def attach_lists(index: Any, path: Path, sizes: NDArray[np.int64], total_bytes: int) -> None:
    """Gives a trained index without vectors the lists at the beginning of a file."""
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
