"""Recalls for the holder of a key.

A recall covers records that nobody has read yet, whose lanes are unknown, and senders choose ids. So a key
with some lanes recalls in these lanes alone: a notification that the ledger has there, or that the key sent
itself with an Idempotency-Key. A business id may have notifications of any lane, so its recall needs a key
with every lane.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import Final

from backends.settings import Settings
from idempotency.lookups import Queries
from idempotency.recalls import Kind
from producer.gateway.api_keys import ApiKey
from producer.gateway.problems import GatewayProblem, not_known, not_now
from producer.gateway.request_store import RequestStore
from recovery.recall.factory import RecallMeans, recall_over
from recovery.recall.recall import Recalled

_AT_ONCE: Final = 4
Means = Callable[[], RecallMeans]


class RecallDesk:
    """Thread-safe; at most _AT_ONCE recalls run at once."""

    def __init__(
        self, settings: Settings, means: Means, queries: Queries, requests: RequestStore
    ) -> None:
        """`means` returns what is open, with the policy in force."""
        self._settings = settings
        self._means = means
        self._queries = queries
        self._requests = requests
        self._room = threading.BoundedSemaphore(_AT_ONCE)

    def run(self, key: ApiKey, kind: Kind, name: str) -> Recalled:
        """Recalls it. Waits for no call under way: a repeated recall takes that back. Raises
        GatewayProblem, LedgerError, SettingsError."""
        lanes = self._lanes(key, kind, name)
        if not self._room.acquire(blocking=False):
            raise not_now("too many recalls at once")
        try:
            with ExitStack() as stack:
                opened = recall_over(self._settings, self._means(), stack, lambda: False)
                if lanes is None:
                    return opened.recalling.run(kind, name, opened.life_ms)
                return opened.recalling.run_in_lanes(name, lanes, opened.life_ms)
        finally:
            self._room.release()

    def _lanes(self, key: ApiKey, kind: Kind, name: str) -> Collection[str] | None:
        """Returns the lanes to which the recall is bound; None: it covers every lane. Raises GatewayProblem
        if the key may recall nothing of it."""
        lanes = key.lane_names
        if lanes is None:
            return None
        if kind is Kind.BIZ:
            detail = "a business id may be of any lane: recall by id, or use a key with every lane"
            raise GatewayProblem(403, "lane_not_allowed", detail)
        if self._queries.lanes_of(name) & lanes or self._requests.sent_by(key.id, name):
            return lanes
        raise not_known()
