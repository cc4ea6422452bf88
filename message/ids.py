"""Ids that need no coordination: UUIDv7 (RFC 9562 §5.7), time-ordered, for notifications and tokens."""

from __future__ import annotations

import secrets

from uuid_utils import uuid7


def new_id() -> str:
    """A fresh notification id: 32 hex digits of a UUIDv7, so ids sort by the time of the send call."""
    return uuid7().hex


def new_token() -> int:
    """A fencing token for one claim: 63 random bits, so that it fits a signed BIGINT and never repeats."""
    return secrets.randbits(63) | 1
