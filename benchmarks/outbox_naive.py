"""A relay without any safety: it reads rows, produces them, and ends them. It shows what the real one's
claims and leases cost, and how much of a bare producer loop a reader of a table can reach.

It claims nothing, so no second process may run, a recall that comes meanwhile is overlooked, and a row with
a lower id whose transaction commits late is skipped. It knows no retry, no order per key and no alert.

One thread does all, so nobody waits for the interpreter. PostgreSQL works ahead: it reads the next rows
and ends the last ones while these are handed to Kafka's client.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from confluent_kafka import Producer
from psycopg import pq

_READ: Final = """
SELECT next_at, id, topic, msg_key, headers, payload FROM hongyan_outbox
 WHERE next_at > $1::bigint ORDER BY next_at LIMIT $2::bigint"""
"""Each row's `next_at` is its own: the benchmark makes them so."""
_DROP: Final = "DELETE FROM hongyan_outbox WHERE id = ANY($1::bigint[])"
_KEEP: Final = """
UPDATE hongyan_outbox SET state = 'SENT', next_at = NULL, done_at = created_at
 WHERE id = ANY($1::bigint[])"""
_SETTINGS: Final = (
    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET synchronous_commit = off"
)
_POLL_EVERY: Final = 64
_LOOK_S: Final = 0.002


class _Batch:
    """Rows under way."""

    def __init__(self, ids: Sequence[bytes]) -> None:
        self.ids = ids
        self.open = len(ids)  # reports write it, in the thread of `run`, which polls

    def ended(self, error: object, _message: object) -> None:
        """Takes librdkafka's report of one row. Raises RuntimeError: a benchmark must not go on."""
        if error is not None:
            raise RuntimeError(f"Kafka did not acknowledge a row: {error}")
        self.open -= 1


class NaiveRelay:
    """Opens its connections at once. One thread calls `run`, once, then `close`."""

    def __init__(self, database_url: str, producer: Producer, limit: int, *, keep: bool) -> None:
        """`limit`: rows of a batch. `keep`: rows stay as SENT; else they are deleted."""
        self._producer = producer
        self._limit = limit
        self._end = (_KEEP if keep else _DROP).encode()
        self._connections = [psycopg.connect(database_url, autocommit=True) for _ in range(2)]
        for connection in self._connections:
            connection.execute(_SETTINGS)
        self._reader, self._ender = (_Ahead(one.pgconn) for one in self._connections)
        self._open = deque[_Batch]()

    def run(self) -> None:
        """Relays all rows."""
        self._ask(0)
        while rows := self._reader.rows():
            self._ask(int(rows[-1][0]))
            self._produce(rows)
            self._end_rows()
        while self._open or self._ender.is_busy:
            self._producer.poll(_LOOK_S)
            self._end_rows()

    def close(self) -> None:
        """Closes the connections."""
        for connection in self._connections:
            connection.close()

    def _ask(self, after: int) -> None:
        self._reader.send(_READ.encode(), b"%d" % after, b"%d" % self._limit)

    def _produce(self, rows: Sequence[tuple[bytes, ...]]) -> None:
        batch = _Batch([row[1] for row in rows])
        for number, (_due, _id, topic, key, headers, payload) in enumerate(rows):
            pairs = [(name, value) for name, value in json.loads(headers)]
            while True:
                try:
                    self._producer.produce(
                        topic.decode(), payload, key, headers=pairs, on_delivery=batch.ended
                    )
                    break
                except BufferError:
                    self._producer.poll(_LOOK_S)
            if not number % _POLL_EVERY:
                self._producer.poll(0)
        self._open.append(batch)

    def _end_rows(self) -> None:
        """Ends the first batches whose rows are all acknowledged, unless the server still ends others."""
        if self._ender.is_busy:
            return
        ids: list[bytes] = []
        while self._open and not self._open[0].open:
            ids += self._open.popleft().ids
        if ids:
            self._ender.send(self._end, b"{%s}" % b",".join(ids))


class _Ahead:
    """One statement at a time, whose answer is fetched later."""

    def __init__(self, connection: Any) -> None:
        """`connection`: of libpq."""
        self._connection = connection
        self._sent = False

    @property
    def is_busy(self) -> bool:
        """Whether an answer is still to come. Raises RuntimeError for the server's error."""
        if self._sent:
            self._connection.consume_input()
            if not self._connection.is_busy():
                self.rows()
        return self._sent

    def send(self, statement: bytes, *arguments: bytes) -> None:
        """Sends a statement. An earlier answer must have been fetched."""
        self._connection.send_query_params(statement, list(arguments))
        while self._connection.flush():
            pass
        self._sent = True

    def rows(self) -> list[tuple[bytes, ...]]:
        """Waits for the answer and returns its rows. Raises RuntimeError for the server's error."""
        result = self._connection.get_result()
        while self._connection.get_result() is not None:
            pass
        self._sent = False
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise RuntimeError(result.error_message.decode())
        value, fields = result.get_value, range(result.nfields)
        return [tuple(value(row, field) for field in fields) for row in range(result.ntuples)]
