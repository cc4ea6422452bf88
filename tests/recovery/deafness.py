"""A Celery worker that is connected and reads no queue, as one became after an outage of Redis."""

from __future__ import annotations

from typing import Any

from kombu.transport import redis


def deafen_the_first() -> None:
    """The first poller of this process never asks Redis for a task; all later ones do."""
    poller: Any = redis.MultiChannelPoller
    ask, deaf = poller.on_poll_start, list[object]()

    def on_poll_start(self: object) -> None:
        if not deaf:
            deaf.append(self)
        if self is not deaf[0]:
            ask(self)

    poller.on_poll_start = on_poll_start
