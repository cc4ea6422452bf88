"""Configuration of transactional messages: `[lookback]` of hongyan.toml (docs/lookback.md)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

_Time = Annotated[float, msgspec.Meta(gt=0, le=2_592_000)]


class BizTypeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[lookback.biz_types.NAME]`: terms of one kind of business transaction."""

    check: str = ""
    """Name of the endpoint in `[lookback.checks.NAME]`; empty: the business is never asked."""
    topics: list[str] = []
    """Topics to which its messages may be forwarded, with * and ?; none named: no message."""
    immunity_s: Annotated[float, msgspec.Meta(ge=0, le=2_592_000)] = 60.0
    """Time after the prepare in which no check is made."""
    check_s: _Time = 60.0
    """Pause before the second check; it doubles after each."""
    longest_pause_s: _Time = 3_600.0
    """Most that the pause grows to."""
    max_checks: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 15
    """Checks without an answer after which a person must decide."""
    deadline_s: _Time = 86_400.0
    """Age from which a person must decide."""
    longest_transaction_s: _Time = 3_600.0
    """Longest business transaction: an unfenced ROLLBACK of a check counts only after it."""
    grace_s: _Time = 600.0
    """Time for which a decision waits for its prepare."""
    threads: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    """Checks of this kind that one process makes at the same time."""


class LookbackSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Transactional messages (docs/lookback.md)."""

    topic: str = "look_back_msg"
    """Topic of prepare, commit and rollback."""
    biz_types: dict[str, BizTypeSettings] = {}
    """`[lookback.biz_types.NAME]`; none: look-back is not used."""
    checks: dict[str, dict[str, Any]] = {}
    """`[lookback.checks.NAME]`: endpoints that are asked for the state of a transaction."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 500
    """Most records of one database transaction."""
    forward_batch: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 200
    """Most messages under way, without those that have waited for Kafka for a second."""
    poll_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 0.5
    """Interval between two looks for transactions that are due."""
    lease_s: Annotated[float, msgspec.Meta(ge=1, le=3_600)] = 60.0
    """Time after which another process takes over a check or a forward that did not end."""
    keep_days: Annotated[int, msgspec.Meta(ge=1, le=3_650)] = 30
    """Days after which ended transactions are archived; more than Kafka keeps the topic."""
    archive: bool = True
    """Whether past days are archived."""
    archive_dir: str = ""
    """Folder of SQLite's archive files; empty: `archive` beside the database."""
    drain_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 30.0
    health_address: str = "127.0.0.1:9468"
