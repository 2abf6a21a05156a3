"""Forms that arrive in pieces, however they are cut, and what is no form."""

from collections.abc import AsyncGenerator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.errors import InvalidRequest
from edge_rag.server.http.multipart import MAX_PARTS, FormPart, MultipartForm
from tests.support.examples import examples

CONTENT_TYPE = 'multipart/form-data; boundary="b"'

heads = st.sampled_from(
    [
        'Content-Disposition: form-data; name="purpose"',
        'Content-Disposition: form-data; name="file"; filename="a.txt"',
        'content-disposition: form-data; filename="C:\\\\a\\\\b.txt"; name=file\r\nContent-Type: text/plain; charset=x',
        'Content-Disposition: form-data; name="ü"',
        "Content-Disposition: attachment",
        "Content-Type: text/plain",
        "no header",
        "",
    ]
)
contents = st.one_of(st.binary(max_size=60), st.sampled_from([b"\r\n", b"\r\n--", b"\r\n--b", b"--b--", b"-" * 50]))


async def cut(body: bytes, sizes: list[int]) -> AsyncGenerator[bytes, None]:
    at = 0
    for size in sizes:
        yield body[at : at + size]
        at += size
    yield body[at:]


async def read(body: bytes, sizes: list[int], content_type: str = CONTENT_TYPE) -> list[tuple[FormPart, bytes]]:
    form = MultipartForm(content_type, cut(body, sizes))
    found = []
    async for part in form.parts():
        found.append((part, b"".join([piece async for piece in form.content()])))
    return found


def body_of(parts: list[tuple[str, bytes]], end: bytes = b"--b--\r\n") -> bytes:
    return b"".join(b"--b\r\n" + head.encode() + b"\r\n\r\n" + content + b"\r\n" for head, content in parts) + end


@given(sizes=st.lists(st.integers(1, 30), max_size=30), content=contents)
async def test_a_form_is_the_same_however_it_is_cut(sizes: list[int], content: bytes) -> None:
    if b"\r\n--b" in b"\r\n" + content:
        return
    parts = [
        ('Content-Disposition: form-data; name="file"; filename="%22a b%22.txt"\r\nContent-Type: Text/Plain', content),
        ('Content-Disposition: form-data; name="purpose"', b"assistants"),
    ]
    assert await read(body_of(parts), sizes) == [
        (FormPart("file", '"a b".txt', "text/plain"), content),
        (FormPart("purpose", None, ""), b"assistants"),
    ]


@settings(max_examples=examples(300), deadline=None)
@given(
    parts=st.lists(st.tuples(heads, contents), max_size=4),
    sizes=st.lists(st.integers(1, 40), max_size=20),
    lost=st.integers(0, 30),
    extra=st.binary(max_size=10),
)
async def test_anything_else_is_a_form_or_refused(
    parts: list[tuple[str, bytes]], sizes: list[int], lost: int, extra: bytes
) -> None:
    body = body_of(parts)
    try:
        found = await read(body[: len(body) - lost] + extra, sizes)
    except InvalidRequest as refused:
        assert refused.field in {"body", "file"}
        return
    assert all(part.name for part, _ in found)


async def test_a_form_has_a_last_boundary_and_a_bounded_number_of_parts() -> None:
    head = 'Content-Disposition: form-data; name="a"'
    assert len(await read(body_of([(head, b"")] * MAX_PARTS), [])) == MAX_PARTS
    for body, reason in (
        (body_of([(head, b"")] * (MAX_PARTS + 1)), "more than 16 parts"),
        (body_of([(head, b"x")], end=b""), "ends"),
        (b"", "ends"),
    ):
        with pytest.raises(InvalidRequest, match=reason):
            await read(body, [])


@pytest.mark.parametrize("content_type", ["", "text/plain", "multipart/form-data", "multipart/mixed; boundary=b"])
async def test_another_type_of_body_is_refused(content_type: str) -> None:
    with pytest.raises(InvalidRequest, match="content-type"):
        await read(body_of([]), [], content_type)


async def test_a_part_that_is_not_read_is_refused_by_its_name() -> None:
    form = MultipartForm(CONTENT_TYPE, cut(body_of([('Content-Disposition: form-data; name="folder"', b"x")]), []))
    with pytest.raises(InvalidRequest, match="folder"):
        _ = [part async for part in form.parts()]
