"""The judge: what a run's books say of every promise. Pure; `test_judge.py` shows each verdict fail."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from channels.simulator import KeyReport, Record, report_of
from tests.chaos.books import Books, Hit, LifeBook, Limits
from tests.chaos.plan import Kind
from tests.harness import oracle
from tests.harness.books import Row
from tests.harness.wire import Sent

OWNER_DEAD = "owner_dead"
GIVEN_BACK = "given_back"
LAPSE = "lease lapsed"
_SLACK_MS = 2_000
"""Clocks of two processes, and the time a signal takes."""
_CONFIDENCE = 3.0
"""-ln 0.05: with none lost of N, the share lost is below 3/N with 95 % confidence."""


class Double(NamedTuple):
    """A delivery accepted more than once; `cause` None: no fault explains it."""

    key: str
    accepted: int
    cause: str | None
    allowed: bool
    """Whether its lane's policy has what is in doubt sent again."""


class Doubt(NamedTuple):
    """The deliveries that one fault left in doubt in one life of a worker."""

    cause: str
    fault: int
    """Number of the fault; 0 for a lease that lapsed without one."""
    worker: str
    left: int
    bound: int


class Order(NamedTuple):
    """How keys fared: judged ones had no delivery in doubt or waiting."""

    judged: int
    broken: list[str]
    excused: int
    broken_though_excused: list[str]


class Recovery(NamedTuple):
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
    states: Counter[str] = field(default_factory=Counter)
    waiting: Counter[str] = field(default_factory=Counter)
    """Rows durably owned and not settled, by state and reason."""
    order: Order = field(default_factory=lambda: Order(0, [], 0, []))
    recoveries: list[Recovery] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    """From the making of each notification to the settling of each of its deliveries, sorted."""
    problems: list[str] = field(default_factory=list)

    @property
    def lost_bound(self) -> float:
        """Upper bound of the share lost, at 95 % confidence."""
        return _CONFIDENCE / self.acknowledged if self.acknowledged else 1.0

    @property
    def slowest(self) -> Recovery | None:
        """The longest recovery."""
        known = [r for r in self.recoveries if r.seconds is not None]
        return max(known, key=lambda r: r.seconds or 0.0, default=None)


def judge(books: Books) -> Judgement:
    """Every verdict on one run."""
    seen = {report.key: report for report in report_of(books.records).keys}
    sent = once(books.sent)
    found = Judgement(acknowledged=sum(len(s.keys) for s in sent))
    found.doubles = doubles(books.records, books.rows, books.hits, books.limits)
    _judge_deliveries(found, books, sent, seen)
    found.waiting = waiting(books.rows.values())
    found.order = order(books, seen)
    found.doubts, strays = in_doubt(books.rows.values(), books.lives, books.hits, books.limits)
    found.took_s = took_s(sent, books.rows)
    found.recoveries = recoveries(books.rows.values(), books.hits)
    found.problems += [
        *books.troubles,
        *_of_doubles(found.doubles),
        *(f"{key}: in doubt, and no fault explains it" for key in strays),
        *_of_doubts(found.doubts),
        *_of_order(found.order),
        *_of_recoveries(found.recoveries, books),
        *(problem for life in books.lives for problem in of_life(life, books.limits)),
    ]
    return found


# -- deliveries --


def once(sent: Iterable[Sent]) -> list[Sent]:
    """Of records that stand for the same deliveries, the first."""
    firsts: dict[tuple[str, ...], Sent] = {}
    for record in sent:
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
    found.problems += unsettled(books.rows.values())
    covered = (s for s in sent if not _covered(s, books))
    found.problems += [f"{s.place}/{s.offset}: never passed by the group" for s in covered]


def without_row(seen: Mapping[str, KeyReport], rows: Mapping[str, Row]) -> list[str]:
    """Deliveries that the provider accepted and the ledger does not know."""
    return [
        f"{key}: accepted by the provider, and the ledger has no row"
        for key, report in seen.items()
        if report.accepted and key not in rows
    ]


def unsettled(rows: Iterable[Row]) -> list[str]:
    """Rows that nobody works on and nobody will look at."""
    return [
        f"{row.delivery_key}: left {row.state} ({row.reason}) by {row.owner}"
        for row in rows
        if row.state == "IN_FLIGHT" or row.reason == GIVEN_BACK
    ]


def waiting(rows: Iterable[Row]) -> Counter[str]:
    """What the ledger owns durably and recovery will take up, by state and reason."""
    return Counter(
        f"{row.state}: {row.reason}" for row in rows if row.state in ("UNKNOWN", "RETRY", "PARKED")
    )


def _covered(sent: Sent, books: Books) -> bool:
    known = books.committed.get(sent.place)
    return known is not None and known.covers(sent.offset)


# -- doubles --


def doubles(
    records: Iterable[Record], rows: Mapping[str, Row], hits: Sequence[Hit], limits: Limits
) -> list[Double]:
    """Deliveries accepted more than once, each with the fault that explains it.

    A fault explains a second acceptance when the first call may have been at the provider as the
    fault struck, and the second was made as another attempt: the ledger had counted it.
    """
    accepted: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.accepted:
            accepted[record.key].append(record)
    return [
        Double(
            key, len(several), _explanation(several, hits, limits), _resends(rows.get(key), limits)
        )
        for key, several in accepted.items()
        if len(several) > 1
    ]


def _resends(row: Row | None, limits: Limits) -> bool:
    return row is not None and row.lane in limits.resending


def _explanation(several: Sequence[Record], hits: Sequence[Hit], limits: Limits) -> str | None:
    causes = []
    for first, second in pairwise(several):
        struck = [h for h in hits if h.worker and _may_have_struck(h, first, limits)]
        if second.attempt <= first.attempt or not struck:
            return None
        causes.append(f"{struck[0].fault.kind.value} (fault {struck[0].fault.number})")
    return ", ".join(causes)


def _may_have_struck(hit: Hit, call: Record, limits: Limits) -> bool:
    """Whether the call was, or may have been, under way when the fault struck a worker."""
    begun, ended = call.at_ms - _SLACK_MS, call.at_ms + limits.timeout_ms + _SLACK_MS
    until = hit.until_ms if hit.fault.kind is Kind.STOP else hit.at_ms
    return begun <= until and hit.at_ms <= ended


def _of_doubles(found: Iterable[Double]) -> list[str]:
    why = {True: "and no fault explains it", False: "and its lane resends nothing"}
    return [
        f"{d.key}: accepted {d.accepted} times ({d.cause or 'no cause'}), {why[d.allowed]}"
        for d in found
        if d.cause is None or not d.allowed
    ]


# -- in doubt --


class _Cause(NamedTuple):
    """Something that can leave deliveries of one life in doubt."""

    at_ms: int
    label: str
    fault: int


def in_doubt(
    rows: Iterable[Row], lives: Sequence[LifeBook], hits: Sequence[Hit], limits: Limits
) -> tuple[list[Doubt], list[str]]:
    """Per life and fault the deliveries put in doubt by a lost lease; and those that none explains.

    A row belongs to the life of its owner in which it was claimed, and to the last cause in that life
    before it became UNKNOWN.
    """
    causes = {life.number: _causes(life, hits, limits) for life in lives}
    counts: Counter[tuple[int, _Cause]] = Counter()
    strays = []
    for row in rows:
        if row.state != "UNKNOWN" or row.reason != OWNER_DEAD:
            continue
        life = _life_of(row, lives)
        cause = _cause_of(row, causes[life.number]) if life else None
        if life is None or cause is None:
            strays.append(row.delivery_key)
        else:
            counts[life.number, cause] += 1
    names = {life.number: life.worker for life in lives}
    doubts = [
        Doubt(cause.label, cause.fault, names[number], count, limits.in_doubt)
        for (number, cause), count in counts.items()
    ]
    return sorted(doubts, key=lambda d: (d.fault, d.worker)), strays


def _life_of(row: Row, lives: Sequence[LifeBook]) -> LifeBook | None:
    """The latest life of that name that had begun when the row was claimed."""
    fit = [
        life
        for life in lives
        if life.worker == row.owner and life.started_ms <= row.created_at + _SLACK_MS
    ]
    # Slack is for a claim whose commit was under way at the end; a life that truly fits goes first.
    within = [life for life in fit if life.started_ms <= row.created_at <= _end(life)]
    return max(within or fit, key=lambda life: life.started_ms, default=None)


def _end(life: LifeBook) -> float:
    return life.ended_ms or float("inf")


def _causes(life: LifeBook, hits: Sequence[Hit], limits: Limits) -> list[_Cause]:
    mine = [h for h in hits if h.life == life.number]
    outages = [h for h in hits if h.fault.kind is Kind.OUTAGE and _lived_through(life, h)]
    own = [_Cause(h.at_ms, h.fault.kind.value, h.fault.number) for h in (*mine, *outages)]
    stops = [h for h in (*mine, *outages) if h.fault.kind is not Kind.KILL]
    lapses = [
        _Cause(at, LAPSE, 0)
        for at in life.lapses_ms
        if not any(h.at_ms <= at <= h.until_ms + limits.lease_ms + _SLACK_MS for h in stops)
    ]
    return sorted([*own, *lapses])


def _lived_through(life: LifeBook, hit: Hit) -> bool:
    return life.started_ms <= hit.until_ms and (not life.ended_ms or hit.at_ms <= life.ended_ms)


def _cause_of(row: Row, causes: Sequence[_Cause]) -> _Cause | None:
    before = [c for c in causes if c.at_ms <= row.updated_at]
    if before:
        return before[-1]
    # A peer may notice a lapse before the worker itself does.
    return next((c for c in causes if c.label == LAPSE), None)


def _of_doubts(doubts: Iterable[Doubt]) -> list[str]:
    return [
        f"{d.cause} of {d.worker} (fault {d.fault}) left {d.left} in doubt, more than {d.bound}"
        for d in doubts
        if d.left > d.bound
    ]


# -- order --


def order(books: Books, seen: Mapping[str, KeyReport]) -> Order:
    """Whether the provider got each key's notifications in the order of their offsets."""
    lines: dict[str, list[Sent]] = defaultdict(list)
    for record in once(books.sent):
        one = record.notification
        if record.place.topic == books.ordered and one is not None and one.ordering_key is not None:
            lines[one.ordering_key].append(record)
    broken: list[str] = []
    excused: list[str] = []
    for key, line in lines.items():
        if any(_in_doubt(books.rows.get(k)) for record in line for k in record.keys):
            excused.append(key)
        if not _in_order(line, seen):
            broken.append(key)
    return Order(
        judged=len(lines) - len(excused),
        broken=[key for key in broken if key not in excused],
        excused=len(excused),
        broken_though_excused=[key for key in broken if key in excused],
    )


def _in_doubt(row: Row | None) -> bool:
    return row is None or row.state in ("UNKNOWN", "RETRY")


def _in_order(line: Sequence[Sent], seen: Mapping[str, KeyReport]) -> bool:
    """The last call of each notification comes before the first call of the next."""
    reached = 0
    for record in sorted(line, key=lambda s: s.offset):
        calls = [seen[key] for key in record.keys if key in seen]
        if any(call.first_seq < reached for call in calls):
            return False
        reached = max([reached, *(call.last_seq for call in calls)])
    return True


def _of_order(found: Order) -> list[str]:
    return [f"{key}: its notifications reached the provider out of order" for key in found.broken]


# -- recovery --


def recoveries(rows: Iterable[Row], hits: Iterable[Hit]) -> list[Recovery]:
    """For each fault, how long nothing was settled after it."""
    moments = sorted(row.updated_at for row in rows if row.state == "SENT")
    return [_recovery(hit, moments) for hit in hits]


def _recovery(hit: Hit, moments: Sequence[int]) -> Recovery:
    after = bisect_right(moments, hit.at_ms)
    seconds = (moments[after] - hit.at_ms) / 1_000 if after < len(moments) else None
    return Recovery(hit.fault.number, hit.fault.kind.value, seconds)


def took_s(sent: Iterable[Sent], rows: Mapping[str, Row]) -> list[float]:
    """Of every delivery SENT, the seconds from the making of its notification to its settling."""
    pairs = ((s.notification, rows.get(key)) for s in sent for key in s.keys)
    return sorted(
        (row.updated_at - one.created_at) / 1_000
        for one, row in pairs
        if one is not None and row is not None and row.state == "SENT"
    )


def _of_recoveries(found: Iterable[Recovery], books: Books) -> list[str]:
    return [
        f"fault {r.fault} ({r.kind}): nothing was settled after it"
        for r in found
        if r.seconds is None and books.rows
    ]


# -- workers --


def of_life(life: LifeBook, limits: Limits) -> list[str]:
    """What a worker's life shows that it must not."""
    name = f"worker {life.worker} (life {life.number})"
    problems = [f"{name}: {line}" for line in life.complaints]
    if not life.ended_by:
        problems.append(f"{name} ended by itself with code {life.code}\n{life.tail}")
    elif life.ended_by == "SIGTERM" and life.code != 0:
        problems.append(f"{name} answered SIGTERM with code {life.code}\n{life.tail}")
    if life.peak_mb > limits.memory_mb:
        problems.append(f"{name} grew to {life.peak_mb:.0f} MB, more than {limits.memory_mb:.0f}")
    return problems
