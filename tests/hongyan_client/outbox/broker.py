"""A broker whose every answer a test decides."""

from __future__ import annotations

from concurrent.futures import Future

from hongyan_client.records import Acknowledged, Record


class Broker:
    """Stands for `Publisher`: keeps what came, and answers at once, or when the test says so."""

    def __init__(self) -> None:
        self.came: list[Record] = []
        self.failure: BaseException | None = None
        self.refusal: BaseException | None = None
        self.silent = False

    def publish(self, record: Record, deadline_s: float) -> Future[Acknowledged]:
        if self.refusal is not None:
            raise self.refusal
        self.came.append(record)
        future: Future[Acknowledged] = Future()
        if self.failure is not None:
            future.set_exception(self.failure)
        elif not self.silent:
            future.set_result(Acknowledged(record.topic, 0, len(self.came), 0))
        return future

    @property
    def ids(self) -> list[str]:
        return [dict(record.headers)["hongyan-id"].decode() for record in self.came]
