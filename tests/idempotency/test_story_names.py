"""A story is found by its delivery's key and by its message's id, whatever the id looks like."""

from __future__ import annotations

from sqlalchemy import event

from idempotency.sql_ledger import SqlLedger
from tests.idempotency.making import claimed, delivery
from tracing.stories import live_rows


def test_a_key_is_looked_for_first_and_an_id_that_looks_like_one_is_found(
    ledger: SqlLedger,
) -> None:
    (one,) = claimed(ledger, delivery(id="ab" * 16))
    asked: list[str] = []

    def keep(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        asked.append(statement)

    event.listen(ledger.database.engine, "before_cursor_execute", keep)
    try:
        by_key = live_rows(ledger.database, one.key)
    finally:
        event.remove(ledger.database.engine, "before_cursor_execute", keep)
    by_id = live_rows(ledger.database, "ab" * 16)
    assert [row.delivery_key for row in by_key] == [one.key]
    assert [row.delivery_key for row in by_id] == [one.key]
    first = next(text for text in asked if " FROM deliver" in text or "hongyan_deliveries" in text)
    assert "WHERE delivery_key = " in first
