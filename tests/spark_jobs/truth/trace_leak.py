"""Takes events out of a process's trace after they got their numbers, and writes down which.

The fault `trace_leaks` (tests/harness/faults.py) puts it between the Kafka sink and its producer. A record
that loses events goes out in pieces, each with the number of its own first event, as if single events had
vanished on the way. The book is on disk before the pieces are produced: one JSON line per event,
[life, number, delivery key, stage].
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tracing import record_headers
from tracing.record_headers import END, FIRST, LIFE

UNTRACED = "untraced"
"""`biz_id` of notifications all of whose events vanish."""
CLIENT = "hongyan-trace"
"""`client_id` of the sink's producer."""
_TRIES, _WAIT_S = 100, 0.1
Headers = Sequence[tuple[str, bytes]]


class Order(msgspec.Struct, frozen=True):
    """Settings of the leak: the environment variable TRACE_LEAK, as JSON."""

    folder: str
    share: float
    seed: int


@dataclass(frozen=True)
class Piece:
    """Events that stay together, and the number of the first one."""

    first: int
    events: list[dict[str, Any]]
    last: bool
    """Whether nothing of the record follows it."""


def install(order: str) -> None:
    """Puts the leak before every trace producer that this process opens from now on."""
    from backends.kafka import clients

    told = msgspec.json.decode(order, type=Order)
    opened = clients.producer

    def leaking(*arguments: Any, **named: Any) -> Any:
        producer = opened(*arguments, **named)
        return Leak(producer, told) if named.get("client_id") == CLIENT else producer

    clients.producer = leaking


class Leak:
    """A producer that loses a share of the events. One thread uses it, as it does the producer."""

    def __init__(self, producer: Any, order: Order) -> None:
        self._producer = producer
        self._share = order.share
        self._luck = random.Random(f"{order.seed}/{os.getpid()}")
        book = Path(order.folder) / f"removed-{os.getpid()}-{id(self):x}.jsonl"
        self._book = os.open(book, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def produce(
        self,
        topic: str,
        value: bytes,
        headers: Headers = (),
        on_delivery: Callable[..., None] | None = None,
        **named: Any,
    ) -> None:
        """Produces what is left of a record; the last piece answers for all."""
        given = dict(headers)
        events, first, life = json.loads(value), int(given[FIRST]), given[LIFE].decode()
        gone = [self._goes(event) for event in events]
        self._note(life, first, events, gone)
        pieces = list(pieces_of(first, events, gone, ends=END in given))
        for piece in pieces:
            self._insist(
                topic,
                value=json.dumps(piece.events, ensure_ascii=False).encode(),
                headers=_renumbered(headers, piece),
                on_delivery=on_delivery if piece.last else None,
                **named,
            )
        if not pieces and on_delivery is not None:
            on_delivery(None, None)

    def _insist(self, topic: str, **record: Any) -> None:
        """Produces one piece, and waits where the producer is full: the sink would offer all again."""
        for _ in range(_TRIES):
            try:
                self._producer.produce(topic, **record)
                return
            except BufferError:
                self._producer.poll(_WAIT_S)
        raise RuntimeError("the producer of the trace was full for too long")

    def _goes(self, event: dict[str, Any]) -> bool:
        return event.get("biz_id") == UNTRACED or self._luck.random() < self._share

    def _note(
        self, life: str, first: int, events: Sequence[dict[str, Any]], gone: Sequence[bool]
    ) -> None:
        lines = [
            json.dumps([life, first + index, event.get("delivery_key", ""), event["stage"]]) + "\n"
            for index, event in enumerate(events)
            if gone[index]
        ]
        if lines:
            os.write(self._book, "".join(lines).encode())


def pieces_of(
    first: int, events: Sequence[dict[str, Any]], gone: Sequence[bool], *, ends: bool
) -> Iterator[Piece]:
    """Yields runs of events that are left. A life's last record keeps its end, without events if its own
    last ones are gone: the end says how many there were."""
    runs: list[tuple[int, list[dict[str, Any]]]] = []
    for index, event in enumerate(events):
        if gone[index]:
            continue
        if index and not gone[index - 1]:
            runs[-1][1].append(event)
        else:
            runs.append((first + index, [event]))
    if ends and (not events or gone[-1]):
        runs.append((first + len(events), []))
    for number, (start, kept) in enumerate(runs, 1):
        yield Piece(start, kept, last=number == len(runs))


def _renumbered(headers: Headers, piece: Piece) -> list[tuple[str, bytes]]:
    return [
        (name, str(piece.first).encode() if name == record_headers.FIRST else value)
        for name, value in headers
        if name != END or piece.last
    ]
