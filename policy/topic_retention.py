"""Time for which Kafka keeps the lanes' topics, by the policy. Pure functions.

`hongyan topics apply` asks for it, the archive takes it where no topic is there yet, and doctor compares.
"""

from __future__ import annotations

from typing import Final

from policy.schema import DEFAULTS, Policy

DAY_MS: Final = 86_400_000
OUTAGE_DAYS: Final = 3
"""The longest shutdown of all workers that topics are made for."""
_MARGIN_DAYS: Final = 1


def longest_ttl_ms(policy: Policy) -> int:
    """Returns the longest lifetime of a notification of any lane: nothing is sent again after it."""
    return max(lane.max_ttl_ms for lane in {**DEFAULTS, **policy.lanes}.values())


def topic_keep_days(policy: Policy, outage_days: int = OUTAGE_DAYS) -> int:
    """Returns the whole days for which a lane's topic must keep records. That is a day longer than the
    longest lifetime, in which a record may be read and sent again, and than the longest shutdown."""
    return max(-(-longest_ttl_ms(policy) // DAY_MS), outage_days) + _MARGIN_DAYS
