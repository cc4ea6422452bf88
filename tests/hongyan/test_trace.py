"""`hongyan trace` of a biz_id with many messages: the newest come first; those left out are counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from backends.settings import DatabaseSettings, Settings
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.states import Event
from tests.hongyan.conftest import Run, make_ledger
from tests.idempotency.making import claimed, delivery, settle, worker

HOUR_MS = 3_600_000


@pytest.fixture
def ledger(folder: Path, hongyan: Run) -> Iterator[SqlLedger]:
    """A ledger with the messages m0 to m3 of order-1; each is an hour older than the one before."""
    make_ledger()
    settings = Settings(database=DatabaseSettings(url="sqlite:///hongyan.db"), base=str(folder))
    ledger = open_ledger(settings)
    ledger.register(worker("w1"))
    for number in range(4):
        (one,) = claimed(ledger, delivery(id=f"m{number}", biz_id="order-1"))
        settle(ledger, one, Event.ACCEPTED)
        with ledger.database.begin() as connection:
            connection.execute(
                text("UPDATE deliveries SET created_at = created_at - :ms WHERE message_id = :id"),
                {"ms": number * HOUR_MS, "id": f"m{number}"},
            )
    yield ledger
    ledger.close()


def shown(hongyan: Run, *flags: str) -> list[str]:
    said = hongyan("trace", "order-1", *flags, "--json")
    assert said.code == 0
    return [story["message_id"] for story in said.json]


def test_the_newest_come_first(ledger: SqlLedger, hongyan: Run) -> None:
    assert shown(hongyan) == ["m0", "m1", "m2", "m3"]
    assert shown(hongyan, "--limit", "2") == ["m0", "m1"]


def test_since_leaves_out_the_older_ones(ledger: SqlLedger, hongyan: Run) -> None:
    assert shown(hongyan, "--since", "90m") == ["m0", "m1"]
    said = hongyan("trace", "order-2", "--since", "90m")
    assert said.code == 1
    assert "nothing is known of 'order-2' since 90m" in said.err
    assert hongyan("trace", "order-1", "--since", "soon").code == 2


def test_messages_that_are_left_out_are_counted(ledger: SqlLedger, hongyan: Run) -> None:
    said = hongyan("trace", "order-1", "--limit", "3")
    assert said.err == (
        "the newest 3 of 4 messages are shown: give --limit, or narrow it by --since\n"
    )
    assert hongyan("trace", "order-1", "--limit", "2", "--since", "90m").err == ""
    assert hongyan("trace", "m1", "--limit", "1").err == ""


def test_brief_has_a_line_for_each_delivery(ledger: SqlLedger, hongyan: Run) -> None:
    brief, whole = hongyan("trace", "order-1", "--brief"), hongyan("trace", "order-1")
    assert brief.out.count("SENT") == 4
    assert "claimed in the ledger" not in brief.out
    assert "claimed in the ledger" in whole.out
    assert len(brief.out.splitlines()) == 8
