"""How each delivery ended: that it did, in time, by moves that there are, and as its policy wants. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from message.states import OPEN, TRANSITIONS
from simulator import LedgerRecord
from tests.chaos.books import Books, Hit, Limits
from tests.chaos.history import Move
from tests.chaos.kinds import DRAINED, STANDSTILLS, Kind
from tests.harness.books import Row
from tests.harness.wire import Sent

_STEPS = {
    (source.value if source else "", target.value) for (source, _), target in TRANSITIONS.items()
}
_ATTEMPTS, _HORIZON, _UNPROVEN, _TOO_LATE, _PACED = (
    "attempts_spent",
    "horizon_over",
    "unproven",
    "ttl_in_doubt",
    "paced",
)
_PATIENCE_LEFT = 0.1
"""Share of a TTL in which what is refused for pace is not tried any more (`retry.patience`)."""
_ASKED_MS = 1_000
"""Wait that the provider asks for (tests/chaos/weather.py)."""
_EARLY_MS = 50
"""Clocks of the worker and the database."""


class Trouble(NamedTuple):
    """One delivery that did not end well at once."""

    key: str
    seconds: float
    """From when it was claimed, or refused for now, to its end; without the time for which Kafka or the
    database was away."""


def unsettled(rows: Iterable[Row]) -> list[str]:
    """Rows that have not ended."""
    return [
        f"{row.delivery_key}: left {row.state} ({row.reason}) by {row.owner}"
        for row in rows
        if row.state in OPEN
    ]


def strange_moves(moves: Iterable[Move]) -> list[str]:
    """Moves that the state machine does not have."""
    return [
        f"{m.delivery_key}: moved from {m.source or '∅'} to {m.state}, which is no move"
        for m in moves
        if (m.source, m.state) not in _STEPS
    ]


def troubles(
    moves: Iterable[Move], rows: Mapping[str, Row], hits: Iterable[Hit] = ()
) -> list[Trouble]:
    """Every delivery that was in doubt or had to wait, the slowest last."""
    away = _away(hits)
    first: dict[str, int] = {}
    for move in moves:
        if move.state in ("UNKNOWN", "RETRY"):
            began = move.since_ms if move.state == "UNKNOWN" else move.at_ms
            first.setdefault(move.delivery_key, began)
    ended = (
        (key, _between(at, rows[key].updated_at, away) / 1_000)
        for key, at in first.items()
        if key in rows
    )
    return sorted((Trouble(key, seconds) for key, seconds in ended), key=lambda t: t.seconds)


def _away(hits: Iterable[Hit]) -> list[tuple[int, int]]:
    """When a server was away without which nothing goes on, epoch milliseconds; none meets another."""
    found: list[tuple[int, int]] = []
    for start, end in sorted((h.at_ms, h.until_ms) for h in hits if h.fault.kind in STANDSTILLS):
        if found and start <= found[-1][1]:
            start, end = found[-1][0], max(found.pop()[1], end)
        found.append((start, end))
    return found


def _between(start: int, end: int, away: Iterable[tuple[int, int]]) -> int:
    """Milliseconds from one to the other, without those."""
    return end - start - sum(max(0, min(end, until) - max(start, since)) for since, until in away)


def too_slow(found: Iterable[Trouble], limits: Limits) -> list[str]:
    """Those that took longer than was promised."""
    return [
        f"{t.key}: recovered after {t.seconds:.1f} s, later than {limits.recovery_s:.0f} s"
        for t in found
        if t.seconds > limits.recovery_s
    ]


def expired_early(rows: Iterable[Row]) -> list[str]:
    """Rows that ended for their time's sake before it was over."""
    return [
        f"{row.delivery_key}: EXPIRED ({row.reason}) before its time was over"
        for row in rows
        if row.state == "EXPIRED" and row.updated_at < row.expires_at - _EARLY_MS
    ]


def sent_late(
    records: Iterable[LedgerRecord], rows: Mapping[str, Row], limits: Limits
) -> list[str]:
    """Calls that reached the provider when the delivery's time was over, and the call's own too."""
    return [
        f"{record.key}: sent {record.at_ms - row.expires_at} ms past its TTL"
        for record in records
        if (row := rows.get(record.key)) is not None
        and record.at_ms > row.expires_at + limits.timeout_ms
    ]


def parked_oddly(
    rows: Mapping[str, Row], records: Iterable[LedgerRecord], moves: Iterable[Move], limits: Limits
) -> list[str]:
    """Parked rows that no policy wanted parked."""
    asked = _could_be_asked(records, rows, limits)
    doubted = {move.delivery_key for move in moves if move.state == "UNKNOWN"}
    return [
        f"{row.delivery_key}: PARKED ({row.reason}), which no policy explains"
        for row in rows.values()
        if row.state == "PARKED" and not _wanted(row, row.delivery_key in doubted, asked, limits)
    ]


def _could_be_asked(
    records: Iterable[LedgerRecord], rows: Mapping[str, Row], limits: Limits
) -> set[str]:
    """Deliveries of which the provider would have said what became of the call in doubt: one that it
    accepted, or the last that the ledger counted."""
    return {
        record.key
        for record in records
        if not record.path.startswith(limits.mute)
        and (row := rows.get(record.key)) is not None
        and (record.accepted or record.attempt == row.attempt)
    }


def _wanted(row: Row, doubted: bool, asked: set[str], limits: Limits) -> bool:
    """`asked`: see `_could_be_asked`."""
    reason = (row.reason or "").partition(":")[0]
    if reason in (_ATTEMPTS, _HORIZON):
        return True
    if reason == _PACED:
        lifetime_ms = row.expires_at - row.created_at
        ends_at = row.expires_at - _PATIENCE_LEFT * lifetime_ms
        return row.updated_at >= ends_at - _ASKED_MS - _EARLY_MS
    if reason == _UNPROVEN:
        return doubted and row.lane in limits.parking and row.delivery_key not in asked
    return reason == _TOO_LATE and doubted and row.updated_at >= row.expires_at - _EARLY_MS


# -- what faults were to bring about --


def poison(books: Books) -> list[str]:
    """Records that are no notifications, and no dead letter."""
    return [
        f"{_origin(sent)}: poison, and no dead letter tells of it"
        for sent in books.sent
        if sent.notification is None and _origin(sent) not in books.dead
    ]


def without_effect(books: Books) -> list[str]:
    """Faults that were never done, or struck nothing: a run proves nothing about them."""
    done = {hit.fault.number for hit in books.hits}
    missing = [
        f"fault {fault.number} ({fault.kind}): never done"
        for fault in books.planned
        if fault.number not in done
    ]
    ends: dict[int, list[str]] = defaultdict(list)
    for hit in books.hits:
        rows = (books.rows.get(key) for sent in hit.sent for key in sent.keys)
        ends[hit.fault.number] = [row.state for row in rows if row is not None]
    idle = [
        f"fault {hit.fault.number} ({hit.fault.kind}): struck nothing ({hit.effect or 'no effect'})"
        for hit in books.hits
        if not _bit(hit, ends[hit.fault.number], books.moves)
    ]
    return missing + idle


def not_drained(books: Books) -> list[str]:
    """What a fault brought along that had to be sent in the end, and was not."""
    rows = (
        (hit, row)
        for hit in books.hits
        if hit.fault.kind in DRAINED
        for sent in hit.sent
        for key in sent.keys
        if (row := books.rows.get(key)) is not None
    )
    return [
        f"{row.delivery_key}: {row.state} ({row.reason}) after fault {hit.fault.number}"
        f" ({hit.fault.kind}), which it had to outlast"
        for hit, row in rows
        if row.state != "SENT"
    ]


def _bit(hit: Hit, ends: Sequence[str], moves: Iterable[Move]) -> bool:
    match hit.fault.kind:
        case Kind.SLOW | Kind.STALE:
            return "EXPIRED" in ends
        case Kind.CUT | Kind.MANUAL:
            return bool(hit.effect) and not hit.effect.startswith("0 ")
        case Kind.OFFSETS | Kind.REBALANCE:
            return bool(hit.effect)
        case Kind.POISON | Kind.RESEND:
            return bool(hit.sent)
        case Kind.PAUSED:
            return hit.quiet_ms[0] < hit.quiet_ms[1]
        case Kind.BACKLOG | Kind.NO_RECOVERY:
            return any(move.state == "RETRY" for move in _of(hit, moves))
        case Kind.REDIS_AWAY:
            return any(_tried_again(move) for move in _of(hit, moves))
        case _:
            return True


def _of(hit: Hit, moves: Iterable[Move]) -> list[Move]:
    """What the deliveries that a fault brought along went through while it lasted."""
    keys = {key for sent in hit.sent for key in sent.keys}
    return [m for m in moves if m.delivery_key in keys and hit.at_ms <= m.at_ms <= hit.until_ms]


def _tried_again(move: Move) -> bool:
    return (move.source, move.state) == ("RETRY", "IN_FLIGHT")


def _origin(sent: Sent) -> str:
    return f"{sent.place.topic}/{sent.place.partition}/{sent.offset}"
