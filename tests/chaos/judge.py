"""The judge: what a run's books say of every promise. Pure; `test_judge.py` shows each verdict fail."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from simulator import KeyReport, report_of
from tests.chaos import announced, doubles, doubt, ends, order, pauses
from tests.chaos.announced import Announcements
from tests.chaos.books import Books, Hit, LifeBook, Limits
from tests.chaos.doubles import Double
from tests.chaos.doubt import Doubt
from tests.chaos.ends import Trouble
from tests.chaos.order import Order
from tests.harness import oracle
from tests.harness.books import Row
from tests.harness.wire import Sent

_CONFIDENCE = 3.0
"""-ln 0.05: with none lost of N, the share lost is below 3/N with 95 % confidence."""
_ENDED_ODDLY = frozenset({"PARKED", "EXPIRED", "DROPPED", "REJECTED"})


class Silence(NamedTuple):
    """From a fault to the fleet's next settled delivery."""

    fault: int
    kind: str
    seconds: float | None
    """None when nothing was settled afterwards."""


@dataclass
class Judgement:
    """What became of a run."""

    acknowledged: int = 0
    """Deliveries; one that was produced twice counts once."""
    lost: list[str] = field(default_factory=list)
    doubles: list[Double] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    doubted: int = 0
    """Deliveries that were in doubt at some time."""
    states: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    """Rows that ended otherwise than sent, by state and reason."""
    order: Order = field(default_factory=lambda: Order(0, [], 0, []))
    troubles: list[Trouble] = field(default_factory=list)
    """Deliveries that had to recover, the slowest last."""
    silences: list[Silence] = field(default_factory=list)
    outcomes: Announcements = field(default_factory=lambda: Announcements(0, 0))
    """Records of the topic of outcomes."""
    took_s: list[float] = field(default_factory=list)
    """From the making of each notification to the settling of each of its deliveries, sorted."""
    problems: list[str] = field(default_factory=list)

    @property
    def lost_bound(self) -> float:
        """Upper bound of the share lost, at 95 % confidence."""
        return _CONFIDENCE / self.acknowledged if self.acknowledged else 1.0

    @property
    def longest_silence(self) -> Silence | None:
        """After which fault nothing was settled for longest."""
        known = [s for s in self.silences if s.seconds is not None]
        return max(known, key=lambda s: s.seconds or 0.0, default=None)


def judge(books: Books) -> Judgement:
    """Every verdict on one run."""
    rows, moves, limits = books.rows, books.moves, books.limits
    seen = {report.key: report for report in report_of(books.records).keys}
    sent = once(books.sent)
    doubted = {move.delivery_key for move in moves if move.state == "UNKNOWN"}
    found = Judgement(acknowledged=sum(len(s.keys) for s in sent), doubted=len(doubted))
    found.doubles = doubles.doubles(books.records, rows, moves, limits)
    _judge_deliveries(found, books, sent, seen)
    found.reasons = reasons(rows.values())
    found.order = order.order(sent, books.ordered, seen, doubted)
    found.doubts, strays = doubt.in_doubt(moves, books.lives, books.hits, limits)
    found.troubles = ends.troubles(moves, rows, books.hits)
    found.took_s = took_s(sent, rows)
    found.outcomes = announced.count(books.events)
    found.silences = silences(rows.values(), books.hits)
    found.problems += [
        *books.troubles,
        *doubles.problems(found.doubles),
        *doubt.problems(found.doubts, strays),
        *order.problems(found.order),
        *ends.strange_moves(moves),
        *ends.too_slow(found.troubles, limits),
        *ends.expired_early(rows.values()),
        *ends.sent_late(books.records, rows, limits),
        *ends.parked_oddly(rows, books.records, moves, limits),
        *ends.poison(books),
        *ends.without_effect(books),
        *pauses.sent_in_pause(books),
        *pauses.resumed_late(books),
        *ends.not_drained(books),
        *announced.problems(books.events, rows, moves, books.announced),
        *_of_silences(found.silences, books),
        *(problem for life in books.lives for problem in of_life(life, limits)),
    ]
    return found


# -- deliveries --


def once(sent: Iterable[Sent]) -> list[Sent]:
    """Of records that stand for the same deliveries, the first."""
    firsts: dict[tuple[str, ...], Sent] = {}
    for record in sent:
        if record.keys:
            firsts.setdefault(tuple(record.keys), record)
    return list(firsts.values())


def _judge_deliveries(
    found: Judgement, books: Books, sent: Sequence[Sent], seen: Mapping[str, KeyReport]
) -> None:
    """Lost ones, and rows that contradict the provider: the harness's oracle knows how."""
    verdict = oracle.judge(
        sent, books.rows, seen, books.committed, explained=[d.key for d in found.doubles]
    )
    found.lost, found.states = verdict.lost, verdict.states
    found.problems += verdict.problems
    found.problems += without_row(seen, books.rows)
    found.problems += ends.unsettled(books.rows.values())
    uncovered = (s for s in books.sent if not _covered(s, books))
    found.problems += [f"{s.place}/{s.offset}: never passed by the group" for s in uncovered]


def without_row(seen: Mapping[str, KeyReport], rows: Mapping[str, Row]) -> list[str]:
    """Deliveries that the provider accepted and the ledger does not know."""
    return [
        f"{key}: accepted by the provider, and the ledger has no row"
        for key, report in seen.items()
        if report.accepted and key not in rows
    ]


def reasons(rows: Iterable[Row]) -> Counter[str]:
    """How what was not sent ended, by state and reason."""
    return Counter(f"{row.state}: {row.reason}" for row in rows if row.state in _ENDED_ODDLY)


def _covered(sent: Sent, books: Books) -> bool:
    known = books.committed.get(sent.place)
    return known is not None and known.covers(sent.offset)


# -- how long it took --


def silences(rows: Iterable[Row], hits: Iterable[Hit]) -> list[Silence]:
    """For each fault, how long nothing was settled after it."""
    moments = sorted(row.updated_at for row in rows if row.state == "SENT")
    return [_silence(hit, moments) for hit in hits]


def _silence(hit: Hit, moments: Sequence[int]) -> Silence:
    after = bisect_right(moments, hit.at_ms)
    seconds = (moments[after] - hit.at_ms) / 1_000 if after < len(moments) else None
    return Silence(hit.fault.number, hit.fault.kind.value, seconds)


def took_s(sent: Iterable[Sent], rows: Mapping[str, Row]) -> list[float]:
    """Of every delivery SENT, the seconds from the making of its notification to its settling."""
    pairs = ((s.notification, rows.get(key)) for s in sent for key in s.keys)
    return sorted(
        (row.updated_at - one.created_at) / 1_000
        for one, row in pairs
        if one is not None and row is not None and row.state == "SENT"
    )


def _of_silences(found: Iterable[Silence], books: Books) -> list[str]:
    return [
        f"fault {s.fault} ({s.kind}): nothing was settled after it"
        for s in found
        if s.seconds is None and books.rows
    ]


# -- processes --


def of_life(life: LifeBook, limits: Limits) -> list[str]:
    """What a process's life shows that it must not."""
    name = f"{life.role} {life.worker} (life {life.number})"
    problems = [f"{name}: {line}" for line in life.complaints]
    if not life.ended_by:
        problems.append(f"{name} ended by itself with code {life.code}\n{life.tail}")
    elif life.ended_by == "SIGTERM" and life.code != 0:
        problems.append(f"{name} answered SIGTERM with code {life.code}\n{life.tail}")
    if life.peak_mb > limits.memory_mb:
        problems.append(f"{name} grew to {life.peak_mb:.0f} MB, more than {limits.memory_mb:.0f}")
    return problems
