"""Families that the gateway alone shows."""

from __future__ import annotations

from functools import partial
from typing import Final

from backends.metrics import families

_BY: Final = (families.GATEWAY,)
_counter = partial(families.counter, by=_BY)
_gauge = partial(families.gauge, by=_BY)

REQUESTS: Final = _counter(
    "gateway_requests",
    "Requests by route and status of the answer.",
    "route",
    "status",
    watch="503: Kafka or the database is away; 401: a wrong or revoked key",
)
ACCEPTED: Final = _counter(
    "gateway_accepted", "Notifications that Kafka acknowledged and the gateway accepted.", "lane"
)
REFUSED: Final = _counter(
    "gateway_refused", "Requests and items of batches that were refused, by code.", "code"
)
TOOK: Final = families.histogram(
    "gateway_request_seconds", "Time from a request's head to its answer.", by=_BY
)
KEYS_AGE: Final = _gauge(
    "gateway_keys_age_seconds",
    "Time since the API keys were last read; above 5 every request is put off.",
    watch="above 3: the database does not answer",
)
UNACKNOWLEDGED: Final = _gauge(
    "gateway_unacknowledged",
    "Records that wait for Kafka's acknowledgement.",
    watch="growth: Kafka is slow or away",
)

FAMILIES: Final = tuple(one for one in list(vars().values()) if isinstance(one, families.Family))
"""All of the above, in their order."""
