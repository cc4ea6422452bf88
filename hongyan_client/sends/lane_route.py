"""The topic, the time to live and the acknowledgements of one lane, found once for a client."""

from __future__ import annotations


class LaneRoute:
    """Topic, time to live and acknowledgements of a lane."""

    __slots__ = ("acknowledged", "name", "topic", "ttl_ms")

    def __init__(self, name: str, topic: str, ttl_ms: int) -> None:
        self.name = name
        self.topic = topic
        self.ttl_ms = ttl_ms
        self.acknowledged = 0  # written by the holder of the publisher's poll lock
