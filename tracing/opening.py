"""Opens the sinks that the settings ask for."""

from __future__ import annotations

from functools import partial

from backends.settings import Settings
from tracing.database_sink import open_database_sink
from tracing.events import NoRecorder, Recorder
from tracing.kafka_sink import open_kafka_sink
from tracing.recorder import OpenSink, QueuedRecorder


def recorder_for(settings: Settings, *, spans: bool) -> Recorder:
    """Returns a recorder with a queue and a thread for each sink; NoRecorder where none is on."""
    sinks: dict[str, OpenSink] = {}
    if settings.trace.kafka:
        sinks["kafka"] = partial(open_kafka_sink, settings)
    if settings.trace.database:
        sinks["database"] = partial(open_database_sink, settings)
    if spans and settings.telemetry.otlp_endpoint:
        from tracing.otlp_sink import open_otlp_sink  # loads OpenTelemetry, which is an extra

        sinks["otlp"] = partial(open_otlp_sink, settings)
    return QueuedRecorder(sinks, buffer=settings.trace.buffer) if sinks else NoRecorder()
