"""Families that receipts alone shows."""

from __future__ import annotations

from functools import partial
from typing import Final

from backends.metrics import families

_BY: Final = (families.RECEIPTS,)
_counter = partial(families.counter, by=_BY)

PUSHES: Final = _counter(
    "receipts_pushes",
    "Pushes of providers, by the status of the answer.",
    "account",
    "answer",
    watch="401: a wrong secret, or a stranger; 503: the database is away",
)
PULLS: Final = _counter(
    "receipts_pulls",
    "Questions to providers for receipts, by `result`.",
    "account",
    "result",
    watch="`failed`: the provider refuses or is away",
)
UNREADABLE: Final = _counter(
    "receipts_unreadable",
    "Entries of pushes and pulls that were left out.",
    "account",
    watch="any rise: the provider changed its format",
)
RECEIVED: Final = _counter("receipts_received", "Receipts that came.", "account", "said")
REPEATED: Final = _counter("receipts_repeated", "Receipts that were stored before.")
PLACED: Final = _counter("receipts_placed", "Receipts that found their delivery.", "applied")
FORGOTTEN: Final = _counter("receipts_forgotten", "Receipts past `receipts.keep_days`.", "placed")
BATCH: Final = families.histogram("receipts_batch", "Receipts stored by one statement.", by=_BY)
WAITING: Final = families.gauge(
    "receipts_waiting",
    "Receipts that wait for their delivery; counted up to 10,000; -1: unknown.",
    by=_BY,
    watch="growth: receipts of another system, or of deliveries that left the ledger",
)

FAMILIES: Final = tuple(one for one in list(vars().values()) if isinstance(one, families.Family))
"""All of the above, in their order."""
