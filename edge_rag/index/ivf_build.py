"""Builds a segment from stored vectors in bounded memory, and measures its recall.

The vectors are read twice: a sample for training, then all of them in blocks. Only the codes of a block are kept, in a
file. Resident at once are the sample, one block, 16 bytes per vector and, while lists are ordered, some of the codes; a
million vectors of 384 dimensions take about 200 MB.
"""

from __future__ import annotations

import mmap
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, isqrt
from typing import Any, BinaryIO

import faiss
import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import StorageError
from edge_rag.index.file import IndexFile, SegmentManifest
from edge_rag.index.ivf_segment import SegmentReport, attach_lists, write_tail
from edge_rag.storage.vectors import CollectionVectors

# FAISS annotates its C++ signatures; its Python wrappers accept more types.
_faiss: Any = faiss
_NEIGHBOURS = 10
_NEAR_TIES = 54
_MOST_LISTS = 4096
_SAMPLES_PER_LIST = 32
_ROUNDS = 10
_LISTS_AT_ONCE = 64
_SAME_SCORE = 1e-6
_MARGIN = 0.05

Checkpoint = Callable[[float], None]
"""Called often with the finished share, 0 to 1; may raise to stop the build."""


@dataclass(frozen=True, slots=True)
class RecallTarget:
    """How many lists a search reads: as few as reach a recall on the passages whose neighbours are hardest to find.

    Users' questions are farther from passages than most passages are from each other, and the neighbours of a passage
    among many similar ones are in few lists. Recall is therefore measured on the sampled passages with the most distant
    neighbours, which are most like a question.

    Attributes:
        recall: Average share of the 10 exact nearest neighbours to find, 0 to 1.
        sampled: Number of vectors sampled for it; not used for training unless there are few.
        hardest: Share of the sample whose neighbours are searched, above 0 to 1.
    """

    recall: float = 0.97
    sampled: int = 1024
    hardest: float = 0.25


def build_segment(
    source: CollectionVectors, file: IndexFile, manifest: SegmentManifest, target: RecallTarget, checkpoint: Checkpoint
) -> SegmentReport:
    """Writes a segment of all vectors of a source, at least one."""
    began = time.monotonic()
    draw = np.random.default_rng(0)
    shuffled = draw.permutation(source.ids())
    lists = max(1, min(_MOST_LISTS, 2 * isqrt(len(shuffled)), len(shuffled) // 4))
    asked = source.fetch(np.sort(shuffled[: min(target.sampled, max(1, len(shuffled) // 4))]))
    wanted = _SAMPLES_PER_LIST * lists
    held_out = len(asked) if len(shuffled) >= len(asked) + wanted else 0
    sample = source.fetch(np.sort(shuffled[held_out : held_out + wanted]))
    index = _train(sample, lists, lambda done: checkpoint(0.3 * done))
    expected = len(shuffled)
    del sample, shuffled
    trained = faiss.serialize_index(index).tobytes()
    nearest = _Nearest(asked)
    with tempfile.TemporaryFile(dir=file.content.parent) as spool, file.writing(manifest) as written:
        ids, list_of = _encode(source, index, spool, nearest, lambda done: checkpoint(0.3 + 0.6 * done / expected))
        sizes = np.bincount(list_of, minlength=lists).astype(np.int64)
        for content in _lists(spool, list_of, sizes, int(index.code_size)):
            written.write(content)
        written.flush()
        attach_lists(index, written.path, sizes, len(ids) * (int(index.code_size) + 8))
        probes, recall = nearest.probes_for(index, ids, target)
        report = SegmentReport(probes, recall, time.time(), time.monotonic() - began)
        write_tail(written, ids, sizes, trained, report)
        checkpoint(1.0)  # the last one: a build that is stopped leaves no file behind
    return report


def _train(sample: NDArray[np.float32], lists: int, checkpoint: Checkpoint) -> Any:
    dimension = sample.shape[1]
    means = _faiss.Kmeans(
        dimension, lists, niter=1, spherical=True, seed=1, min_points_per_centroid=1, max_points_per_centroid=10**6
    )
    for number in range(_ROUNDS):
        checkpoint(number / _ROUNDS)
        means.train(sample, init_centroids=means.centroids if number else None)
    coarse = _faiss.IndexFlatIP(dimension)
    coarse.add(means.centroids)
    index = _faiss.IndexIVFScalarQuantizer(
        coarse, dimension, lists, _faiss.ScalarQuantizer.QT_8bit, _faiss.METRIC_INNER_PRODUCT, False
    )
    # Added at each end of a dimension's range: vectors outside the sample may exceed it.
    index.sq.rangestat_arg = _MARGIN
    index.train(sample)
    return index


def _encode(
    source: CollectionVectors, index: Any, spool: BinaryIO, nearest: _Nearest, checkpoint: Checkpoint
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    all_ids, all_lists = [], []
    done = 0
    for ids, vectors in source.blocks():
        _, lists = index.quantizer.search(vectors, 1)
        spool.write(index.sq.compute_codes(vectors).tobytes())
        nearest.add_block(ids, vectors)
        all_ids.append(ids)
        all_lists.append(lists[:, 0].astype(np.int32))
        done += len(ids)
        checkpoint(done)
    if not done:
        raise StorageError("there are no vectors left to build a segment from")
    spool.flush()
    return np.concatenate(all_ids), np.concatenate(all_lists)


def _lists(spool: BinaryIO, list_of: NDArray[np.int32], sizes: NDArray[np.int64], code_size: int) -> Iterator[bytes]:
    order = np.argsort(list_of, kind="stable")
    ends = np.cumsum(sizes)
    with mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        codes = np.frombuffer(mapped, dtype=np.uint8).reshape(-1, code_size)
        for number, (size, end) in enumerate(zip(sizes.tolist(), ends.tolist(), strict=True)):
            places = order[end - size : end]
            yield codes[places].tobytes()
            yield places.astype("<i8").tobytes()
            if number % _LISTS_AT_ONCE == 0:
                mapped.madvise(mmap.MADV_DONTNEED)
        del codes


class _Nearest:
    """The exact nearest neighbours of some vectors, collected while blocks of vectors pass by.

    More than 10 are kept per question, so that vectors as near as the 10th count as found too: a collection with many
    equal passages has no unique ten nearest ones.
    """

    def __init__(self, questions: NDArray[np.float32]) -> None:
        self._questions = questions
        self._scores = np.full((len(questions), _NEAR_TIES), -np.inf, dtype=np.float32)
        self._ids = np.full((len(questions), _NEAR_TIES), -1, dtype=np.int64)

    def add_block(self, ids: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Compares vectors [n, dimension]."""
        scores, places = _faiss.knn(
            self._questions, vectors, min(_NEAR_TIES, len(ids)), metric=_faiss.METRIC_INNER_PRODUCT
        )
        scores = np.hstack((self._scores, scores))
        candidates = np.hstack((self._ids, ids[places]))
        order = np.argsort(-scores, axis=1, kind="stable")[:, :_NEAR_TIES]
        self._scores = np.take_along_axis(scores, order, axis=1)
        self._ids = np.take_along_axis(candidates, order, axis=1)

    def probes_for(self, index: Any, ids: NDArray[np.int64], target: RecallTarget) -> tuple[int, float]:
        """Returns the number of lists to read for the target recall, and the recall reached.

        Returns all lists if fewer are not enough; the codes cause the remaining loss.
        """
        hardest = self._hardest(target.hardest)
        lists = int(index.nlist)
        probes = 1
        while (recall := hardest.recall(index, ids, probes)) < target.recall and probes < lists:
            probes = min(lists, max(probes + 1, probes * 5 // 4))
        return probes, recall

    def _hardest(self, share: float) -> _Nearest:
        farthest = np.argsort(self._scores[:, _NEIGHBOURS], kind="stable")[: ceil(share * len(self._questions))]
        chosen = _Nearest(self._questions[farthest])
        chosen._scores, chosen._ids = self._scores[farthest], self._ids[farthest]
        return chosen

    def recall(self, index: Any, ids: NDArray[np.int64], probes: int) -> float:
        """Returns the share of the nearest neighbours that a search of so many lists finds, 0 to 1."""
        # A search always finds the vector itself first; only its neighbours count.
        wanted = min(_NEIGHBOURS + 1, len(ids))
        parameters = _faiss.SearchParametersIVF(nprobe=probes)
        _, places = index.search(self._questions, wanted, params=parameters)
        hits = 0
        for row, scores, nearest in zip(places, self._scores, self._ids, strict=True):
            good = nearest[scores >= scores[wanted - 1] - _SAME_SCORE]
            found = ids[row[row >= 0]]
            hits += len(np.intersect1d(found, good)) - 1
        return hits / max(1, len(places) * (wanted - 1))
