"""Embeddings and reranking over HTTP, by the official OpenAI client and by plain requests."""

import base64
import json
import urllib.error
import urllib.request
from typing import Any

import numpy as np
import openai
import pytest

from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.service.inference.encoding import MAX_RERANKED_CHARACTERS, MAX_TEXT_CHARACTERS, MAX_TEXTS
from tests.e2e.support.running_daemon import ROOT, RunningDaemon

TEXTS = (
    "In case of fire use the carbon dioxide extinguisher beside the door.",
    "The bearings of the pump must be greased every 2,000 operating hours.",
    "The motor runs at 400 V.",
)
QUESTION = "How often must the pump bearings be greased?"


@pytest.fixture
def daemon(http_daemon: RunningDaemon) -> RunningDaemon:
    return http_daemon


@pytest.fixture(scope="module")
def embedder() -> TextEncoder:
    return TextEncoder.open(ROOT / "models" / "minilm-l6")


def post(daemon: RunningDaemon, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        f"{daemon.http}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_the_official_client_gets_the_embedders_own_vectors(
    daemon: RunningDaemon, embedder: TextEncoder, encoding: str | None
) -> None:
    with openai.OpenAI(base_url=f"{daemon.http}/v1", api_key="any", max_retries=0) as client:
        options: Any = {} if encoding is None else {"encoding_format": encoding}
        found: Any = client.embeddings.create(model="any", input=list(TEXTS), **options)
        alone = client.embeddings.create(model="any", input=TEXTS[1], dimensions=embedder.dimension)
    given = [each.embedding for each in found.data]
    if encoding == "base64":
        given = [np.frombuffer(base64.b64decode(each), "<f4") for each in given]
    vectors = np.array(given, np.float32)
    assert np.array_equal(vectors, embedder.embed(TEXTS))
    assert np.array_equal(np.array(alone.data[0].embedding, np.float32), vectors[1])
    assert [each.index for each in found.data] == [0, 1, 2]
    assert found.model == embedder.name
    assert found.usage.total_tokens == sum(map(embedder.count_tokens, TEXTS))


def test_questions_are_embedded_as_questions_where_it_is_said(daemon: RunningDaemon, embedder: TextEncoder) -> None:
    status, found = post(daemon, "/v1/embeddings", input=QUESTION, edge_rag={"input": "question"})
    assert status == 200
    vector = np.array(found["data"][0]["embedding"], np.float32)
    assert np.array_equal(vector, embedder.embed_questions([QUESTION])[0])


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_documents_come_in_the_order_of_their_relevance(daemon: RunningDaemon, path: str) -> None:
    documents = [TEXTS[0], {"text": TEXTS[1]}, TEXTS[2]]
    status, found = post(daemon, path, model="any", query=QUESTION, documents=documents, return_documents=True)
    assert status == 200
    scores = [each["relevance_score"] for each in found["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert found["results"][0] == {"index": 1, "relevance_score": scores[0], "document": {"text": TEXTS[1]}}
    assert sorted(each["index"] for each in found["results"]) == [0, 1, 2]
    _, best = post(daemon, path, query=QUESTION, documents=documents, top_n=1, max_chunks_per_doc=10)
    assert best["results"] == [{"index": 1, "relevance_score": scores[0]}]
    assert best["usage"] == found["usage"]
    _, alone = post(daemon, path, query=QUESTION, documents=[TEXTS[0]])
    assert alone["results"][0]["relevance_score"] in scores  # whatever the other documents are


@pytest.mark.parametrize(
    ("path", "fields", "field"),
    [
        ("/v1/embeddings", {}, "input"),
        ("/v1/embeddings", {"input": []}, "input"),
        ("/v1/embeddings", {"input": ""}, "input[0]"),
        ("/v1/embeddings", {"input": [1, 2]}, "input"),
        ("/v1/embeddings", {"input": ["a", [1, 2]]}, "input[1]"),
        ("/v1/embeddings", {"input": ["a", None]}, "input[1]"),
        ("/v1/embeddings", {"input": ["a"] * (MAX_TEXTS + 1)}, "input"),
        ("/v1/embeddings", {"input": ["a", "b" * (MAX_TEXT_CHARACTERS + 1)]}, "input[1]"),
        ("/v1/embeddings", {"input": "a", "dimensions": 7}, "dimensions"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ("/v1/embeddings", {"input": "a", "edge_rag": {"input": "query"}}, "edge_rag.input"),
        ("/v1/embeddings", {"input": "a", "edge_rag": {"prompt": "x"}}, "edge_rag.prompt"),
        ("/v1/embeddings", {"input": "a", "task": "classification"}, "task"),
        ("/v1/rerank", {"documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": " ", "documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": "a"}, "documents"),
        ("/v1/rerank", {"query": "a", "documents": ["a", {"title": "b"}]}, "documents[1]"),
        ("/v1/rerank", {"query": "a", "documents": ["a", ""]}, "documents[1]"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": 0}, "top_n"),
        ("/v2/rerank", {"query": "a", "documents": ["x" * MAX_TEXT_CHARACTERS] * 5}, "documents"),
        ("/v2/rerank", {"query": "a", "documents": ["a"], "rank_fields": ["text"]}, "rank_fields"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_field(
    daemon: RunningDaemon, path: str, fields: dict[str, Any], field: str
) -> None:
    assert MAX_TEXT_CHARACTERS * 5 > MAX_RERANKED_CHARACTERS
    status, found = post(daemon, path, model="any", **fields)
    assert (status, found["error"]["param"]) == (400, field)
