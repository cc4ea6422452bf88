"""Items of resend jobs: those whose turn it is, their fates, and their ends as the ledger has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, bindparam, text

from backends.sql.database import Database
from idempotency.recovery import statements as sql
from idempotency.resend_jobs.contract import (
    Baseline,
    FreezePlace,
    ItemChange,
    ItemFate,
    JobCount,
    JobItem,
    ResendJob,
)
from idempotency.resend_jobs.rows import add_counts, counted_items, digest_of
from idempotency.transactions import Clock, LedgerPart
from message.states import OPEN, State

CHECKED: Final = 5_000
"""Items of one page of a check."""
FOLLOWED: Final = 1_000
"""Items of one look for ends."""
PAGE: Final = 1_000
"""Items of one page of a listing."""
_FIELDS: Final = ", ".join(f"t.{name}" for name in JobItem._fields)
_OF_FATE: Final = """
SELECT {fields} FROM resend_job_items AS t
 WHERE t.job_id = :job AND t.fate IN ({fates}) AND t.delivery_key > :after
 ORDER BY t.delivery_key LIMIT :limit"""
_ALL: Final = text(f"""
SELECT {_FIELDS} FROM resend_job_items AS t
 WHERE t.job_id = :job AND t.delivery_key > :after ORDER BY t.delivery_key LIMIT :limit""")  # noqa: S608
_CHANGE: Final = """
UPDATE resend_job_items AS t
   SET fate = i.fate, why = i.why, new_id = coalesce(i.new_id, t.new_id),
       new_key = coalesce(i.new_key, t.new_key),
       applied_at = CASE WHEN i.fate IN ('APPLYING', 'APPLIED') THEN coalesce(t.applied_at, :now)
                         ELSE t.applied_at END,
       ended_at = CASE WHEN i.fate IN ('APPLYING', 'APPLIED') THEN NULL ELSE :now END
  FROM {given}
 WHERE t.job_id = :job AND t.delivery_key = i.key AND t.fate = i.source
RETURNING delivery_key, lane, account"""
_STANDING: Final = """
SELECT i.key, d.version, d.state, d.reason, d.attempt
  FROM {given} LEFT JOIN deliveries AS d ON {its_row}"""
_DAYS: Final = text("""
SELECT delivery_key, day FROM delivery_keys WHERE delivery_key IN :keys""").bindparams(
    bindparam("keys", expanding=True)
)
_COPIES: Final = text("""
SELECT delivery_key, day FROM deliveries WHERE delivery_key IN :keys""").bindparams(
    bindparam("keys", expanding=True)
)
_COUNTS: Final = text("SELECT * FROM resend_job_counts WHERE job_id = :job")
_COUNTS_OF: Final = text(
    "SELECT * FROM resend_job_counts WHERE job_id IN :jobs ORDER BY job_id, lane, account, fate, why"
).bindparams(bindparam("jobs", expanding=True))
_ENDS: Final = {
    State.SENT: ItemFate.SENT,
    State.DELIVERED: ItemFate.SENT,
    State.DROPPED: ItemFate.REFUSED,
}
"""Fates of ends; any other settled state is a failure."""


class StandingRow(NamedTuple):
    """A delivery as the ledger has it now; None in each field without a row."""

    key: str
    version: int | None
    state: str | None
    reason: str | None
    attempt: int | None


class CheckResult(NamedTuple):
    """One page of a check."""

    place: FreezePlace
    """With the rows that moved in `number`, and the digest so far."""
    done: bool


class FollowResult(NamedTuple):
    """One look for ends."""

    after: str
    """Key of the last item that was looked at; empty at the end of a round."""
    waiting: int
    """Judged items that have not ended."""
    troubled: int
    """Of these, items in doubt, or tried without success since they were handed over."""
    ended: Sequence[ItemChange]


class JobItems(LedgerPart):
    """Every method raises LedgerError alone."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        is_postgres = database.is_postgres
        given = sql.records if is_postgres else sql.objects
        its_row = (
            "d.delivery_key = ANY (ARRAY[i.key]) AND d.day = i.day"
            if is_postgres
            else "d.delivery_key = i.key AND d.day = i.day"
        )
        changed = {"key": "text", "source": "text", "fate": "text", "why": "text"}
        names = {"new_id": "text", "new_key": "text"}
        self._change = text(_CHANGE.format(given=given(**changed, **names)))
        self._standing = text(_STANDING.format(given=given(key="text", day="int"), its_row=its_row))

    # ---- recovery ----------------------------------------------------------------------------

    def next(self, job: ResendJob, limit: int, *fates: ItemFate) -> list[JobItem]:
        """Returns the first items with these fates, in the order of their keys."""
        return self._of(job.id, fates, "", limit)

    def change(self, job: ResendJob, source: ItemFate, changes: Sequence[ItemChange]) -> set[str]:
        """Gives new fates to items that still have the fate `source`. Returns the keys written."""
        if not changes:
            return set()
        with self._begin() as (connection, now):
            return self.change_in(connection, job, source, changes, now)

    def change_in(
        self,
        connection: Connection,
        job: ResendJob,
        source: ItemFate,
        changes: Sequence[ItemChange],
        now: int,
    ) -> set[str]:
        """See `change`; in a transaction that writes more."""
        rows = [
            {
                "key": one.delivery_key,
                "source": source.value,
                "fate": one.fate.value,
                "why": one.why,
                "new_id": one.new_id,
                "new_key": one.new_key,
            }
            for one in changes
        ]
        asked = {"job": job.id, "now": now, "rows": msgspec.json.encode(rows).decode()}
        written = connection.execute(self._change, asked).all()
        ends = {one.delivery_key: (one.fate.value, one.why) for one in changes}
        counts = Counter((r.lane, r.account, *ends[r.delivery_key]) for r in written)
        # A fate that waits has no reason.
        counts.subtract((r.lane, r.account, source.value, "") for r in written)
        add_counts(connection, job.id, counts)
        return {row.delivery_key for row in written}

    def check(self, job: ResendJob, place: FreezePlace, limit: int = CHECKED) -> CheckResult:
        """Compares a page of the items to be handed over with their rows as they are now."""
        items = self._of(job.id, (ItemFate.PENDING,), place.after, limit)
        standing = self._rows([(item.delivery_key, item.day) for item in items])
        moved = sum(standing[i.delivery_key].version != i.row_version for i in items)
        digest = digest_of(((i.delivery_key, i.row_version) for i in items), place.digest)
        after = items[-1].delivery_key if items else place.after
        found = FreezePlace(after=after, number=place.number + moved, digest=digest)
        return CheckResult(found, len(items) < limit)

    def follow(self, job: ResendJob, after: str = "", limit: int = FOLLOWED) -> FollowResult:
        """Writes the ends of items that were handed over and have ended; looks at `limit` items."""
        items = self._of(job.id, (ItemFate.APPLIED,), after, limit)
        days = self._days([item.new_key for item in items if item.new_key])
        places = [
            (item.new_key, days[item.new_key]) if item.new_key else (item.delivery_key, item.day)
            for item in items
            if not item.new_key or item.new_key in days
        ]
        standing = self._rows(places)
        ended: list[ItemChange] = []
        left: list[tuple[JobItem, StandingRow | None]] = []
        for item in items:
            row = standing.get(item.new_key or item.delivery_key)
            # Without a row it is a copy that no worker has claimed yet.
            end = _end(item, row) if row is not None else None
            if end is not None:
                ended.append(end)
            elif (item.applied_at or 0) >= job.baseline.since:
                left.append((item, row))
        self.change(job, ItemFate.APPLIED, ended)
        last = items[-1].delivery_key if len(items) == limit else ""
        troubled = sum(row is not None and _is_troubled(item, row) for item, row in left)
        return FollowResult(last, len(left), troubled, ended)

    # ---- everybody ---------------------------------------------------------------------------

    def counts(self, job_id: str) -> list[JobCount]:
        """Returns the numbers of items by lane, account, fate and reason."""
        with self._reading() as connection:
            return counted_items(connection.execute(_COUNTS, {"job": job_id}).all())

    def counts_of(self, job_ids: Sequence[str]) -> dict[str, list[JobCount]]:
        """Returns the counts of several jobs, by job id; see `counts`."""
        if not job_ids:
            return {}
        with self._reading() as connection:
            rows = connection.execute(_COUNTS_OF, {"jobs": list(job_ids)}).all()
        return {
            job_id: counted_items([row for row in rows if row.job_id == job_id])
            for job_id in job_ids
        }

    def page(
        self, job_id: str, after: str = "", limit: int = PAGE, *fates: ItemFate
    ) -> list[JobItem]:
        """Returns the items above a key, in the order of their keys; without fates all."""
        if fates:
            return self._of(job_id, fates, after, limit)
        asked = {"job": job_id, "after": after, "limit": limit}
        with self._reading() as connection:
            return [_item(row) for row in connection.execute(_ALL, asked)]

    def failures(self, job_id: str) -> Iterator[JobItem]:
        """Yields the items that failed or were refused, page by page."""
        after = ""
        while page := self._of(job_id, (ItemFate.FAILED, ItemFate.REFUSED), after, PAGE):
            yield from page
            after = page[-1].delivery_key

    def _of(self, job_id: str, fates: Sequence[ItemFate], after: str, limit: int) -> list[JobItem]:
        # Spelt so that both databases recognise the partial indexes' conditions.
        spelt = ", ".join(f"'{fate}'" for fate in fates)
        statement = text(_OF_FATE.format(fields=_FIELDS, fates=spelt))
        asked = {"job": job_id, "after": after, "limit": limit}
        with self._reading() as connection:
            return [_item(row) for row in connection.execute(statement, asked)]

    def _rows(self, places: Sequence[tuple[str, int]]) -> dict[str, StandingRow]:
        if not places:
            return {}
        rows = msgspec.json.encode([{"key": key, "day": day} for key, day in places]).decode()
        with self._transaction() as connection:
            found = connection.execute(self._standing, {"rows": rows}).all()
        return {row.key: StandingRow(*row) for row in found}

    def _days(self, keys: Sequence[str]) -> dict[str, int]:
        if not keys:
            return {}
        statement = _DAYS if self._database.is_postgres else _COPIES
        with self._transaction() as connection:
            return {
                row.delivery_key: row.day for row in connection.execute(statement, {"keys": keys})
            }


def baseline_of(counts: Sequence[JobCount], now: int) -> Baseline:
    """Returns the ends so far, from which later ends are judged."""
    return Baseline(fate_sum(counts, ItemFate.SENT), fate_sum(counts, ItemFate.FAILED), now)


def fate_sum(counts: Sequence[JobCount], *fates: ItemFate) -> int:
    """Returns the number of items with these fates."""
    return sum(one.items for one in counts if one.fate in fates)


def _item(row: Any) -> JobItem:
    found = JobItem(*row)
    return found._replace(fate=ItemFate(found.fate))


def _end(item: JobItem, row: StandingRow) -> ItemChange | None:
    """Returns the end of an item; None while its row is open."""
    if row.state is None:
        return ItemChange(item.delivery_key, ItemFate.FAILED, "gone")
    state = State(row.state)
    if state in OPEN:
        return None
    fate = _ENDS.get(state, ItemFate.FAILED)
    code = (row.reason or "").partition(":")[0]
    why = state.value if fate is ItemFate.SENT or not code else f"{state.value}:{code}"
    return ItemChange(item.delivery_key, fate, "" if fate is ItemFate.SENT else why)


def _is_troubled(item: JobItem, row: StandingRow) -> bool:
    tried = (row.attempt or 0) > (0 if item.new_key else item.attempt)
    return row.state == State.UNKNOWN or (row.state == State.RETRY and tried)
