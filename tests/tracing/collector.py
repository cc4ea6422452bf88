"""An OpenTelemetry collector for tests: the official protobuf schema reads each request."""

from __future__ import annotations

import gzip
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """Takes OTLP over HTTP on a free port. Its handler threads write; the test reads."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answers: list[int] = []
        """Statuses of the next answers; then 200."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        scheme = "https" if context else "http"
        self.endpoint = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def spans(self) -> list[Span]:
        """All spans taken, in their order."""
        return [
            span
            for request in list(self.requests)
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
                request = ExportTraceServiceRequest.FromString(body)
                status = collector.answers.pop(0) if collector.answers else 200
                collector.paths.append(self.path)
                collector.headers.append({k.lower(): v for k, v in self.headers.items()})
                if status == 200:
                    collector.requests.append(request)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_arguments: Any) -> None:
                """Writes nothing."""

        return Handler


def attributes_of(span: Span) -> dict[str, Any]:
    """Returns the attributes of one span."""
    return {
        one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value")
        for one in span.attributes
    }
