"""Entry point of the parser process: parses documents one after another until its input ends.

Before the first document the process drops rights it does not need, for good:

- no new file descriptors, so no files and no sockets;
- no writing to files, no new processes, no core dumps; address space of at most ``ParsingLimits.memory_bytes``;
- what ``confinement`` lists, as far as the kernel has it: of system calls only those that computing takes.

The daemon limits the processor time of each document, because it can do so from outside. The process gets none of the
daemon's descriptors, ``/`` as its working directory, and only the search paths of the daemon's environment. It serves
documents of one collection, so that a document that takes it over sees no text of other collections.
"""

from __future__ import annotations

import codecs
import json
import resource
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter
from typing import IO, Any

from charset_normalizer.constant import IANA_SUPPORTED

from edge_rag.errors import BrokenDocument, DocumentRejected
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.formats import FORMATS
from edge_rag.ingest.parsing.parser import read_document
from edge_rag.ingest.parsing.pdf.ocr import Recognizer, Scan
from edge_rag.ingest.parsing.pdf.pdf import pdf_boxes, pdf_picture
from edge_rag.ingest.parsing.sandbox.confinement import Protection, confine
from edge_rag.ingest.parsing.sandbox.messages import (
    OUT_OF_MEMORY,
    encode_boxes,
    encode_parsed,
    encode_picture,
    encode_ready,
    encode_rejection,
    encode_scan,
    read_message,
    write_message,
)

_MAX_HEADER_BYTES = 256 * 1024
_MAX_WORDS_BYTES = 16 * 2**20
_MAIL = b"""Subject: =?utf-8?q?=C3=B6?= =?utf-8?b?w7Y=?=
Date: Mon, 12 Jan 2026 10:00:00 +0100
Content-Type: multipart/mixed; boundary=a

--a
Content-Type: text/plain; charset=latin-1
Content-Transfer-Encoding: quoted-printable

=F6
--a
Content-Type: text/csv; name*=utf-8''%C3%B6.csv
Content-Transfer-Encoding: base64

YSxiCg==
--a
Content-Type: message/rfc822

Subject: inner
Content-Transfer-Encoding: x-uuencode

begin 644 a
#86)C
`
end
--a--
"""


def main() -> None:
    """Serves the parent on standard input and output; the first argument is ``ParsingLimits`` as JSON."""
    limits = ParsingLimits(**json.loads(sys.argv[1]))
    _import_everything(limits)
    _disable_imports()
    missing = _drop_rights(limits)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    write_message(answers, encode_ready([each.media_type for each in FORMATS], missing))
    while (header := read_message(requests, _MAX_HEADER_BYTES)) is not None:
        content = read_message(requests, limits.max_bytes)
        if content is None:
            return
        request = json.loads(header)
        token = request["token"].encode()
        out_of_memory = token + OUT_OF_MEMORY
        answer = _answer(request, content, limits, _recognizer(request, requests, answers))
        write_message(answers, out_of_memory if answer is None else token + answer)
        if answer is None:
            return


def _answer(request: dict[str, Any], content: bytes, limits: ParsingLimits, recognizer: Recognizer) -> bytes | None:
    """Parses one document, or draws a page of it; None if memory ran out.

    The return frees everything that was allocated for it.
    """
    try:
        match request["task"]:
            case "picture":
                return encode_picture(pdf_picture(content, request["page"], request["width"], request["marks"]))
            case "boxes":
                return encode_boxes(pdf_boxes(content, limits, recognizer, request["page"]))
        return encode_parsed(*read_document(request["name"], request["media_type"], content, limits, recognizer))
    except DocumentRejected as error:
        return encode_rejection(error)
    except MemoryError:
        return None


def _recognizer(request: dict[str, Any], requests: IO[bytes], answers: IO[bytes]) -> Recognizer:
    def recognize(scan: Scan) -> bytes:
        write_message(answers, request["token"].encode() + encode_scan(scan))
        words = read_message(requests, _MAX_WORDS_BYTES)
        if words is None:
            raise BrokenDocument("reading it was interrupted")
        return words

    return Recognizer(request["ocr_problem"], recognize)


def _import_everything(limits: ParsingLimits) -> None:
    """Imports lazily imported modules now, because no file can be opened later: encodings, modules of the parsers."""
    for encoding in (*IANA_SUPPORTED, "utf-8-sig", "utf-16", "utf-32", "idna", "latin-1"):
        codecs.lookup(encoding)
    read_document("warm-up.md", "", b"# a\n\n| b |\n|---|\n| <br> &amp; |\n\n<p>c</p>", limits)
    read_document("warm-up.txt", "", "Öl prüfen".encode("latin-1"), limits)
    read_document("warm-up.html", "", b"<meta charset='latin-1'><p>&uuml;</p>", limits)
    read_document("warm-up.eml", "", _MAIL, limits)
    try:
        read_document("warm-up.pdf", "", b"%PDF-1.7", limits)
    except DocumentRejected:
        return


def _disable_imports() -> None:
    """Makes an import of a module that is not loaded fail without a look at any folder."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder in (BuiltinImporter, FrozenImporter)]


def _drop_rights(limits: ParsingLimits) -> tuple[Protection, ...]:
    return confine(
        {
            resource.RLIMIT_AS: limits.memory_bytes,
            resource.RLIMIT_FSIZE: 0,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_NPROC: 0,
            resource.RLIMIT_NOFILE: 0,
        }
    )


if __name__ == "__main__":
    main()
