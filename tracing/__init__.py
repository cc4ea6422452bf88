"""What became of every message, told stage by stage. Importing this loads no driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backends.settings import Settings
    from tracing.events import Recorder


def open_recorder(settings: Settings) -> Recorder:
    """The recorder that `[trace]` asks for. It starts threads at once and connects by itself; that
    Kafka or the database is away keeps nobody from starting."""
    from tracing.opening import recorder_for  # so that Spark can import the vocabulary alone

    return recorder_for(settings)
