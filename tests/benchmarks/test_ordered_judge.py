"""What `hongyan bench ordered` calls lost, doubled, out of order and open."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.ordered_judge import OrderedVerdict, judged, ordered_rate
from message.envelope import Notification
from message.ids import new_id
from simulator.ledger import LedgerRecord


def item(ordering_key: str | None = "k") -> Notification:
    return Notification(
        id=new_id(),
        channel="webhook",
        kind="notice",
        receivers=["user-1"],
        content={"text": "hello"},
        created_at=1,
        ordering_key=ordering_key,
    )


def book(*items: Notification, begun_ms: int = 1_000, every_ms: int = 10) -> list[LedgerRecord]:
    """The provider accepted them in this order."""
    return [
        LedgerRecord(
            seq=n,
            at_ms=begun_ms + n * every_ms,
            key=one.id,
            path="/hook",
            id=one.id,
            receiver="user-1",
            attempt=1,
            digest="",
            accepted=True,
            answer="200",
        )
        for n, one in enumerate(items)
    ]


MADE = [item() for _ in range(3)] + [item(None)]


@pytest.mark.parametrize(
    ("records", "states", "wrong"),
    [
        (book(*MADE), {"SENT": 4}, {}),
        (book(MADE[0], MADE[3], *MADE[1:3]), {"SENT": 4}, {}),
        (book(*MADE[:3]), {"SENT": 4}, {"lost": 1}),
        (book(*MADE, MADE[3]), {"SENT": 4}, {"doubled": 1}),
        (book(MADE[1], MADE[0], *MADE[2:]), {"SENT": 4}, {"out_of_order": 1}),
        (book(*MADE), {"SENT": 2, "RETRY": 1, "UNKNOWN": 1, "PARKED": 1}, {"not_terminal": 2}),
    ],
    ids=["good", "no-key-between", "lost", "doubled", "turned-round", "open"],
)
def test_each_broken_promise_is_counted(
    records: list[LedgerRecord], states: dict[str, int], wrong: dict[str, int]
) -> None:
    nothing = {"lost": 0, "doubled": 0, "out_of_order": 0, "not_terminal": 0}
    assert judged(MADE, records, states) == OrderedVerdict(**nothing | wrong)


def test_what_was_refused_is_not_accepted() -> None:
    *others, last = book(*MADE)
    refused = msgspec.structs.replace(last, accepted=False)
    assert judged(MADE, [*others, refused], {}).lost == 1


def test_the_rate_is_that_of_ordered_deliveries_after_the_last_fault() -> None:
    made = [item() for _ in range(200)]
    records = book(*made[:100]) + book(*made[100:], begun_ms=10_000, every_ms=20)
    assert ordered_rate(made, records, 5_000) == pytest.approx(50.0)
    assert ordered_rate(made, records, 0) < 50.0
    with pytest.raises(RuntimeError, match="too few"):
        ordered_rate(made, records, 100_000)
