"""The progress of a batch before its next try. Pure rules; the row of the request keeps it as text.

An item that Kafka acknowledged stays accepted, whatever the next try would find about it. An item in doubt
was handed over without an acknowledgement: Kafka may have it.
"""

from __future__ import annotations

from typing import Final

import msgspec

_INTERRUPTED: Final = "!"
"""Before the text: a later try ended without a word."""


class AcceptedItem(msgspec.Struct, frozen=True):
    """A notification that Kafka has."""

    id: str
    lane: str


class BatchProgress(msgspec.Struct, frozen=True):
    """The notes of earlier tries."""

    accepted: dict[int, AcceptedItem] = {}
    """By index."""
    in_doubt: frozenset[int] | None = frozenset()
    """Indexes that Kafka may have; None: it may have each one that is not accepted."""

    def may_be_in_kafka(self, index: int) -> bool:
        """Returns whether an earlier try may have reached Kafka with this item."""
        return self.in_doubt is None or index in self.in_doubt


FIRST_TRY: Final = BatchProgress()
_decoder = msgspec.json.Decoder(BatchProgress)


def progress_text(progress: BatchProgress) -> str:
    """Returns what a row keeps."""
    return msgspec.json.encode(progress).decode()


def progress_of(text: str) -> BatchProgress:
    """Returns the notes in a row of which there was a try; empty: it left none."""
    noted = text.lstrip(_INTERRUPTED)
    found = _decoder.decode(noted) if noted else FIRST_TRY
    return found if text == noted and noted else BatchProgress(found.accepted, None)
