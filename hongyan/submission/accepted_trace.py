"""The trace of a command that hands notifications to Kafka."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sending.accepted_trace import AcceptedTrace
from tracing import open_recorder
from tracing.masks import hasher

if TYPE_CHECKING:
    from backends.settings import Settings


@contextmanager
def accepted_trace(settings: Settings, command: str) -> Iterator[AcceptedTrace]:
    """Opens the trace of one command; its events are written before it closes. They go to Kafka alone: a
    producer needs no database."""
    to_kafka = replace(settings, trace=replace(settings.trace, database=False))
    recorder = open_recorder(to_kafka, f"{command}-{socket.gethostname()}-{os.getpid()}")
    try:
        yield AcceptedTrace(recorder, command, hasher(settings.outcomes.hash_key))
    finally:
        recorder.close()
