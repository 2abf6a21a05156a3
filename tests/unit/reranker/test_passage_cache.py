from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Hit, Passage, RerankRequest, Retrieved
from edge_rag.reranker.candidate import EncodedPassage, PassageCache
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.encoder.text_encoder import TokenVectors


def passage(chunk: int, text: str) -> Passage:
    return Passage(ChunkId(chunk), DocumentId("d"), "d.txt", None, 0, len(text), text)


def read(tokens: int) -> EncodedPassage:
    vectors = TokenVectors(np.ones((tokens, 4), np.float32), np.zeros((tokens, 2), np.int32))
    return EncodedPassage.of(passage(1, "t"), vectors)


class CountingVectorizer:
    """Vectors from the letters of a text; records the encoded texts."""

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        self.encoded += texts
        return [self._one(text) for text in texts]

    passage_tokens = token_vectors

    def _one(self, text: str) -> TokenVectors:
        spans = [(start, start + 1) for start, character in enumerate(text) if character.isalpha()]
        rows = np.array([[ord(text[start]) % 7 + 1, ord(text[start]) % 5 + 1] for start, _ in spans], np.float32)
        rows = rows.reshape(-1, 2) / np.linalg.norm(rows.reshape(-1, 2), axis=1, keepdims=True)
        return TokenVectors(rows, np.array(spans, np.int32).reshape(-1, 2))


def request(question: str, passages: Sequence[Passage]) -> RerankRequest:
    return RerankRequest(question, Retrieved(tuple(Hit(each, 1.0) for each in passages), {}), 10)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12)), max_size=60), st.integers(0, 4000))
def test_the_cache_stays_within_its_capacity_and_returns_the_last_entry(
    puts: list[tuple[int, int]], capacity: int
) -> None:
    cache = PassageCache(capacity)
    latest: dict[int, EncodedPassage] = {}
    for chunk, tokens in puts:
        given_ = read(tokens)
        cache.put(passage(chunk, "t"), given_)
        if given_.bytes <= capacity:
            latest[chunk] = given_
            assert cache.get(passage(chunk, "t")) is given_
        assert cache.bytes <= capacity
        for known, value in latest.items():
            assert cache.get(passage(known, "t")) in (None, value)


def test_the_least_recently_used_passage_is_evicted_first() -> None:
    cache = PassageCache(2 * read(1).bytes)
    cache.put(passage(1, "a"), read(1))
    cache.put(passage(2, "b"), read(1))
    assert cache.get(passage(1, "a")) is not None
    cache.put(passage(3, "c"), read(1))
    assert cache.get(passage(2, "b")) is None
    assert cache.get(passage(1, "a")) is not None


def test_equal_texts_of_two_chunks_are_separate_entries() -> None:
    vectorizer = CountingVectorizer()
    reranker = MaxSimReranker(vectorizer)
    reranker.rerank([request("who", [passage(1, "the same")])])
    reranker.rerank([request("who", [passage(2, "the same")])])
    assert vectorizer.encoded.count("the same") == 2


def test_a_passage_is_encoded_once_and_ranked_the_same_from_the_cache() -> None:
    vectorizer = CountingVectorizer()
    reranker = MaxSimReranker(vectorizer)
    passages = [passage(1, "grease the bearing"), passage(2, "close the valve"), passage(3, "call the electrician")]
    first = reranker.rerank([request("which bearing", passages)])
    second = reranker.rerank([request("which bearing", passages)])
    assert second == first
    assert [vectorizer.encoded.count(each.text) for each in passages] == [1, 1, 1]


def test_without_capacity_every_request_is_answered() -> None:
    passages = [passage(1, "grease the bearing"), passage(2, "close the valve")]
    kept, unkept = MaxSimReranker(CountingVectorizer()), MaxSimReranker(CountingVectorizer(), cache_bytes=0)
    asked = [request("which bearing", passages)]
    assert [unkept.rerank(asked), unkept.rerank(asked)] == [kept.rerank(asked), kept.rerank(asked)]
