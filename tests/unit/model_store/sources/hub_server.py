"""A Hugging Face hub for one model, over HTTP: its metadata and its files, whole or from an offset on."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "c0ffee" * 6 + "beef"


class HubServer:
    """Serves ``files`` as ``owner/tiny``.

    Attributes:
        files: Content by name.
        served: Name and Range header of each file that was asked for.
        break_off: Names of files whose next answer ends in the middle.
        stored: What the metadata says where it is not the truth: SHA-256 by name.
        status: Answers everything with this status instead; 0 for none.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.served: list[tuple[str, str | None]] = []
        self.break_off: set[str] = set()
        self.stored: dict[str, str] = {}
        self.status = 0
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                hub._answer(self, body=False)

            def do_GET(self) -> None:
                hub._answer(self, body=True)

            def log_message(self, *arguments: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> HubServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler, body: bool) -> None:
        path = request.path.split("?")[0]
        if self.status:
            return _send(request, self.status, b"", body, {"X-Error-Code": "GatedRepo" if self.status == 403 else ""})
        if path.startswith("/api/models/owner/tiny"):
            revision = path.rpartition("/revision/")[2]
            if revision not in ("main", COMMIT, path):
                return _send(request, 404, b"", body, {"X-Error-Code": "RevisionNotFound"})
            return _send(
                request, 200, json.dumps(self._metadata()).encode(), body, {"Content-Type": "application/json"}
            )
        name = path.removeprefix(f"/owner/tiny/resolve/{COMMIT}/")
        if name not in self.files:
            return _send(request, 404, b"", body, {"X-Error-Code": "RepoNotFound"})
        return self._file(request, name, body)

    def _metadata(self) -> dict[str, Any]:
        siblings = []
        for name, content in self.files.items():
            digest = self.stored.get(name, hashlib.sha256(content).hexdigest())
            sibling: dict[str, Any] = {"rfilename": name, "size": len(content)}
            if name.endswith((".safetensors", ".gguf")):
                sibling["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 100}
            else:
                sibling["blobId"] = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            siblings.append(sibling)
        return {"id": "owner/tiny", "modelId": "owner/tiny", "sha": COMMIT, "siblings": siblings, "tags": []}

    def _file(self, request: BaseHTTPRequestHandler, name: str, body: bool) -> None:
        content, asked = self.files[name], request.headers.get("Range")
        first = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
            "Accept-Ranges": "bytes",
        }
        if asked:
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
        if body:
            self.served.append((name, asked))
        if body and name in self.break_off:
            self.break_off.discard(name)
            self.status = 503
            _send(request, 200, content, body, headers, sent=len(content) // 2)
            request.close_connection = True
            return
        _send(request, 206 if asked else 200, content[first:], body, headers)


def _send(
    request: BaseHTTPRequestHandler,
    status: int,
    content: bytes,
    body: bool,
    headers: dict[str, str],
    sent: int | None = None,
) -> None:
    request.send_response(status)
    for key, value in headers.items():
        request.send_header(key, value)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    if body:
        request.wfile.write(content[:sent])
