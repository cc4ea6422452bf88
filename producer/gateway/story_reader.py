"""States and timelines of notifications for the holder of a key: receivers masked, only the key's lanes."""

from __future__ import annotations

from typing import Final

import msgspec

from backends.sql.database import Database
from idempotency.error_mapping import errors
from producer.gateway.api_keys import ApiKey
from tracing.stories import of_biz, of_message
from tracing.timeline import DeliveryStory, Moment, Story

MOST_STORIES: Final = 50


class NotificationMoment(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing that happened to a delivery; `at` is epoch milliseconds."""

    at: int
    what: str
    attempt: int = 0
    state: str = ""
    reason: str | None = None
    account: str = ""
    provider_id: str | None = None


class NotificationDelivery(msgspec.Struct, kw_only=True):
    """One receiver's part."""

    delivery_key: str
    receiver: str
    """Masked."""
    state: str | None
    """None: no ledger has it."""
    reason: str | None
    attempt: int
    updated_at: int | None
    expires_at: int | None
    timeline: list[NotificationMoment]


class NotificationStory(msgspec.Struct, kw_only=True):
    """One notification and what became of it."""

    id: str
    biz_id: str | None
    lane: str
    deliveries: list[NotificationDelivery]


class StoryReader:
    """Thread-safe. Every method raises LedgerError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_message(self, key: ApiKey, message_id: str) -> NotificationStory | None:
        """Returns one notification, as far as it is in the key's lanes; None if nothing of it is."""
        if not _may_exist(message_id):
            return None
        with errors():
            found = of_message(self._database, message_id, key.lane_names, limit=MOST_STORIES)
        return next((_shown(story) for story in found), None)

    def of_biz(self, key: ApiKey, biz_id: str) -> list[NotificationStory]:
        """Returns the newest notifications of a business id, as far as they are in the key's lanes."""
        if not _may_exist(biz_id):
            return []
        with errors():
            found = of_biz(self._database, biz_id, key.lane_names, limit=MOST_STORIES)
        return [_shown(story) for story in found]


def _may_exist(name: str) -> bool:
    """Returns whether a database may have such a name."""
    return "\0" not in name


def _shown(story: Story) -> NotificationStory:
    deliveries = [_delivery(one) for one in story.deliveries if one.delivery_key]
    return NotificationStory(
        id=story.message_id, biz_id=story.biz_id, lane=story.lane, deliveries=deliveries
    )


def _delivery(story: DeliveryStory) -> NotificationDelivery:
    row = story.row
    return NotificationDelivery(
        delivery_key=story.delivery_key,
        receiver=story.receiver,
        state=row.state if row else None,
        reason=row.reason if row else None,
        attempt=row.attempt if row else 0,
        updated_at=row.updated_at if row else None,
        expires_at=row.expires_at if row else None,
        timeline=[_moment(one) for one in story.moments],
    )


def _moment(moment: Moment) -> NotificationMoment:
    return NotificationMoment(
        at=moment.at,
        what=moment.what,
        attempt=moment.attempt,
        state=moment.state,
        reason=moment.reason,
        account=moment.account,
        provider_id=moment.provider_id,
    )
