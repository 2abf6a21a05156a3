"""The parser of requests: what it refuses does not depend on how the bytes arrive."""

from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.server.http.connection import READ_BYTES, RequestParser

HEAD_BYTES = 1 << 10
GET = b"GET /v1/models HTTP/1.1\r\nhost: box\r\n"
POST = b"POST /v1/files HTTP/1.1\r\nhost: box\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
GOOD = [
    GET + b"\r\n",
    POST + b"content-length: 5\r\n\r\nhello",
    CHUNKED + b"5\r\nhello\r\n3;a=b\r\n!!!\r\n0\r\nx: y\r\n\r\n",
    GET + b"x: " + b"a" * (HEAD_BYTES - len(GET) - 7) + b"\r\n\r\n",
]
BAD = [
    GET + b"x: 1\n\r\n",
    GET + b"x: 1\rcontent-length: 3\r\n\r\n",
    GET + b"x: 1\r\n y\r\n\r\n",
    GET + b"x: 1\r\n\ty\r\n\r\n",
    GET.replace(b"1.1", b"2.0") + b"\r\n",
    POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    POST.replace(b"1.1", b"1.0") + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    GET + b"x: " + b"a" * (HEAD_BYTES - len(GET) - 6) + b"\r\n\r\n",
    CHUNKED + b"1\r\na\r\n" * 1100,
]


def outcome(data: bytes, cuts: list[int]) -> tuple[str, bytes]:
    """Parses bytes that arrive in pieces; returns whether they were refused, and the body so far."""
    parser, body = RequestParser(HEAD_BYTES), b""
    edges = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    try:
        for begin, end in pairwise(edges):
            parser.receive_data(data[begin:end])
            while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    return "whole", body
    except h11.RemoteProtocolError:
        return "refused", b""
    return "waiting", body


@given(st.sampled_from(GOOD), st.lists(st.integers(0, READ_BYTES), max_size=20))
def test_a_request_is_whole_however_it_arrives(data: bytes, cuts: list[int]) -> None:
    assert outcome(data, cuts) == outcome(data, [])
    assert outcome(data, cuts)[0] == "whole"


@given(st.sampled_from(BAD), st.lists(st.integers(0, READ_BYTES), max_size=20))
def test_what_is_refused_is_refused_however_it_arrives(data: bytes, cuts: list[int]) -> None:
    assert outcome(data, cuts)[0] == "refused"


@pytest.mark.parametrize(("size", "expected"), [(1, "refused"), (128, "refused"), (256, "whole"), (1024, "whole")])
def test_chunks_may_be_small_at_first_but_not_on_the_mean(size: int, expected: str) -> None:
    chunk = b"%x\r\n%b\r\n" % (size, b"a" * size)
    assert outcome(CHUNKED + chunk * 1000 + b"0\r\n\r\n", [])[0] == "whole"
    assert outcome(CHUNKED + chunk * 3000 + b"0\r\n\r\n", [])[0] == expected
