"""Tables that a rebuild fills, on both databases."""

from __future__ import annotations

from idempotency.lost.trace_hours import (
    DAY_MS,
    TraceDouble,
    TraceGap,
    TraceHour,
    put_doubles,
    put_gaps,
    replace_hours,
)
from idempotency.sql_ledger import SqlLedger
from tests.idempotency.making import World

DAY = 20_000 * DAY_MS


def hour(at: int, lane: str = "sms.notice", deliveries: int = 1) -> TraceHour:
    return TraceHour(at, lane, "T1", "main", {"deliveries": deliveries}, {"call": [1, 2, 3, 4, 5]})


def test_the_hours_of_a_day_are_replaced_and_other_days_stay(
    world: World, ledger: SqlLedger
) -> None:
    hours = [hour(DAY - 1), hour(DAY), hour(DAY + DAY_MS - 1), hour(DAY + DAY_MS)]
    with ledger.database.begin() as connection:
        replace_hours(connection, 1, [], hours)
    with ledger.database.begin() as connection:
        replace_hours(connection, 2, [DAY], [hour(DAY, "email.notice", 7)])
    assert world.rows(
        "SELECT hour, lane, counts, latencies, run_id FROM trace_hours ORDER BY hour"
    ) == [
        (DAY - 1, "sms.notice", '{"deliveries":1}', '{"call":[1,2,3,4,5]}', 1),
        (DAY, "email.notice", '{"deliveries":7}', '{"call":[1,2,3,4,5]}', 2),
        (DAY + DAY_MS, "sms.notice", '{"deliveries":1}', '{"call":[1,2,3,4,5]}', 1),
    ]


def test_many_hours_are_written(world: World, ledger: SqlLedger) -> None:
    with ledger.database.begin() as connection:
        replace_hours(connection, 1, [DAY], (hour(DAY, f"lane{n}") for n in range(1_201)))
    assert world.rows("SELECT count(*) FROM trace_hours") == [(1_201,)]


def test_a_later_rebuild_knows_more_of_a_life_and_of_a_double_send(
    world: World, ledger: SqlLedger
) -> None:
    gap = TraceGap("w1/a", 10, 20, 100, 5, 2, ended=False)
    double = TraceDouble("k1", "sms.notice", 7, [{"attempt": 1}, {"attempt": 2}])
    for run_id, events in ((1, 100), (2, 105)):
        with ledger.database.begin() as connection:
            put_gaps(connection, run_id, [gap._replace(events=events, ended=run_id == 2)])
            put_doubles(connection, run_id, [double._replace(at=run_id)])
    assert world.rows("SELECT life, events, missing, dropped, ended, run_id FROM trace_gaps") == [
        ("w1/a", 105, 5, 2, 1, 2)
    ]
    assert world.rows("SELECT delivery_key, at, attempts, run_id FROM trace_doubles") == [
        ("k1", 2, '[{"attempt":1},{"attempt":2}]', 2)
    ]
