"""Findings: deliveries that a Spark job found lost, and the decision about each (docs/recovery.md#lost).

    NEW      recovery acts: it enters the delivery into the ledger, if nothing contradicts it
    ASKED    a person decides: by the lane's policy, or because the cause proves too little
    RESENT, EXPIRED, CONTRADICTED, DISMISSED, GONE    ended

`decided_at` of a NEW finding is the time at which recovery began to enter it. `decided_by` of a NEW one is
the person who ordered it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, text

from backends.sql.database import Database
from idempotency.claims.rows import clean
from idempotency.payload_cipher import PayloadCipher
from idempotency.transactions import Clock, LedgerPart

PAGE: Final = 100
"""Findings that one read returns with their bodies."""
BOUND: Final = 10_000
"""Findings that a count reads at most."""


class FindingStatus(StrEnum):
    """States of a finding."""

    NEW = "NEW"
    ASKED = "ASKED"
    RESENT = "RESENT"
    EXPIRED = "EXPIRED"
    CONTRADICTED = "CONTRADICTED"
    DISMISSED = "DISMISSED"
    GONE = "GONE"


class Finding(NamedTuple):
    """One row of `lost_findings`. Times are epoch milliseconds."""

    id: int
    subject: str
    """The delivery key; for offsets that nobody can name, `TOPIC/PARTITION/FIRST-LAST`."""
    cause: str
    lane: str
    message_id: str | None
    biz_id: str | None
    receiver: str | None
    """Masked."""
    origin: str | None
    created_at: int | None
    expires_at: int | None
    certain: bool
    detail: str
    body: bytes | None
    """Sealed, for a record that Kafka no longer has."""
    first_run: int
    last_run: int
    found_at: int
    status: FindingStatus
    decided_at: int | None
    decided_by: str | None
    decided_why: str | None

    @property
    def is_begun(self) -> bool:
        """Whether recovery began to enter it, and may have."""
        return self.status is FindingStatus.NEW and self.decided_at is not None

    @property
    def is_ordered(self) -> bool:
        """Whether a person ordered its resend."""
        return self.status is FindingStatus.NEW and self.decided_by is not None


class Decision(NamedTuple):
    """The end of a finding, or its way to a person."""

    id: int
    status: FindingStatus
    why: str
    source: FindingStatus | None = FindingStatus.NEW
    """Written only while the finding has this status; None: whatever it has, since the ledger says so."""


class SilentCall(NamedTuple):
    """The calls of which one sent a delivery, as far as the ledger knows. Times are epoch milliseconds."""

    account: str
    call_key: str
    called_at: int
    attempt: int
    expires_at: int
    last_called_at: int = 0
    """Start of the last call; 0: there was only one."""


class FindingCount(NamedTuple):
    """Number of equal findings."""

    lane: str
    cause: str
    status: FindingStatus
    findings: int


class FindingFilter(NamedTuple):
    """Conditions on findings; an empty one holds for each."""

    statuses: Collection[str] = ()
    lanes: Collection[str] = ()
    causes: Collection[str] = ()
    since: int = 0
    """Epoch milliseconds of `found_at`."""
    before: int = 0
    """Only ids below this one; 0: all."""


AlsoDecided = Callable[[Connection, "set[int]"], None]
"""Writes more in the transaction of a decision; takes the ids that were changed."""


def nothing_else(_connection: Connection, _ids: set[int]) -> None:
    """Writes nothing."""


_FIELDS: Final = ", ".join(Finding._fields)
_NEW: Final = text(f"""
SELECT {_FIELDS} FROM lost_findings
 WHERE status = 'NEW' AND id > :after ORDER BY id LIMIT :limit""")  # noqa: S608 - ours
_SILENT: Final = text(f"""
SELECT {_FIELDS} FROM lost_findings
 WHERE status = 'ASKED' AND cause = 'silent' AND decided_at IS NULL
 ORDER BY id LIMIT :limit""")  # noqa: S608 - ours
_BEGIN: Final = text("""
UPDATE lost_findings SET decided_at = :now
 WHERE id IN :ids AND status = 'NEW' RETURNING id""").bindparams(bindparam("ids", expanding=True))
_DECIDE: Final = text("""
UPDATE lost_findings
   SET status = :status, decided_at = :now, decided_by = coalesce(decided_by, :by),
       decided_why = coalesce(decided_why || '; ', '') || :why
 WHERE id = :id AND status = coalesce(:source, status)""")
_ORDER: Final = text("""
UPDATE lost_findings
   SET status = 'NEW', decided_at = NULL, decided_by = :by, decided_why = :why
 WHERE id IN :ids AND status = 'ASKED' RETURNING id""").bindparams(bindparam("ids", expanding=True))
_DISMISS: Final = text("""
UPDATE lost_findings
   SET status = 'DISMISSED', decided_at = :now, decided_by = :by, decided_why = :why
 WHERE id IN :ids AND status IN ('NEW', 'ASKED') RETURNING id""").bindparams(
    bindparam("ids", expanding=True)
)
_NAMED: Final = text(f"""
SELECT {_FIELDS} FROM lost_findings
 WHERE id = :id OR subject = :name OR message_id = :name ORDER BY id LIMIT :limit""")  # noqa: S608
_STARTED: Final = text("SELECT min(started_at) FROM spark_runs WHERE id >= :run")
_SENT: Final = text("""
SELECT account, call_key, called_at, attempt, expires_at, last_called_at FROM deliveries
 WHERE delivery_key = :key AND state = 'SENT' AND called_at IS NOT NULL""")
_COUNTS: Final = text("""
SELECT lane, cause, status, count(*) AS findings FROM (
    SELECT lane, cause, status FROM lost_findings
     WHERE status IN ('NEW', 'ASKED') OR (status IN ('RESENT', 'EXPIRED') AND found_at >= :since)
     LIMIT :bound) AS f
 GROUP BY lane, cause, status ORDER BY lane, cause, status""")


class LostFindings(LedgerPart):
    """Every method is one transaction and raises LedgerError alone; `body` PayloadUnreadable."""

    def __init__(self, database: Database, sealer: PayloadCipher, clock: Clock) -> None:
        super().__init__(database, clock)
        self._sealer = sealer

    def on(self, database: Database, clock: Clock) -> LostFindings:
        """Returns the same findings on another database, such as a replica."""
        return LostFindings(database, self._sealer, clock)

    # ---- recovery ----------------------------------------------------------------------------

    def new(self, after: int = 0, limit: int = PAGE) -> list[Finding]:
        """Returns NEW findings with an id above `after`, in the order of their ids."""
        return self._rows(_NEW, {"after": after, "limit": limit})

    def silent(self, limit: int) -> list[Finding]:
        """Returns silent deliveries whose provider was not asked."""
        return self._rows(_SILENT, {"limit": limit})

    def begin(self, ids: Sequence[int]) -> set[int]:
        """Notes that recovery enters these now. Returns those that are still NEW."""
        if not ids:
            return set()
        with self._begin() as (connection, now):
            return set(connection.execute(_BEGIN, {"ids": list(ids), "now": now}).scalars())

    def decide(self, decisions: Sequence[Decision], by: str) -> None:
        """Writes the decisions; a person's name and reason stay before them."""
        if not decisions:
            return
        with self._begin() as (connection, now):
            connection.execute(
                _DECIDE,
                [
                    one._asdict() | {"by": by, "now": now, "why": clean(one.why)}
                    for one in decisions
                ],
            )

    def body(self, finding: Finding) -> bytes | None:
        """Returns the envelope's bytes, opened; None without a kept body."""
        if finding.body is None:
            return None
        return self._sealer.open(finding.body, finding.message_id or "")

    def run_started(self, run: int) -> int:
        """Returns the start of that run, or of the next one on record; 0 without any."""
        with self._reading() as connection:
            return int(connection.execute(_STARTED, {"run": run}).scalar_one() or 0)

    def sent_call(self, delivery_key: str) -> SilentCall | None:
        """Returns the call of a delivery that is SENT and without a receipt; None for any other."""
        with self._reading() as connection:
            row = connection.execute(_SENT, {"key": delivery_key}).one_or_none()
        if row is None:
            return None
        key = row.call_key or delivery_key
        times = row.called_at, row.attempt, row.expires_at, row.last_called_at or 0
        return SilentCall(row.account or "", key, *times)

    # ---- a person ----------------------------------------------------------------------------

    def named(self, name: str, limit: int = BOUND) -> list[Finding]:
        """Returns the findings of a finding's id, a subject or a message id."""
        number = int(name) if name.isascii() and name.isdigit() and len(name) < 19 else -1
        return self._rows(_NAMED, {"id": number, "name": name, "limit": limit})

    def select(self, wanted: FindingFilter, limit: int) -> list[Finding]:
        """Returns the findings that fit, the newest first."""
        conditions, values = _conditions(wanted)
        statement = text(
            f"SELECT {_FIELDS} FROM lost_findings WHERE {conditions}"  # noqa: S608 - ours
            " ORDER BY id DESC LIMIT :limit"
        )
        return self._rows(statement, {**values, "limit": limit})

    def order(
        self, ids: Sequence[int], by: str, why: str, also: AlsoDecided = nothing_else
    ) -> set[int]:
        """Has recovery enter these ASKED findings. Returns those that were ASKED."""
        return self._changed(_ORDER, ids, by, why, also)

    def dismiss(
        self, ids: Sequence[int], by: str, why: str, also: AlsoDecided = nothing_else
    ) -> set[int]:
        """Ends these findings without a send. Returns those that were NEW or ASKED."""
        return self._changed(_DISMISS, ids, by, why, also)

    def counts(self, within_ms: int) -> list[FindingCount]:
        """Returns the numbers of undecided findings, and of those found in the last `within_ms` that were
        resent or expired."""
        with self._begin() as (connection, now):
            return counted(connection, now - within_ms)

    def _changed(
        self, statement: Any, ids: Sequence[int], by: str, why: str, also: AlsoDecided
    ) -> set[int]:
        if not ids:
            return set()
        with self._begin() as (connection, now):
            values = {"ids": list(ids), "by": clean(by), "why": clean(why), "now": now}
            changed = set(connection.execute(statement, values).scalars())
            also(connection, changed)
            return changed

    def _rows(self, statement: Any, values: dict[str, Any]) -> list[Finding]:
        with self._reading() as connection:
            return [_finding(row) for row in connection.execute(statement, values)]


def counted(connection: Connection, since: int) -> list[FindingCount]:
    """Returns the numbers of undecided findings, and of those found since then and resent or expired."""
    found = connection.execute(_COUNTS, {"since": since, "bound": BOUND})
    return [FindingCount(r.lane, r.cause, FindingStatus(r.status), r.findings) for r in found]


def _finding(row: Any) -> Finding:
    found = Finding(*row)
    return found._replace(
        certain=bool(found.certain),
        body=None if found.body is None else bytes(found.body),
        status=FindingStatus(found.status),
    )


def _conditions(wanted: FindingFilter) -> tuple[str, dict[str, Any]]:
    """Returns the condition in SQL, and its parameters."""
    parts, values = ["found_at >= :since"], {"since": wanted.since}
    for column, some in (
        ("status", wanted.statuses),
        ("lane", wanted.lanes),
        ("cause", wanted.causes),
    ):
        if some:
            named: dict[str, Any] = {f"{column}{n}": value for n, value in enumerate(some)}
            parts.append(f"{column} IN ({', '.join(f':{name}' for name in named)})")
            values |= named
    if wanted.before:
        parts.append("id < :before")
        values["before"] = wanted.before
    return " AND ".join(parts), values
