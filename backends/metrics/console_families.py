"""Families that the console alone shows."""

from __future__ import annotations

from typing import Final

from backends.metrics import families

_BY: Final = (families.CONSOLE,)

REQUESTS: Final = families.counter(
    "console_requests",
    "Requests by route and status of the answer.",
    "route",
    "status",
    by=_BY,
    watch="500: a fault of the program; 503: the database is away",
)
TOOK: Final = families.histogram(
    "console_request_seconds",
    "Time from a request's head to the end of its answer, by route; without live streams.",
    "route",
    by=_BY,
    watch="its 0.95 quantile above 0.05 for `GET /search`",
)

FAMILIES: Final = tuple(one for one in list(vars().values()) if isinstance(one, families.Family))
"""All of the above, in their order."""
