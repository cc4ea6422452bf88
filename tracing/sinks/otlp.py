"""Trace events as spans to an OpenTelemetry collector, over OTLP/HTTP with protobuf.

The exporter repeats a request for `telemetry.timeout_s`. After that, a collector that is away or overloaded
gets the same batch again; any other answer than 2xx means that it will never take this batch.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.util.re import parse_env_headers
from requests.adapters import HTTPAdapter

from backends.settings import Settings, TelemetrySettings
from tracing.drops import Drops
from tracing.events import TraceEvent
from tracing.recorder import Sink, SinkAway
from tracing.spans import SpanMaker

PATH: Final = "/v1/traces"
_BUSY: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class SpansRefused(Exception):
    """The collector will not take this batch; the text has its answer."""


def open_otlp_sink(settings: Settings, _drops: Drops) -> Sink:
    """Returns a sink with a connection of its own."""
    telemetry = settings.telemetry
    spans = SpanMaker(telemetry.service_name, telemetry.sample_ratio)
    return OtlpSink(spans, telemetry)


class OtlpSink:
    """Used by one thread."""

    def __init__(self, spans: SpanMaker, telemetry: TelemetrySettings) -> None:
        # The recorder logs an outage once; the exporter would log it at each request.
        logging.getLogger(OTLPSpanExporter.__module__).disabled = True
        self._spans = spans
        self._session = CollectorSession(telemetry.ca_file)
        self._exporter = OTLPSpanExporter(
            endpoint=url_of(telemetry.otlp_endpoint),
            headers=parse_env_headers(telemetry.headers, liberal=True),
            timeout=telemetry.timeout_s,
            compression=Compression.Gzip,
            session=self._session,
        )

    def write(self, events: Sequence[TraceEvent]) -> None:
        """Sends the batch's spans, if any are sampled. Raises SinkAway or SpansRefused."""
        spans = self._spans.spans_of(events)
        if not spans:
            return
        self._session.forget()
        self._exporter.export(spans)
        self._session.check()

    def close(self, timeout_s: float, last: bool = False) -> None:
        """Closes the connection; nothing is under way between two writes."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class CollectorSession(requests.Session):
    """Remembers the last answer: the exporter itself tells success and failure only."""

    def __init__(self, ca_file: str) -> None:
        super().__init__()
        self.trust_env = False  # ~/.netrc would replace the header Authorization
        if ca_file:
            self.mount("https://", _TrustingAdapter(ca_file))
        self.forget()

    def forget(self) -> None:
        """Forgets the last answer."""
        self._status, self._cause = 0, "no request was made"

    def request(self, *arguments: Any, **options: Any) -> requests.Response:
        """See `requests.Session.request`."""
        self._status = 0
        try:
            response = super().request(*arguments, **options)
        except (requests.RequestException, OSError) as exc:
            self._cause = f"{type(exc).__name__}: {exc}"
            raise
        self._status = response.status_code
        self._cause = f"the collector answered {response.status_code} {response.reason}"
        return response

    def check(self) -> None:
        """Raises SinkAway or SpansRefused unless the last answer was 2xx."""
        status = self._status
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return
        if not status or status in _BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise SinkAway(self._cause)
        raise SpansRefused(self._cause)


class _TrustingAdapter(HTTPAdapter):
    """Trusts the authorities of a file beside the public ones."""

    def __init__(self, ca_file: str) -> None:
        self._ca_file = ca_file
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """See `HTTPAdapter.init_poolmanager`."""
        options["ssl_context"] = ssl.create_default_context(cafile=self._ca_file)
        super().init_poolmanager(*arguments, **options)


def url_of(endpoint: str) -> str:
    """Returns the URL for traces under a collector's address; an address that ends with it stays."""
    base = endpoint.rstrip("/")
    return base if base.endswith(PATH) else base + PATH
