"""Ids that need no coordination: UUIDv7 (RFC 9562 §5.7), time-ordered, for notifications and tokens."""

from __future__ import annotations

from uuid_utils import uuid4, uuid7


def new_id() -> str:
    """A fresh notification id: 32 hex digits of a UUIDv7, so ids sort by the time of the send call."""
    return uuid7().hex


def new_token() -> int:
    """A fencing token for one claim: 63 bits, 58 of them random, so that it fits a signed BIGINT and never
    repeats. The system's own source of chance gives the interpreter away, and the settling thread waited
    for it after each batch (docs/decisions/040-threads-and-the-interpreter-lock.md)."""
    return uuid4().int >> 65 | 1
