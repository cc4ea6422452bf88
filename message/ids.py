"""Ids that need no coordination: UUIDv7 (RFC 9562 §5.7), time-ordered, for notifications and tokens."""

from __future__ import annotations

from uuid_utils import uuid4, uuid7


def new_id() -> str:
    """Returns a fresh notification id: 32 hex digits of a UUIDv7, so that ids sort by time of creation."""
    return uuid7().hex


def new_token() -> int:
    """Returns a fencing token for one claim: 63 bits, 58 of them random, so that it fits a signed BIGINT
    and never repeats. The system's random source releases the interpreter lock, and the settling thread
    waited for that lock after each batch (docs/decisions/040-threads-and-the-interpreter-lock.md)."""
    return uuid4().int >> 65 | 1
