"""All rules, in the order in which they are told."""

from __future__ import annotations

from typing import Final

from producer.doctor.rule import DoctorRule
from producer.doctor.rules import (
    broker_rules,
    consumer_rules,
    cross_rules,
    lookback_rules,
    outbox_rules,
    producer_rules,
    spool_rules,
    storage_rules,
    topic_rules,
)

RULES: Final[tuple[DoctorRule, ...]] = (
    *producer_rules.BOOK.rules,
    *topic_rules.BOOK.rules,
    *broker_rules.BOOK.rules,
    *consumer_rules.BOOK.rules,
    *storage_rules.DATABASE.rules,
    *storage_rules.REDIS.rules,
    *storage_rules.CLOCKS.rules,
    *outbox_rules.DATABASE.rules,
    *outbox_rules.RELAY.rules,
    *lookback_rules.BOOK.rules,
    *spool_rules.BOOK.rules,
    *cross_rules.BOOK.rules,
)
