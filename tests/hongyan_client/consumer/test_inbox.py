"""The inbox: each event changes its row once, among repeats, honest other writers, kills and races."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from hongyan_client.consumer.event_order import EventEnd, supersedes
from hongyan_client.consumer.inbox import (
    EventInbox,
    InboxStatus,
    RowContended,
    RowMissing,
    VersionedRow,
)

ORDERS = sa.Table(
    "orders",
    sa.MetaData(),
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("told", sa.Integer, nullable=False),
    sa.Column("paid", sa.Integer, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
)
ORDER = VersionedRow(ORDERS, "id", "1001")


@pytest.fixture
def inbox(business: sa.Engine) -> EventInbox:
    found = EventInbox(business)
    found.applied.create(business)
    ORDERS.create(business)
    with business.begin() as connection:
        connection.execute(ORDERS.insert().values(id="1001", told=0, paid=0, version=1))
    return found


def tell(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"told": row["told"] + 1}


def pay(business: sa.Engine) -> None:
    """The other honest writer."""
    with business.begin() as connection:
        connection.execute(
            sa.update(ORDERS).values(paid=ORDERS.c.paid + 1, version=ORDERS.c.version + 1)
        )


def order(business: sa.Engine) -> dict[Any, Any]:
    with business.begin() as connection:
        return dict(connection.execute(sa.select(ORDERS)).mappings().one())


def test_a_repeat_is_known_by_its_id(inbox: EventInbox, business: sa.Engine) -> None:
    assert inbox.apply("e1", ORDER, tell) is InboxStatus.APPLIED
    assert inbox.apply("e1", ORDER, tell) is InboxStatus.REPEATED
    assert order(business)["told"] == 1


def test_a_version_conflict_of_two_honest_writers_is_no_repeat(
    inbox: EventInbox, business: sa.Engine
) -> None:
    """The version moves between read and write: the event is applied to the newer row, and not dropped."""
    interrupted: list[int] = []

    def tell_slowly(row: Mapping[str, Any]) -> Mapping[str, Any]:
        if not interrupted:
            interrupted.append(1)
            pay(business)
        return tell(row)

    assert inbox.apply("e1", ORDER, tell_slowly) is InboxStatus.APPLIED
    assert order(business) == {"id": "1001", "told": 1, "paid": 1, "version": 3}


def test_an_event_that_never_gets_its_turn_is_not_remembered(
    inbox: EventInbox, business: sa.Engine
) -> None:
    def always_late(row: Mapping[str, Any]) -> Mapping[str, Any]:
        pay(business)
        return tell(row)

    with pytest.raises(RowContended, match="orders '1001'"):
        inbox.apply("e1", ORDER, always_late)

    assert order(business)["told"] == 0
    assert inbox.apply("e1", ORDER, tell) is InboxStatus.APPLIED


def test_an_event_that_changes_nothing_is_remembered(
    inbox: EventInbox, business: sa.Engine
) -> None:
    assert inbox.apply("e1", ORDER, lambda _row: None) is InboxStatus.UNCHANGED
    assert inbox.apply("e1", ORDER, tell) is InboxStatus.REPEATED
    assert order(business)["version"] == 1


def test_a_missing_row_leaves_the_event_for_later(inbox: EventInbox) -> None:
    with pytest.raises(RowMissing):
        inbox.apply("e1", VersionedRow(ORDERS, "id", "none"), tell)
    assert inbox.apply("e1", ORDER, tell) is InboxStatus.APPLIED


def test_two_consumers_with_the_same_event_apply_it_once(
    inbox: EventInbox, business: sa.Engine
) -> None:
    """Both read before either writes."""
    together = threading.Barrier(2)

    def tell_together(row: Mapping[str, Any]) -> Mapping[str, Any]:
        if not together.broken:
            together.wait(10)
            together.abort()
        return tell(row)

    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(_quiet_apply, inbox, tell_together) for _ in range(2)]
        ended = sorted(one.result() for one in done)

    assert ended == [InboxStatus.APPLIED, InboxStatus.REPEATED]
    assert order(business)["told"] == 1


def _quiet_apply(inbox: EventInbox, change: Any) -> InboxStatus:
    try:
        return inbox.apply("e1", ORDER, change)
    except threading.BrokenBarrierError:
        return inbox.apply("e1", ORDER, tell)


def test_old_ids_can_be_forgotten(business: sa.Engine, inbox: EventInbox) -> None:
    old = EventInbox(business, inbox.applied, now=lambda: 1.0)
    old.apply("e1", ORDER, tell)
    with business.begin() as connection:
        assert old.forget_before(connection, 1_000) == 0
        assert old.forget_before(connection, 1_001) == 1


ENDS = st.builds(
    EventEnd,
    st.sampled_from(["SENT", "DELIVERED", "UNDELIVERED", "PARKED"]),
    st.integers(0, 3),
)


@given(new=ENDS, known=ENDS)
def test_of_two_events_at_most_one_supersedes_the_other(new: EventEnd, known: EventEnd) -> None:
    assert not (supersedes(new, known) and supersedes(known, new))


def test_a_receipt_comes_after_sent_whatever_their_times() -> None:
    assert supersedes(EventEnd("DELIVERED", 1), EventEnd("SENT", 2))
    assert not supersedes(EventEnd("SENT", 2), EventEnd("DELIVERED", 1))
    assert supersedes(EventEnd("PARKED", 0), None)
