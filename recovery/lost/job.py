"""The job that enters found deliveries into the ledger: one recovery at a time, by the duty `lost`.

    rules     the lane's policy and the cause
    ledger    a row contradicts the finding; so do an archived one and a dead letter
    body      kept with the finding, else Kafka's record
    begin     noted before the entry, so that a round after a crash knows its own rows
    claim     one statement; `delivery_keys` decides between it and a worker that reads the record
    note      the decision

The entered row is RETRY, reason `lost`: recovery sends it as any other first send. A round that fails
anywhere leaves its findings NEW, and the next one repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import structlog

from backends.kafka.clients import KafkaTrouble
from backends.settings import SettingsError
from idempotency.archive.lookup import ArchivedDeliveries
from idempotency.ledger import Claim, Claimed
from idempotency.lookups import FoundRow
from idempotency.lost.findings import Decision, Finding, FindingStatus, LostFindings
from idempotency.payload_cipher import PayloadUnreadable
from message.delivery import Delivery, Origin
from message.envelope import EnvelopeError
from message.reasons import LOST
from policy.schema import Policy
from recovery.lost.entry import (
    OTHER_RECORD,
    by_place,
    claim_of,
    decision_of,
    delivery_of,
    keeps_order,
    known,
)
from recovery.lost.evidence import archive_place
from recovery.lost.rules import decided, origin_of
from recovery.lost.silence import SilentQuestions
from recovery.lost.telemetry import LostTelemetry

log = structlog.get_logger(__name__)
DUTY: Final = "lost"
LEASE_MS: Final = 30_000
"""Longer than a round of questions (recovery/lost/silence.py); a second holder would only work twice."""
EVERY_S: Final = 5.0
"""Interval of the looks for findings."""
NO_BODY: Final = "its record is gone from Kafka, and no body was kept"


class EntryLedger(Protocol):
    """The ledger, as far as the job uses it. Every method raises LedgerError."""

    def claim(self, claims: Sequence[Claim], owner: str, *, ordered: bool = False) -> list[Claimed]:
        """See `idempotency.ledger.Ledger.claim`."""
        ...

    def now_ms(self) -> int:
        """Returns the database's time, epoch milliseconds."""
        ...


class RecordSource(Protocol):
    """See `recovery.lost.records.LostRecords`. Every method raises KafkaTrouble and SettingsError."""

    def begin(self) -> None:
        """Forgets what an earlier round read."""
        ...

    def bodies(self, origins: Collection[Origin]) -> Mapping[Origin, bytes]:
        """Returns the values of the records at these places."""
        ...

    def dead(self, since_ms: int) -> frozenset[str]:
        """Returns the origins of the dead letters since then."""
        ...


class EntryStores(NamedTuple):
    """Stores that the job reads and writes."""

    findings: LostFindings
    ledger: EntryLedger
    rows: Callable[[Sequence[str]], list[FoundRow]]
    """`Queries.by_keys`."""
    archived: ArchivedDeliveries
    records: RecordSource


class LostDeliveries:
    """For one thread at a time; `adopt` is any thread's."""

    def __init__(
        self,
        stores: EntryStores,
        policy: Policy,
        *,
        name: str,
        silence: SilentQuestions,
        report: LostTelemetry,
        hold: Callable[[str, int], bool],
        stopping: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        """`hold` is `Recovery.hold`; `name` that of the recovery, which owns the rows at first."""
        self._stores = stores
        self._policy = policy
        self._name = name
        self._silence = silence
        self._report = report
        self._hold = hold
        self._stopping = stopping
        self._monotonic = monotonic
        self._next_at = float("-inf")

    def adopt(self, policy: Policy) -> None:
        """Takes lanes' terms from this policy from now on."""
        self._policy = policy

    def run_once(self) -> int:
        """Decides about all NEW findings. Returns the number of deliveries entered. Raises LedgerError."""
        if self._monotonic() < self._next_at:
            return 0
        self._next_at = self._monotonic() + EVERY_S
        if not self._hold(DUTY, LEASE_MS):
            return 0
        entered, after = 0, 0
        self._stores.records.begin()
        while not self._stopping():
            page = self._stores.findings.new(after)
            if not page or not self._hold(DUTY, LEASE_MS):
                break
            after = page[-1].id
            try:
                entered += self._decide(page)
            except (KafkaTrouble, SettingsError) as exc:  # a certificate is being replaced, say
                log.warning("lost_not_entered", cause=str(exc), what="tried again in a moment")
                break
        if not self._stopping():
            self._note(*self._silence.run_once())
        return entered

    def _decide(self, page: Sequence[Finding]) -> int:
        policy = self._policy
        early = {f.id: found for f in page if (found := decided(f, policy))}
        left = [f for f in page if f.id not in early]
        early |= self._contradicted(left)
        ready: list[tuple[Finding, Delivery]] = []
        for finding, made in self._made([f for f in left if f.id not in early], policy):
            if isinstance(made, Decision):
                early[finding.id] = made
            else:
                ready.append((finding, made))
        self._note(page, list(early.values()))
        return self._enter(by_place(ready), policy)

    # ---- what speaks against it --------------------------------------------------------------

    def _contradicted(self, page: Sequence[Finding]) -> dict[int, Decision]:
        """Returns the decisions on findings that ledger, archive or dead letters contradict."""
        if not page:
            return {}
        standing = {row.delivery_key: row for row in self._stores.rows([f.subject for f in page])}
        found = {
            f.id: known(f, row.state, begun=f.is_begun or row.reason == LOST)
            for f in page
            if (row := standing.get(f.subject))
        }
        for f in page:
            if f.id not in found and (where := archive_place(self._stores.archived, f)):
                found[f.id] = _contradicted(f, f"the archive has it ({where})")
        dead = self._dead([f for f in page if f.id not in found and f.origin])
        return found | {f.id: _contradicted(f, "its record is a dead letter") for f in dead}

    def _dead(self, page: Sequence[Finding]) -> list[Finding]:
        if not page:
            return []
        since = self._stores.findings.run_started(min(f.last_run for f in page))
        dead = self._stores.records.dead(since)
        return [f for f in page if f.origin in dead]

    # ---- bodies ------------------------------------------------------------------------------

    def _made(
        self, page: Sequence[Finding], policy: Policy
    ) -> list[tuple[Finding, Delivery | Decision]]:
        """Returns each finding's delivery, or the decision on one without a body to send."""
        kept = {f.id: body for f in page if (body := self._kept(f))}
        places = {f.id: o for f in page if f.id not in kept and (o := origin_of(f))}
        read = self._stores.records.bodies(set(places.values())) if places else {}
        made: list[tuple[Finding, Delivery | Decision]] = []
        for f in page:
            body = kept.get(f.id) or read.get(places.get(f.id, _NOWHERE))
            made.append((f, _delivery(f, body, policy)))
        return made

    def _kept(self, finding: Finding) -> bytes | None:
        try:
            return self._stores.findings.body(finding)
        except PayloadUnreadable as exc:
            log.error("lost_body_unreadable", finding=finding.id, cause=str(exc))
            return None

    # ---- entering ----------------------------------------------------------------------------

    def _enter(self, ready: Sequence[tuple[Finding, Delivery]], policy: Policy) -> int:
        """Enters the deliveries, in one statement for those with an order and one for the others."""
        open_ids = self._stores.findings.begin([finding.id for finding, _ in ready])
        now, entered = self._stores.ledger.now_ms(), 0
        for ordered in (False, True):
            pairs = [
                (f, d)
                for f, d in ready
                if f.id in open_ids and keeps_order(f.lane, policy) is ordered
            ]
            claims = [claim_of(delivery, now) for _, delivery in pairs]
            answers = self._stores.ledger.claim(claims, self._name, ordered=ordered)
            decisions = [
                decision_of(finding, claim, answer)
                for (finding, _), claim, answer in zip(pairs, claims, answers, strict=True)
            ]
            self._note([f for f, _ in pairs], decisions)
            won = [(f, c, a) for (f, _), c, a in zip(pairs, claims, answers, strict=True) if a.won]
            self._report.entered(won)
            entered += len(won)
        return entered

    def _note(self, findings: Sequence[Finding], decisions: Sequence[Decision]) -> None:
        if decisions:
            self._stores.findings.decide(decisions, self._name)
            self._report.decided(findings, decisions)


_NOWHERE: Final = Origin("", -1, -1)


def _delivery(finding: Finding, body: bytes | None, policy: Policy) -> Delivery | Decision:
    if body is None:
        return Decision(finding.id, FindingStatus.ASKED, NO_BODY)
    try:
        made = delivery_of(finding, body, policy)
    except EnvelopeError as exc:
        return _contradicted(finding, f"no worker would have sent it: {exc.code}")
    if made is None:
        return Decision(finding.id, FindingStatus.ASKED, OTHER_RECORD)
    return made


def _contradicted(finding: Finding, why: str) -> Decision:
    return Decision(finding.id, FindingStatus.CONTRADICTED, why)
