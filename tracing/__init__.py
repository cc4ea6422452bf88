"""The trace: every message's history, stage by stage. Importing this loads no driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backends.settings import Settings
    from tracing.events import Recorder


def open_recorder(settings: Settings, process: str = "", *, spans: bool = False) -> Recorder:
    """Returns the recorder that `[trace]` asks for; with `spans`, `[telemetry]` too. `process` names its
    life in Kafka (tracing/record_headers.py); empty: host and process number do. It starts threads at
    once and connects by itself: an outage of Kafka, the database or the collector prevents no start."""
    from tracing.opening import recorder_for  # so that Spark can import the vocabulary alone

    return recorder_for(settings, process, spans=spans)
