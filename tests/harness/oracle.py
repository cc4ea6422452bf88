"""The oracle: from what Kafka took, what the ledger says and what the provider accepted, what is wrong.

It judges by four sources that know nothing of one another: the producer's acknowledgements, the
ledger's rows, the provider's synced file and the group's committed offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from message.states import State
from simulator import KeyReport
from tests.harness.books import Row
from tests.harness.wire import Committed, Place, Sent

_NOT_SENT = frozenset({"RETRY", "EXPIRED", "DROPPED"})
"""States in which no provider can have accepted anything. REJECTED and PARKED depend on its word."""
_GOT_IT = frozenset({"SENT", "DELIVERED", "UNDELIVERED"})
_MAX_SHOWN = 10


@dataclass
class LedgerVerdict:
    """The account of one run. `problems` is empty when every promise was kept."""

    sent: int = 0
    """Deliveries that Kafka acknowledged."""
    accepted: int = 0
    """Of them, those that the provider accepted at least once."""
    states: Counter[str] = field(default_factory=Counter)
    waiting: list[str] = field(default_factory=list)
    """Keys without a row, whose offset the group has not passed: still to be read."""
    lost: list[str] = field(default_factory=list)
    """Keys without an owner whose offset has passed, or that should all have been read."""
    doubled: list[str] = field(default_factory=list)
    """Keys accepted more than once."""
    problems: list[str] = field(default_factory=list)

    @property
    def in_doubt(self) -> int:
        return self.states["UNKNOWN"]

    def say(self, problem: str) -> None:
        self.problems.append(problem)


def judge(
    sent: Iterable[Sent],
    rows: Mapping[str, Row],
    seen: Mapping[str, KeyReport],
    committed: Mapping[Place, Committed],
    *,
    all_read: bool = True,
    unkept: Collection[str] = (),
    explained: Collection[str] = (),
) -> LedgerVerdict:
    """Compare. `all_read`: the run went to its end, so that nothing may be waiting; `unkept`: names of
    `best_effort` topics, which no ledger answers for; `explained`: keys that may be doubled."""
    verdict = LedgerVerdict()
    for record in sent:
        owned = [key for key in record.keys if _owned(rows.get(key))]
        passed = _passed(record, committed)
        for key in record.keys:
            verdict.sent += 1
            verdict.accepted += bool(seen.get(key) and seen[key].accepted)
            if record.place.topic in unkept:
                continue
            if key not in owned:
                _judge_missing(verdict, record, key, passed=passed, all_read=all_read)
            if key in rows:
                _judge_row(verdict, rows[key], seen.get(key))
    _judge_doubles(verdict, seen, explained)
    return verdict


def check(verdict: LedgerVerdict) -> LedgerVerdict:
    """The verdict, or an AssertionError that lists what is wrong."""
    shown = verdict.problems[:_MAX_SHOWN]
    more = len(verdict.problems) - len(shown)
    text = "\n".join([*shown, *([f"… and {more} more"] if more else [])])
    assert not verdict.problems, f"{len(verdict.problems)} broken promises:\n{text}"
    return verdict


def _owned(row: Row | None) -> bool:
    """Whether the ledger alone answers for it: what was given back waits for Kafka's next reader."""
    return row is not None and not (row.state == "RETRY" and row.reason == "given_back")


def _passed(record: Sent, committed: Mapping[Place, Committed]) -> bool:
    known = committed.get(record.place)
    return known is not None and known.covers(record.offset)


def _judge_missing(
    verdict: LedgerVerdict, record: Sent, key: str, *, passed: bool, all_read: bool
) -> None:
    where = f"{key} ({record.place.topic}/{record.place.partition}/{record.offset})"
    if passed:
        verdict.lost.append(key)
        verdict.say(f"{where}: the group passed its offset and the ledger does not own it")
    elif all_read:
        verdict.lost.append(key)
        verdict.say(f"{where}: never entered the ledger")
    else:
        verdict.waiting.append(key)


def _judge_row(verdict: LedgerVerdict, row: Row, seen: KeyReport | None) -> None:
    accepted = seen.accepted if seen else 0
    verdict.states[row.state] += 1
    if row.state not in State.__members__:
        verdict.say(f"{row.delivery_key}: {row.state!r} is no state")
    if row.state in _GOT_IT and not accepted:
        verdict.say(f"{row.delivery_key}: {row.state}, and the provider never accepted it")
    if row.state in _NOT_SENT and accepted:
        verdict.say(f"{row.delivery_key}: {row.state} ({row.reason}), and the provider has it")
    if row.state in ("DROPPED", "PARKED", "REJECTED", "EXPIRED") and not row.reason:
        verdict.say(f"{row.delivery_key}: {row.state} without a reason")


def _judge_doubles(
    verdict: LedgerVerdict, seen: Mapping[str, KeyReport], explained: Collection[str]
) -> None:
    for key, report in seen.items():
        if report.accepted > 1:
            verdict.doubled.append(key)
            if key not in explained:
                verdict.say(f"{key}: accepted {report.accepted} times, attempts {report.attempts}")
