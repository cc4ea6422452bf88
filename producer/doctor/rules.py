"""All rules, in the order in which they are told."""

from __future__ import annotations

from typing import Final

from producer.doctor import (
    broker_rules,
    consumer_rules,
    cross_rules,
    producer_rules,
    storage_rules,
    topic_rules,
)
from producer.doctor.rule import DoctorRule

RULES: Final[tuple[DoctorRule, ...]] = (
    *producer_rules.BOOK.rules,
    *topic_rules.BOOK.rules,
    *broker_rules.BOOK.rules,
    *consumer_rules.BOOK.rules,
    *storage_rules.DATABASE.rules,
    *storage_rules.REDIS.rules,
    *storage_rules.CLOCKS.rules,
    *cross_rules.BOOK.rules,
)
