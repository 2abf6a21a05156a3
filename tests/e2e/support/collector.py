"""A collector that takes OTLP over HTTP, on a free loopback port."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.bodies = b""
        self.services: set[str] = set()
        self.changed = threading.Condition()
        self.endpoint = ""

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self.changed:
            self.bodies += body
            for of_resource in request.resource_spans:
                named = {each.key: each.value.string_value for each in of_resource.resource.attributes}
                self.services.add(named["service.name"])
                for of_scope in of_resource.scope_spans:
                    self.spans += of_scope.spans
            self.changed.notify_all()

    def of_request(self, request_id: str) -> dict[str, Span]:
        """The spans of a call, by name; the call's own must be there."""
        (call,) = (span for span in self.spans if attributes(span).get("edge_rag.request_id") == request_id)
        return {span.name: span for span in self.spans if span.trace_id == call.trace_id}


def attributes(span: Span) -> dict[str, object]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "") for each in span.attributes}


@contextmanager
def serving() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.endpoint = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
