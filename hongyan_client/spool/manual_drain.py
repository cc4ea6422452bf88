"""Drains a spool by hand."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from hongyan_client.publisher import Publisher
from hongyan_client.spool.drain import DrainPass, PassResult
from hongyan_client.spool.errors import SpoolBusy
from hongyan_client.spool.folder import SpoolFolder
from hongyan_client.spool.store import SpoolStore

_DELIVERY_S: Final = 30.0
_LOOK_S: Final = 0.1
_FILL_S: Final = 5.0


def drained_by_hand(
    folder: SpoolFolder,
    bootstrap: str,
    properties: Mapping[str, str],
    timeout_s: float,
    *,
    with_parked: bool,
) -> dict[str, Any]:
    """Returns how many were published, are left and are parked, with remarks. Raises ClientError."""
    until = time.monotonic() + timeout_s
    publisher = Publisher(
        bootstrap,
        client_id="hongyan-spool",
        properties=properties,
        delivery_timeout_s=min(_DELIVERY_S, max(1.0, timeout_s)),
    )
    store = folder.store()
    try:
        _take(folder, until)
        total = _passes(folder, store, publisher, until, with_parked)
        return _report(store, total)
    finally:
        folder.drain_lock.release()
        publisher.close(1.0)
        store.close()


def _take(folder: SpoolFolder, until: float) -> None:
    """Takes the drain's lock. Raises SpoolBusy."""
    while not folder.drain_lock.try_exclusive():
        if time.monotonic() >= until:
            raise SpoolBusy(f"another process drains {folder.path}; it needs no help, or try again")
        time.sleep(_LOOK_S)


def _passes(
    folder: SpoolFolder, store: SpoolStore, publisher: Publisher, until: float, with_parked: bool
) -> PassResult:
    fence = store.take_fence()
    if with_parked:
        store.unpark(fence)
    drain = DrainPass(store, publisher, lambda: time.time_ns() // 1_000_000)
    total = PassResult()
    while time.monotonic() < until:
        one = drain.run(fence, min(_FILL_S, until - time.monotonic()), lambda: False)
        total = PassResult(total.published + one.published, error=one.error or total.error)
        if not one.published:
            break
    store.mark_empty(folder.marker)
    return total


def _report(store: SpoolStore, total: PassResult) -> dict[str, Any]:
    counts = store.counts()
    return {
        "published": total.published,
        "left": counts.waiting,
        "parked": counts.parked,
        "error": total.error,
    }
