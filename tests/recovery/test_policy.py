"""A recovery at work and another policy: it follows, keeps quiet hours, and rows name the version."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from idempotency.ledger import Claim
from message.ids import new_token
from message.states import Event
from policy.versions import Version, Versions
from recovery.wiring import OpenedRecovery
from tests.harness.fleet import toml
from tests.recovery.conftest import MakeGround
from tests.recovery.ground import LANE, Ground, until

HOUR_MS = 3_600_000


def apply(ground: Ground, **lane: Any) -> Version:
    """What `hongyan policy apply` writes."""
    versions = Versions(ground.ledger.database)
    newest = versions.newest()
    text = toml({"lanes": {LANE: lane}})
    base, before = (newest.number, newest.text) if newest is not None else (0, "")
    return versions.add(text, "test", base=base, before=before)


def quiet_now() -> Mapping[str, Any]:
    now = datetime.now(UTC)
    begin, end = (f"{now + timedelta(hours=h):%H:%M}" for h in (-1, 2))
    return {"windows": [f"{begin}-{end}"], "zone": "UTC"}


@contextmanager
def started(ground: Ground) -> Iterator[OpenedRecovery]:
    with ground.recovery() as opened:
        opened.recovery.start()
        yield opened


def await_followed(opened: OpenedRecovery, version: Version) -> None:
    watch = opened.recovery._parts.watch
    until(lambda: watch.number == version.number)


def test_what_falls_due_in_quiet_hours_waits_for_their_end(ground: MakeGround) -> None:
    one = ground(quiet_hours=quiet_now())
    (item,) = one.waiting()
    with started(one) as opened:
        until(lambda: one.ledger.now_ms() >= (_row(one, item).next_at or 0))
        opened.recovery.resend(LANE)
        row = _row(one, item)
    assert (row.state, row.reason, row.attempt) == ("RETRY", "http_429", 1)
    assert HOUR_MS < (row.next_at or 0) - one.ledger.now_ms() <= 2 * HOUR_MS
    assert not one.accepted()


def test_it_follows_what_is_applied_and_the_row_names_the_version_it_was_sent_under(
    ground: MakeGround,
) -> None:
    one = ground()
    with started(one) as opened:
        version = apply(one, threads=40, retry={"base_ms": 50, "cap_ms": 100})
        await_followed(opened, version)
        assert opened.recovery._parts.callers[LANE]._threads > 1
        (item,) = one.waiting()
        until(lambda: opened.recovery.resend(LANE) or one.states()["SENT"])
        one.await_states(SENT=1)
        assert _row(one, item).policy_version == version.name


def test_what_was_held_is_released_at_the_rate_of_the_policy_in_force(ground: MakeGround) -> None:
    one = ground(release_per_s=3)
    held = [one._delivery(60_000) for _ in range(40)]
    one.ledger.claim([Claim(item, new_token(), Event.HOLD, "quiet_hours") for item in held], "w1")
    with one.recovery() as opened:
        opened.recovery.start()  # its calls end, and leave room for others
        resending = opened.recovery._parts.resending
        began = time.monotonic()
        assert resending.run_once(LANE) == 3, "a second's worth at once"
        more = resending.run_once(LANE) or 0
        assert more <= 3 * (time.monotonic() - began), "then by the time that passed"
        apply(one, release_per_s=1_000)
        opened.recovery._parts.watch.look()
        since, released = time.monotonic(), 0

        def more_than_before() -> bool:
            nonlocal released
            allowed = 3 + 3 * (time.monotonic() - since)
            released += resending.run_once(LANE) or 0
            return released > allowed

        until(more_than_before)


def test_a_recovery_that_starts_follows_what_is_applied(ground: MakeGround) -> None:
    one = ground()
    version = apply(one, threads=40)
    with one.recovery() as opened:
        assert opened.recovery._parts.watch.number == version.number
        assert opened.recovery._parts.resending._context.lanes[LANE].version == version.name


def _row(ground: Ground, item: Any) -> Any:
    row = ground.ledger.queries().by_key(item.key)
    assert row is not None
    return row
