"""The simulator's report, per delivery key and in sum: of a running one, or from its ledger alone."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from simulator.ledger import LedgerRecord


class KeyReport(msgspec.Struct):
    """Everything seen of one delivery key."""

    key: str
    id: str
    receiver: str
    path: str
    requests: int = 0
    accepted: int = 0
    answers: dict[str, int] = {}
    """How often each: `200`, `503`, `reset`, …"""
    attempts: list[int] = []
    """In the order of arrival."""
    bodies: list[str] = []
    """Distinct digests."""
    provider_id: str = ""
    """Given by the first acceptance."""
    first_seq: int = 0
    last_seq: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def add(self, record: LedgerRecord) -> None:
        """Counts one more request."""
        self.requests += 1
        self.answers[record.answer] = self.answers.get(record.answer, 0) + 1
        self.attempts.append(record.attempt)
        if record.digest not in self.bodies:
            self.bodies.append(record.digest)
        if record.accepted:
            self.accepted += 1
            self.provider_id = self.provider_id or provider_id(record)
        if not self.first_seq:
            self.first_seq, self.first_ms = record.seq, record.at_ms
        self.last_seq, self.last_ms = record.seq, record.at_ms


class Summary(msgspec.Struct):
    """The report in numbers."""

    keys: int = 0
    requests: int = 0
    accepted: int = 0
    """Acceptances, doubles counted."""
    accepted_keys: int = 0
    doubled: list[str] = []
    """Keys accepted more than once."""
    answers: dict[str, int] = {}
    counts: dict[str, int] = {}
    """Counts of the protocols: tokens given out, signatures refused, …"""


class Report(msgspec.Struct):
    """The whole report; `keys` in order of their first request, empty in a summary."""

    summary: Summary
    keys: list[KeyReport] = []


class Memory:
    """All keys seen so far; grows by one KeyReport a key."""

    def __init__(self, records: Iterable[LedgerRecord] = ()) -> None:
        self.keys: dict[str, KeyReport] = {}
        self.counts: dict[str, int] = {}
        self.last_seq = 0
        self._spoken: list[LedgerRecord] = []
        for record in records:
            self.add(record)
            if record.protocol:
                self._spoken.append(record)

    def of_protocols(self) -> list[LedgerRecord]:
        """Returns the records of wire protocols from an earlier run; only the first call returns them."""
        spoken, self._spoken = self._spoken, []
        return spoken

    def add(self, record: LedgerRecord) -> KeyReport:
        """Takes in one record. Returns its key's report."""
        seen = self.keys.get(record.key)
        if seen is None:
            seen = KeyReport(record.key, record.id, record.receiver, record.path)
            self.keys[record.key] = seen
        seen.add(record)
        self.last_seq = record.seq
        return seen

    def report(self, *, summary_only: bool = False) -> Report:
        """Returns the report as of now."""
        keys = list(self.keys.values())
        return Report(_summary(keys, self.counts), [] if summary_only else keys)


def report_of(records: Iterable[LedgerRecord]) -> Report:
    """Returns the report of a ledger: `report_of(read_ledger(path))`."""
    return Memory(records).report()


def provider_id(record: LedgerRecord) -> str:
    """Returns the provider's name for the message of this record."""
    return record.provider_id or f"sim-{record.seq}"


def _summary(keys: list[KeyReport], counts: dict[str, int]) -> Summary:
    summary = Summary(keys=len(keys), counts=dict(counts))
    for seen in keys:
        summary.requests += seen.requests
        summary.accepted += seen.accepted
        summary.accepted_keys += seen.accepted > 0
        if seen.accepted > 1:
            summary.doubled.append(seen.key)
        for answer, times in seen.answers.items():
            summary.answers[answer] = summary.answers.get(answer, 0) + times
    return summary
