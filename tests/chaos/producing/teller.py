"""A process that sends by the client with a spool, and keeps a journal of the ids that it was told yes for.

The journal is synced before the next notifications are sent, so it holds nothing but yeses. Killed at any
place, the next life goes on until the journal has its count and the driver has killed enough. At the end it
drains the spool.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hongyan_client.client import Client
from hongyan_client.composition import compose
from hongyan_client.options import ClientOptions
from hongyan_client.sends.pending_send import SentNotification
from hongyan_client.spool.spool import Spool
from tests.harness.launch import end_with

ORDER_VARIABLE = "CHAOS_TELLER"
LANE = "webhook.notice"
_CHUNK, _WAIT_S, _DRAIN_S = 200, 60.0, 300.0
_DEADLINE_S, _DELIVERY_S = 1.0, 4.0
"""Short, so that records go to the spool while a broker is away."""

log = logging.getLogger("teller")


class TellerOrder(msgspec.Struct, frozen=True):
    """All that a process is told at its start."""

    place: int
    count: int
    pause_s: float
    """Pause after each chunk: the kills shall meet the traffic."""
    folder: str
    bootstrap: str
    prefix: str


class Yes(msgspec.Struct, frozen=True):
    """One answer: an id, and whether the spool has it."""

    id: str
    spooled: bool


class Journal:
    """A synced file of answers. One thread."""

    def __init__(self, path: Path) -> None:
        self.count = sum(1 for _ in read_journal(path))
        _cut_torn_line(path)
        self._file = path.open("ab")

    def append(self, answers: list[Yes]) -> None:
        """Returns once they are on disk."""
        self._file.write(b"".join(msgspec.json.encode(one) + b"\n" for one in answers))
        self._file.flush()
        os.fdatasync(self._file.fileno())
        self.count += len(answers)


def read_journal(path: Path) -> Iterator[Yes]:
    """Yields the answers; a torn last line is none."""
    if path.exists():
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield msgspec.json.decode(line, type=Yes)


def _cut_torn_line(path: Path) -> None:
    if path.exists():
        whole = path.read_bytes().rpartition(b"\n")
        os.truncate(path, len(whole[0]) + len(whole[1]))


def journal_of(folder: Path, place: int) -> Path:
    """Returns the journal of a place."""
    return folder / f"journal-{place}.jsonl"


def enough_of(folder: Path) -> Path:
    """Returns the file that is there once enough was killed."""
    return folder / "enough"


def send_all(order: TellerOrder) -> int:
    """Sends until the journal has its count and the spool is empty. Returns the exit code."""
    folder = Path(order.folder)
    journal = Journal(journal_of(folder, order.place))
    options = ClientOptions(deadline_s=_DEADLINE_S, delivery_timeout_s=_DELIVERY_S)
    client = Client(
        order.bootstrap,
        client_id=f"teller-{order.place}",
        topic_prefix=order.prefix,
        options=options,
        overflow=lambda publisher: Spool(folder / f"spool-{order.place}", publisher),
    )
    refused: Counter[str] = Counter()
    log.info("teller_started")
    with client:
        while journal.count < order.count or not enough_of(folder).exists():
            journal.append(_answered(client, order, refused))
            time.sleep(order.pause_s)
        left = client.drain(_DRAIN_S)
    log.info("ended; refused: %s; left in the spool: %d", dict(refused), left)
    return 1 if left else 0


def _answered(client: Client, order: TellerOrder, refused: Counter[str]) -> list[Yes]:
    """Sends a chunk, and returns those that were answered with yes."""
    receivers = [f"teller-{order.place}"]
    items = (compose(LANE, receivers, content={"text": "paid"}) for _ in range(_CHUNK))
    summary = client.send_many(items, timeout_s=_WAIT_S)
    refused.update(type(one.error).__name__ for one in summary.failed)
    return [_yes(one) for one in summary.sent]


def _yes(sent: SentNotification) -> Yes:
    return Yes(sent.id, sent.is_spooled)


def main() -> int:
    """Runs the process that the environment describes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="teller")
    parser.add_argument("--leash", type=int, required=True)
    flags = parser.parse_args()
    threading.Thread(target=end_with, args=(flags.leash,), daemon=True).start()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    order = msgspec.json.decode(os.environ[ORDER_VARIABLE], type=TellerOrder)
    return send_all(order)


if __name__ == "__main__":
    sys.exit(main())
