"""How many waiting deliveries of a lane expire when, on each of the ledger's databases."""

from __future__ import annotations

from sqlalchemy import text

from idempotency.fleet.expiries import WAITING, Expiries
from message.states import Event
from tests.idempotency.making import World, claimed, delivery, settle, worker


def test_waiting_deliveries_are_counted_by_their_expiry(world: World) -> None:
    ledger = world.open()
    ledger.register(worker("w1"))
    made = [delivery() for _ in range(3)]
    lane = made[0].lane
    expiries = Expiries(ledger.database, ledger.controls().clock)
    assert expiries.of([lane])[lane] == (0, None, 0, 0)
    ends = [world.now + 60_000, world.now + 1_800_000, world.now + 86_400_000]
    for one, expires_at in zip(made, ends, strict=True):
        one.expires_at = expires_at
        (won,) = claimed(ledger, one)
        assert settle(ledger, won, Event.NOT_SENT, delay_ms=30_000)
    found = expiries.of([lane, "push.notice"])
    assert found[lane] == (3, ends[0], 1, 2)
    assert not found[lane].more
    assert found["push.notice"].waiting == 0


def test_the_count_reads_the_index_of_waiting_rows(postgres: World) -> None:
    ledger = postgres.open()
    asked = {"lane": "sms.notice", "soon": 1, "later": 2, "bound": 1_000}
    with ledger.database.begin() as connection:
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        statement = text("EXPLAIN " + WAITING.format(least="least"))
        lines = [line for (line,) in connection.execute(statement, asked)]
    said = "\n".join(lines)
    assert "Merge Append" in said, said
    assert "->  Sort" not in said, said
    assert "Seq Scan" not in said, said
