"""A Kafka message, and a producer that answers as told."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException


class FakeRecord:
    """A Kafka message."""

    def __init__(
        self, value: bytes, offset: int, topic: str = "look_back_msg", headers: Any = None
    ) -> None:
        """`headers`: an exception is raised by the one call that such a message bears."""
        self._value, self._offset, self._topic = value, offset, topic
        self._headers = headers

    def value(self) -> bytes:
        return self._value

    def key(self) -> bytes:
        return b"k"

    def headers(self) -> Any:
        if isinstance(self._headers, Exception):
            raise self._headers
        return self._headers

    def set_headers(self, headers: Any) -> None:
        self._headers = headers

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def error(self) -> Any:
        return None


class FakeProducer:
    """Acknowledges at `poll` and `flush`, or answers with `error`. `refuses`: the error of `produce`."""

    def __init__(self, did: list[str] | None = None) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.error: KafkaError | None = None
        self.refuses: KafkaError | None = None
        self.holding = False
        self.did = did if did is not None else []
        self._open: list[tuple[Callable[..., None], FakeRecord]] = []

    def produce(self, topic: str, value: Any, key: Any, headers: Any, on_delivery: Any) -> None:
        if self.refuses is not None:
            raise KafkaException(self.refuses)
        self.did.append("produced")
        self.sent.append((topic, value, key, headers))
        self._open.append((on_delivery, FakeRecord(value, len(self.sent), topic)))

    def poll(self, _timeout: float) -> None:
        if not self.holding:
            opened, self._open = self._open, []
            for report, record in opened:
                report(self.error, record)

    def flush(self, timeout: float) -> None:
        self.poll(timeout)
