"""Hands sends over to the overflow, in the order in which they came, by one thread."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from typing import Final

from hongyan_client.errors import BufferFull, ClientError
from hongyan_client.overflow import BulkOverflow, ExpiringRecord, Overflow
from hongyan_client.records import Record
from hongyan_client.sends.pending_send import PendingSend

log = logging.getLogger("hongyan_client")

_BATCH: Final = 500
_Key = tuple[str, bytes | None]


class OverflowQueue:
    """Sends on their way to the overflow. Until a send is durable there, its key is held here.

    It is bounded by the publisher's buffer for records that were taken back, and by `limit` for others.
    """

    def __init__(self, overflow: Overflow, limit: int) -> None:
        self._overflow = overflow
        self._limit = limit
        self._changed = threading.Condition()
        # Guarded by _changed: callers add, our thread removes.
        self._queue: deque[PendingSend] = deque()
        self._keys: Counter[_Key] = Counter()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="hongyan-overflow", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._queue)

    def may_pass(self, topic: str, key: bytes | None) -> bool:
        """Whether no earlier record of the key waits, here or in the overflow."""
        return (topic, key) not in self._keys and not self._overflow.holds(topic, key)

    def put(self, send: PendingSend) -> None:
        """Queues a send that was taken back from Kafka's buffer. Never waits."""
        with self._changed:
            self._add(send)

    def put_new(self, send: PendingSend, deadline_s: float) -> None:
        """Queues a send. Waits for room, at most `deadline_s` seconds. Raises BufferFull."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._queue) < self._limit, deadline_s):
                raise BufferFull(
                    f"neither Kafka nor the spool took the record within {deadline_s:g} s; is the "
                    "broker reachable, and is the disk quick enough?"
                )
            self._add(send)

    def close(self, timeout_s: float) -> None:
        """Waits until all is kept, at most `timeout_s` seconds; idempotent."""
        until = time.monotonic() + timeout_s
        with self._changed:
            self._changed.wait_for(lambda: not self._keys, timeout_s)
            self._closed = True
            self._changed.notify_all()
        self._thread.join(max(0.0, until - time.monotonic()))

    def _add(self, send: PendingSend) -> None:
        self._queue.append(send)
        self._keys[_key(send)] += 1
        self._changed.notify_all()

    def _run(self) -> None:
        while sends := self._batch():
            self._keep(sends)
            with self._changed:
                for send in sends:
                    key = _key(send)
                    self._keys[key] -= 1
                    if not self._keys[key]:
                        del self._keys[key]
                self._changed.notify_all()

    def _batch(self) -> list[PendingSend]:
        """Returns the next sends; none after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._queue) or self._closed)
            return [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH))]

    def _keep(self, sends: list[PendingSend]) -> None:
        """Keeps the sends by one commit where the overflow can, else one by one; ends each."""
        overflow = self._overflow
        if isinstance(overflow, BulkOverflow) and len(sends) > 1:
            try:
                overflow.keep_all([_expiring(send) for send in sends])
            except Exception as exc:  # perhaps of one record alone: each is tried by itself
                log.warning("the overflow did not keep %d records at once: %s", len(sends), exc)
            else:
                for send in sends:
                    send.spooled()
                return
        for send in sends:
            self._keep_one(send)

    def _keep_one(self, send: PendingSend) -> None:
        try:
            self._overflow.keep(*_expiring(send))
        except ClientError as exc:
            send.end(exc)
        except Exception as exc:  # of an overflow that is not ours: its caller must hear it
            log.exception("the overflow failed")
            send.end(ClientError(f"the overflow failed ({exc}); the record was not kept"))
        else:
            send.spooled()


def _record(send: PendingSend) -> Record:
    assert send.record is not None, "the core makes it before it hands a send over"
    return send.record


def _key(send: PendingSend) -> _Key:
    record = _record(send)
    return record.topic, record.key


def _expiring(send: PendingSend) -> ExpiringRecord:
    return ExpiringRecord(_record(send), send.expires_at)
