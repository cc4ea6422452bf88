"""A valid APNs account and notification, for the suite over all adapters."""

from __future__ import annotations

from typing import Any

from message.envelope import Notification

PRIVATE_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgq65qyRj7OqW0X1rA
IA1DBDh2GFsu9qps9IA+r45DvsOhRANCAAT7apzL4ep7Fh/BaX8CKt8AJTLz3F15
8nKC3znMMFx0pAmu2wIp8YOwZHAzEnubN9eewCPMk2CTd7mlgnCUa7O8
-----END PRIVATE KEY-----
"""
"""Made for tests: the simulator knows its public half, and nobody else takes it."""

PATH = "/apns"
ACCOUNT: dict[str, Any] = {
    "provider": "apns",
    "team_id": "SIMULATOR0",
    "key_id": "SIMULATOR1",
    "private_key": PRIVATE_KEY,
    "topic": "com.example.simulator",
}
PER_RECEIVER: frozenset[str] = frozenset()
UNREACHABLE: dict[str, str] = {
    "ExpiredProviderToken": "of a token of this half hour it is a refused login; test_apns.py tries both",
}
LIMITED = True
BY_STATUS = True


def notification(number: int) -> Notification:
    """One notification, unlike those of other numbers."""
    return Notification(
        id=f"{PATH[1:]}-{number}",
        channel="push",
        kind="notice",
        receivers=[f"{number:064x}"],
        content={"title": "a notice", "text": f"notice {number}"},
        created_at=1_700_000_000_000,
        ttl_ms=86_400_000,
    )
