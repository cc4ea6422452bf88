"""Opens the sinks that the settings ask for."""

from __future__ import annotations

import os
import socket
from functools import partial

from backends.settings import Settings
from tracing.events import NoRecorder, Recorder
from tracing.recorder import OpenSink, QueuedRecorder
from tracing.sinks.database import open_database_sink
from tracing.sinks.kafka import open_kafka_sink
from tracing.trace_records import SINK, TraceLife


def recorder_for(settings: Settings, process: str, *, spans: bool) -> Recorder:
    """Returns a recorder with a queue and a thread for each sink; NoRecorder where none is on. `process`
    names the life; empty: host and process number do."""
    sinks: dict[str, OpenSink] = {}
    if settings.trace.kafka:
        life = TraceLife(process or f"{socket.gethostname()}-{os.getpid()}")
        sinks[SINK] = partial(open_kafka_sink, settings, life)
    if settings.trace.database:
        sinks["database"] = partial(open_database_sink, settings)
    if spans and settings.telemetry.otlp_endpoint:
        from tracing.sinks.otlp import open_otlp_sink  # loads OpenTelemetry, which is an extra

        sinks["otlp"] = partial(open_otlp_sink, settings)
    return QueuedRecorder(sinks, buffer=settings.trace.buffer) if sinks else NoRecorder()
