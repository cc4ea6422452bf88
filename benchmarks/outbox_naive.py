"""A relay without any safety: it reads rows, produces them and deletes them. It shows what the real one's
claims, leases and marks cost, and how much of a bare producer loop a reader of a table can reach.

It claims nothing, so no second process may run, a recall that comes meanwhile is overlooked, and a row with
a lower id whose transaction commits late is skipped. It knows no retry, no order per key and no alert.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from confluent_kafka import Producer

_READ: Final = """
SELECT id, topic, msg_key, headers, payload FROM hongyan_outbox
 WHERE next_at IS NOT NULL AND id > %s ORDER BY next_at, id LIMIT %s"""
_DROP: Final = "DELETE FROM hongyan_outbox WHERE id = ANY(%s)"
_SETTINGS: Final = (
    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET synchronous_commit = off"
)
_UNMARKED: Final = 4


class _Batch:
    """Rows under way."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = ids
        self.open = len(ids)  # reports write it, in the marking thread, which polls

    def ended(self, error: object, _message: object) -> None:
        """Takes librdkafka's report of one row. Raises RuntimeError: a benchmark must not go on."""
        if error is not None:
            raise RuntimeError(f"Kafka did not acknowledge a row: {error}")
        self.open -= 1


class NaiveRelay:
    """Opens its connections at once. One thread calls `run`, once, then `close`."""

    def __init__(self, database_url: str, producer: Producer, limit: int) -> None:
        """`limit`: rows of a batch."""
        self._producer = producer
        self._limit = limit
        self._reader, self._marker = (
            psycopg.connect(database_url, autocommit=True) for _ in range(2)
        )
        for connection in (self._reader, self._marker):
            connection.execute(_SETTINGS)

    def run(self) -> None:
        """Relays all rows."""
        batches: queue.Queue[_Batch | None] = queue.Queue(_UNMARKED)
        thread = threading.Thread(target=_mark, args=(self._marker, self._producer, batches))
        thread.start()
        last = 0
        with self._reader.cursor(binary=True) as cursor:
            while rows := cursor.execute(_READ, (last, self._limit)).fetchall():
                last = rows[-1][0]
                batch = _Batch([row[0] for row in rows])
                _produce(self._producer, rows, batch)
                batches.put(batch)
        batches.put(None)
        thread.join()

    def close(self) -> None:
        """Closes the connections."""
        self._reader.close()
        self._marker.close()


def _produce(producer: Producer, rows: Sequence[Any], batch: _Batch) -> None:
    for _id, topic, key, headers, payload in rows:
        pairs = [(name, value) for name, value in json.loads(headers)]
        while True:
            try:
                producer.produce(
                    topic, payload.encode(), key.encode(), headers=pairs, on_delivery=batch.ended
                )
                break
            except BufferError:  # the marking thread polls
                threading.Event().wait(0.001)


def _mark(
    connection: psycopg.Connection[Any], producer: Producer, batches: queue.Queue[_Batch | None]
) -> None:
    """Deletes the rows of each batch once all are acknowledged."""
    while (batch := batches.get()) is not None:
        while batch.open:
            producer.poll(0.05)
        connection.execute(_DROP, (batch.ids,))
