"""Families that relays alone show."""

from __future__ import annotations

from functools import partial
from typing import Final

from backends.metrics import families

_BY: Final = (families.RELAY,)
_counter = partial(families.counter, by=_BY)
_gauge = partial(families.gauge, by=_BY)

PUBLISHED: Final = _counter(
    "relay_published", "Rows of the outbox that Kafka acknowledged.", "lane"
)
FAILED: Final = _counter(
    "relay_failed",
    "Attempts without an acknowledgement: `refused`, `in_doubt`, or `parked` for a person.",
    "kind",
    watch="`parked`: a person must release or recall the rows",
)
FENCED: Final = _counter(
    "relay_fenced",
    "Rows that another relay had taken when this one came to mark them.",
    watch="a steady rise: the lease is shorter than Kafka's answers",
)
CLAIM_SECONDS: Final = families.histogram(
    "relay_claim_seconds",
    "Time of one claim.",
    by=_BY,
    watch="growth: dead rows pile up; look at the database's vacuum",
)
PENDING: Final = _gauge(
    "relay_pending",
    "Rows that should have gone and have not; counted up to 10,000; -1: unknown.",
)
OLDEST_SECONDS: Final = _gauge(
    "relay_oldest_seconds",
    "Age of the oldest of them; -1: unknown.",
    watch="more than a minute: Kafka is away, or a key's head is parked",
)
PARKED: Final = _gauge(
    "relay_parked",
    "Rows that wait for a person; counted up to 10,000; -1: unknown.",
    watch="any",
)

FAMILIES: Final = tuple(one for one in list(vars().values()) if isinstance(one, families.Family))
"""All of the above, in their order."""
