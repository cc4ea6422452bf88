"""Notifications of a truth run: receivers of their own, in five lanes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from message.envelope import Notification, Template
from tests.harness.notifications import notification, now_ms
from tests.spark_jobs.truth.extent import LANES, SHARES, TTL_MS
from tests.spark_jobs.truth.trace_leak import UNTRACED

TEMPLATE = "SMS_154950909"


class Drafts:
    """Makes notifications; every receiver is new, unless one is given."""

    def __init__(self, seed: int) -> None:
        self._luck = random.Random(f"traffic/{seed}")
        self._number = 0

    def one(self, lane: str, **changes: Any) -> Notification:
        """Returns one notification for the lane; `changes` are fields of the envelope."""
        self._number += 1
        if lane.startswith("webhook"):
            return notification(lane, **changes)
        fields: dict[str, Any] = {
            "receivers": [f"+86138{self._number:08d}"],
            "content": None,
            "template": Template(TEMPLATE, {"code": f"{self._number:06d}"}),
        }
        return notification(lane, **{**fields, **changes})

    def some(self, lane: str, count: int, **changes: Any) -> list[Notification]:
        """Returns so many of them."""
        return [self.one(lane, **changes) for _ in range(count)]

    def traffic(self, count: int, untraced: int) -> Iterator[Notification]:
        """Yields the main traffic; `untraced` of it, evenly spread, leaves no event."""
        marked = set(self._luck.sample(range(count), untraced))
        for number in range(count):
            (lane,) = self._luck.choices(LANES, SHARES)
            yield self.one(lane, biz_id=UNTRACED if number in marked else f"order-{number}")

    def two_receivers(self, lane: str) -> Notification:
        """Returns one notification for two receivers."""
        first, second = self.one(lane), self.one(lane)
        return self.one(lane, receivers=[*first.receivers, *second.receivers])

    def same_content(self, lane: str) -> list[Notification]:
        """Returns two with one content for one receiver."""
        first = self.one(lane)
        again = self.one(lane, receivers=first.receivers, template=first.template)
        return [first, again]

    def expired(self, lane: str) -> Notification:
        """Returns one whose time was over before anybody could read it."""
        return self.one(lane, created_at=now_ms() - 2 * TTL_MS)
