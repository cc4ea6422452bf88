"""Headers of a Kafka record of the trace topic: they make missing events countable.

A life is one recorder of one process. It numbers its events from 0 in the order in which
it writes them, and goes on where its producer is opened again after an error. A record holds consecutive
numbers. A gap between the records of a life is a loss, and so is the rise of `dropped`; no event is counted
by both. Records of earlier versions have no headers.

    hongyan-trace-life      <process id>/<16 hex digits, random>
    hongyan-trace-first     number of the record's first event
    hongyan-trace-dropped   events that the life lost so far before they got a number
    hongyan-trace-end       1 on the last record of a life that ended in order: an empty array, whose
                            `first` is the number of all events

A life without its end was killed: its last events may be missing, and nobody can say how many.
"""

from __future__ import annotations

from typing import Final

LIFE: Final = "hongyan-trace-life"
FIRST: Final = "hongyan-trace-first"
DROPPED: Final = "hongyan-trace-dropped"
END: Final = "hongyan-trace-end"


def record_headers(
    life: str, first: int, dropped: int, *, end: bool = False
) -> list[tuple[str, bytes]]:
    """Returns the headers of one record: ASCII text, numbers in decimal."""
    headers = [
        (LIFE, life.encode()),
        (FIRST, str(first).encode()),
        (DROPPED, str(dropped).encode()),
    ]
    return [*headers, (END, b"1")] if end else headers
