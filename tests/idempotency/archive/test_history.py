"""Rows that left with their day are found by message id, delivery key and biz_id, with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from idempotency.archive.history import PastDeliveries
from idempotency.claims.store import MS_PER_DAY
from idempotency.ledger import LedgerUnavailable
from idempotency.partitions import ensure_partitions
from idempotency.sql_ledger import SqlLedger
from message.states import Event
from tests.idempotency.making import NOON, World, claimed, deliveries, settle, worker

DAY = NOON // MS_PER_DAY
PLACES = ("20261213", "20261214")
"""The two days that leave."""


@pytest.fixture
def ledger(world: World) -> SqlLedger:
    """`twice` has a message on each of two days that left and one that stayed; `m1` has two receivers."""
    ledger = world.open()
    ledger.register(worker())
    receivers = ("+8613800000001", "+8613800000002")
    for number, ahead in enumerate((0, 1, 60)):
        world.advance(NOON + ahead * MS_PER_DAY - world.now)
        ensure_partitions(ledger.database)
        ledger.register(worker())
        made = deliveries(receivers=receivers, id=f"m{number}", biz_id="twice", attributes={})
        for one in claimed(ledger, *made):
            one.account = "main"
            settle(ledger, one, Event.ACCEPTED, provider_id=f"p{number}")
    return ledger


@pytest.fixture
def past(ledger: SqlLedger, tmp_path: Path) -> PastDeliveries:
    archive = ledger.archive(str(tmp_path / "left"))
    for day in (DAY, DAY + 1):
        archive.archive(day)
    return PastDeliveries(ledger.database, str(tmp_path / "left"))


def test_a_message_is_found_whole_by_its_id_and_by_one_of_its_keys(
    past: PastDeliveries, world: World
) -> None:
    first, second = past.find("m0")
    assert {first.row.message_id, second.row.message_id} == {"m0"}
    assert first.row.delivery_key != second.row.delivery_key
    assert past.find(second.row.delivery_key) == [first, second]
    row = first.row
    assert (row.lane, row.channel, row.kind) == ("sms.notice", "sms", "notice")
    assert (row.state, row.provider_id, row.account) == ("SENT", "p0", "main")
    assert (row.biz_id, row.created_at, row.reason) == ("twice", NOON, None)
    assert PLACES[0] in first.where


def test_a_biz_id_is_found_on_each_day_newest_first(past: PastDeliveries) -> None:
    found = past.find("twice")
    assert [one.row.message_id for one in found] == ["m1", "m1", "m0", "m0"]
    assert [PLACES[1] in one.where for one in found] == [True, True, False, False]
    assert {one.row.message_id for one in past.find("twice", limit=1)} == {"m1"}


def test_days_before_the_window_are_not_opened(past: PastDeliveries) -> None:
    assert {one.row.message_id for one in past.find("twice", NOON + MS_PER_DAY)} == {"m1"}
    assert past.find("twice", NOON + MS_PER_DAY + 1) == [], "made before the window, on its day"
    assert past.find("twice", NOON + 2 * MS_PER_DAY) == []


def test_what_is_still_in_the_ledger_or_unknown_is_not_found(past: PastDeliveries) -> None:
    assert past.find("m2") == []
    assert past.find("nobody") == []


def test_without_an_archive_nothing_is_found(world: World, tmp_path: Path) -> None:
    assert PastDeliveries(world.open().database, str(tmp_path / "none")).find("m0") == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_damage_of_a_file_is_a_sentence_and_hides_no_row_outside_of_it(
    past: PastDeliveries, tmp_path: Path
) -> None:
    file = tmp_path / "left" / f"deliveries-{PLACES[1]}.jsonl.gz"
    content = bytearray(file.read_bytes())
    content[100] ^= 0xFF  # in the rows' member; the payload's is behind it
    file.write_bytes(content)
    with pytest.raises(LedgerUnavailable, match=rf"{PLACES[1]}.* cannot be read whole"):
        past.find("m1")
    assert [one.row.message_id for one in past.find("twice")] == ["m0", "m0"]
    assert PLACES[1] in past.damage
    assert past.find("twice", NOON + 2 * MS_PER_DAY) == []
    assert past.damage == "", "no file was read"
