"""A process that fills a spool while Kafka is away, until it is killed: `benchmarks.spool` starts it.

    python -m benchmarks.spool_keeper FOLDER RECORDS

Each line on standard output says how many records were kept so far, and its resident memory in MiB. The
first line is that of a spool that has just been opened.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.ground import LANE, notification
from benchmarks.meter import resident_mib
from hongyan_client.errors import ClientError
from hongyan_client.records import Acknowledged, Record
from hongyan_client.spool.spool import Spool
from message.envelope import encode

AT_ONCE: Final = 500
"""Records of one commit, about as many as the client takes back from its buffer."""
MAX_BYTES: Final = 4 << 30
_LIFE_MS: Final = 24 * 3_600_000


class AwayPublisher:
    """Kafka does not take anything."""

    def publish(self, record: Record, deadline_s: float) -> Future[Acknowledged]:
        """Raises ClientError."""
        raise ClientError("Kafka is away for this benchmark")


def made(topic: str, records: int) -> list[tuple[Record, int]]:
    """Returns records of ordinary size with keys of their own, and their ends in epoch milliseconds."""
    return [_made(topic, number) for number in range(records)]


def _made(topic: str, number: int) -> tuple[Record, int]:
    item = notification(number)
    key = item.id.encode()
    record = Record(topic, key, encode(item), [("hongyan-id", key)])
    return record, item.created_at + _LIFE_MS


def _batches(topic: str) -> Iterator[list[tuple[Record, int]]]:
    for batch in count():
        yield [_made(topic, batch * AT_ONCE + number) for number in range(AT_ONCE)]


def main(folder: str, records: str) -> None:
    """Keeps batches up to that many records, then one record after the other, for ever."""
    topic, wanted = LANE.topic("spool"), int(records)
    spool = Spool(Path(folder), AwayPublisher(), max_bytes=MAX_BYTES)
    kept = 0
    print(kept, resident_mib(), flush=True)
    for batch in _batches(topic):
        if kept >= wanted:
            for record, end in batch:
                spool.keep(record, end)
                kept += 1
                print(kept, resident_mib(), flush=True)
            continue
        spool.keep_all(batch)
        kept += len(batch)
        print(kept, resident_mib(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
