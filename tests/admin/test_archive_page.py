"""The archive page: days that leave, days that stay and why, and what left."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import text

from admin.access import Role
from admin.pages.archive import archive_of
from admin.parts import ConsoleParts
from idempotency.archive.contract import date_of
from message.states import Event
from tests.idempotency.making import claimed, delivery, settle

_MS_PER_DAY = 86_400_000


def aged(parts: ConsoleParts, key: str, day: int) -> None:
    """Moves a row to a day that is over."""
    with parts.databases.primary.begin() as connection:
        moved = connection.execute(
            text("UPDATE deliveries SET day = :day WHERE delivery_key = :key"),
            {"day": day, "key": key},
        )
    assert moved.rowcount == 1


def test_an_open_day_stays_and_says_why(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    (first,) = claimed(parts.ledger, delivery(id="m1"))
    (second,) = claimed(parts.ledger, delivery(id="m2"))
    claimed(parts.ledger, delivery(id="m3"))
    settle(parts.ledger, second, Event.REJECTED)
    today = parts.wall_ms() // _MS_PER_DAY
    aged(parts, first.key, today - 200)
    aged(parts, second.key, today - 201)
    user("lin", {Role.VIEWER: ("*",)})
    one = browser()
    one.sign_in("lin")
    rows = one.get("/archive").text.partition("<tbody>")[2].split("<tr>")
    by_day = {
        date_of(day): row
        for day in (today - 201, today - 200, today)
        for row in rows
        if date_of(day) in row
    }
    assert "still open" in by_day[date_of(today - 200)]
    assert "nothing is open" in by_day[date_of(today - 201)]
    assert "Leaves from" in by_day[date_of(today)]
    counted = one.get(f"/archive?count={date_of(today - 200)}").text
    assert "1 deliveries, 1 open" in counted
    assert one.get("/archive?count=1999-01-01").status_code == 404


def test_a_day_that_left_is_listed_with_its_place(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    (first,) = claimed(parts.ledger, delivery(id="m1"))
    settle(parts.ledger, first, Event.REJECTED)
    day = parts.wall_ms() // _MS_PER_DAY - 200
    aged(parts, first.key, day)
    left = archive_of(parts).archive(day)
    user("lin", {Role.VIEWER: ("*",)})
    one = browser()
    one.sign_in("lin")
    page = one.get("/archive").text
    assert left.where.rpartition("/")[2] in page
    assert date_of(day) not in page
