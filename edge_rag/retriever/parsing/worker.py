"""The parser process: reads documents one after another until its input ends.

Before it reads the first one it gives up what it does not need, for good (a hard limit can only be raised again by
root):

- no new file descriptors, so it can open no file and no socket: no network either;
- no writing to files, no new processes (not enforced for root), no core dumps;
- address space as ``ParsingLimits.memory_bytes`` says, and processor time per document as ``cpu_seconds`` says.

What is not limited: it runs as the daemon's user, may signal that user's processes and call any system call that needs
no new descriptor. It is given none of the daemon's descriptors and none of its environment but the search paths.
"""

from __future__ import annotations

import codecs
import json
import resource
import sys
import time
from math import ceil

from charset_normalizer.constant import IANA_SUPPORTED

from edge_rag.errors import DocumentRejected
from edge_rag.retriever.parsing.limits import ParsingLimits
from edge_rag.retriever.parsing.messages import (
    OUT_OF_MEMORY,
    encode_parsed,
    encode_rejection,
    read_message,
    write_message,
)
from edge_rag.retriever.parsing.reader import read_document

_MAX_HEADER_BYTES = 64 * 1024
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
    """Serves the parent on standard input and output; the limits are the first argument, as JSON."""
    limits = ParsingLimits(**json.loads(sys.argv[1]))
    _load_everything(limits)
    _give_up_rights(limits)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    write_message(answers, b"ready")
    while (header := read_message(requests, _MAX_HEADER_BYTES)) is not None:
        content = read_message(requests, limits.max_bytes)
        if content is None:
            return
        _allow_processor_time(limits)
        answer = _answer(header, content, limits)
        write_message(answers, answer or OUT_OF_MEMORY)
        if answer is None:
            return


def _answer(header: bytes, content: bytes, limits: ParsingLimits) -> bytes | None:
    """Reads one document; None where memory ran out, and with the return everything that filled it is let go."""
    request = json.loads(header)
    try:
        return encode_parsed(*read_document(request["name"], request["media_type"], content, limits))
    except DocumentRejected as error:
        return encode_rejection(error)
    except MemoryError:
        return None


def _load_everything(limits: ParsingLimits) -> None:
    """Imports what is imported lazily, since no file can be opened later: encodings, and each parser's own modules."""
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


def _give_up_rights(limits: ParsingLimits) -> None:
    processor = limits.documents_per_process * (limits.cpu_seconds + 1)
    for kind, value in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CPU, processor),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        _, allowed = resource.getrlimit(kind)
        limit = value if allowed == resource.RLIM_INFINITY else min(value, allowed)
        resource.setrlimit(kind, (limit, limit))


def _allow_processor_time(limits: ParsingLimits) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (min(hard, ceil(time.process_time()) + limits.cpu_seconds), hard))


if __name__ == "__main__":
    main()
