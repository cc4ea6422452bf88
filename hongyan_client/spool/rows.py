"""A record as the spool's file has it. SQLite has no checksums of its own, so each row brings one."""

from __future__ import annotations

import hashlib
import os
import zlib
from typing import Final, NamedTuple

import msgspec

from hongyan_client.records import Record
from message.envelope import EnvelopeError, decode
from tracing.masks import mask

_LINE_BYTES: Final = 16
_SHOWN: Final = 20
"""Receivers that a listing names of one record."""


class SpooledRow(NamedTuple):
    """One row of the table records; times are epoch milliseconds."""

    id: int
    line: bytes
    topic: str
    key: bytes | None
    value: bytes
    headers: bytes
    kept_at: int
    expires_at: int
    checksum: int
    parked: int
    attempts: int
    last_error: str

    @property
    def intact(self) -> bool:
        """Whether the row has the bytes that were written. A changed one may have values of other types."""
        try:
            found = checksum(self.topic, self.key, self.value, self.headers, self.expires_at)
        except (TypeError, AttributeError, ValueError):
            return False
        return found == self.checksum and isinstance(self.expires_at, int)

    def record(self) -> Record:
        """Returns the record to publish."""
        headers = msgspec.msgpack.decode(self.headers, type=list[tuple[str, bytes]])
        return Record(self.topic, self.key, self.value, headers)


class MaskedMessage(NamedTuple):
    """The contents of a record in a listing."""

    message_id: str
    receivers: str


def line_of(topic: str, key: bytes | None) -> bytes:
    """Returns the line of a topic and key; a new one for a record without a key."""
    if key is None:
        return os.urandom(_LINE_BYTES)
    return hashlib.sha256(topic.encode() + b"\0" + key).digest()[:_LINE_BYTES]


def packed_headers(record: Record) -> bytes:
    """Returns the headers as bytes."""
    return msgspec.msgpack.encode(list(record.headers))


def checksum(topic: str, key: bytes | None, value: bytes, headers: bytes, expires_at: int) -> int:
    """Returns the CRC-32 of what a drain needs."""
    found = zlib.crc32(f"{topic}\0{expires_at}\0{key is None}".encode())
    for part in (key or b"", value, headers):
        found = zlib.crc32(part, zlib.crc32(len(part).to_bytes(8, "big"), found))
    return found


def masked_message(value: bytes) -> MaskedMessage:
    """Returns the id and the masked receivers of an envelope; empty texts for another value."""
    try:
        found = decode(value)
    except EnvelopeError:
        return MaskedMessage("", "")
    shown = [mask(found.channel, one) for one in found.receivers[:_SHOWN]]
    if len(found.receivers) > _SHOWN:
        shown.append(f"and {len(found.receivers) - _SHOWN} more")
    return MaskedMessage(found.id, ", ".join(shown))
