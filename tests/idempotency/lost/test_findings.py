"""Findings on both databases: pages, decisions, orders of a person, sealed bodies."""

from __future__ import annotations

import msgspec

from idempotency.lost.findings import Decision, FindingFilter, FindingStatus
from idempotency.sql_ledger import open_ledger
from tests.idempotency.making import World, delivery
from tests.recovery.lost.lostfield import LostField

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


def test_pages_have_each_new_finding_once(world: World) -> None:
    field = LostField(world)
    ids = [field.found(delivery(), kept=True) for _ in range(5)]
    field.found(delivery(), "silent")
    pages = [[one.id for one in field.findings.new(after, 2)] for after in (0, ids[1], ids[3])]
    assert pages == [ids[:2], ids[2:4], ids[4:]]
    assert [one.cause for one in field.findings.silent(10)] == ["silent"]


def test_a_decision_is_written_only_to_the_status_that_it_was_made_on(world: World) -> None:
    field = LostField(world)
    number = field.found(delivery())
    assert field.findings.begin([number]) == {number}
    assert field.finding(number).is_begun
    assert field.findings.dismiss([number], "lin", "no") == {number}
    assert field.findings.begin([number]) == set()
    field.findings.decide([Decision(number, FindingStatus.ASKED, "late")], "r1")
    assert field.status(number) == ("DISMISSED", "no")
    field.findings.decide([Decision(number, FindingStatus.RESENT, "entered", None)], "r1")
    one = field.finding(number)
    assert (one.status, one.decided_by, one.decided_why) == ("RESENT", "lin", "no; entered")
    assert field.findings.order([number], "lin", "again") == set()
    assert field.findings.dismiss([number], "lin", "again") == set()


def test_a_body_is_sealed_under_its_message(world: World) -> None:
    database = msgspec.structs.replace(world.settings.database, payload_key=KEY)
    settings = msgspec.structs.replace(world.settings, database=database)
    ledger = open_ledger(settings, lambda: world.now)
    field = LostField(world, payload_key=KEY)
    item = delivery()
    (finding,) = field.findings.named(str(field.found(item, kept=True)))
    assert finding.body is not None
    assert finding.body[:1] == b"\x01"
    assert item.payload not in finding.body
    assert ledger.findings().body(finding) == item.payload
    ledger.close()


def test_counts_have_what_is_undecided_and_what_was_found_lately(world: World) -> None:
    field = LostField(world)
    for status in ("NEW", "ASKED", "RESENT", "EXPIRED", "CONTRADICTED", "DISMISSED", "GONE"):
        field.found(delivery(), kept=True, status=status)
    world.advance(1_000)
    lately = {(one.status.value, one.findings) for one in field.findings.counts(1_000)}
    assert lately == {("NEW", 1), ("ASKED", 1), ("RESENT", 1), ("EXPIRED", 1)}
    assert {one.status.value for one in field.findings.counts(999)} == {"NEW", "ASKED"}


def test_the_start_of_a_run_is_that_of_the_next_one_on_record(world: World) -> None:
    field = LostField(world)
    world.rows_changed("UPDATE spark_runs SET started_at = 77")
    assert (field.findings.run_started(1), field.findings.run_started(9)) == (77, 0)
    assert field.findings.select(FindingFilter(), 5) == []
