"""Candidates of a finished run become findings; those of any other run count for nothing.

`promote` runs in the transaction that ends the run. Page by page: a statement on the ledger's connections
has ten seconds, and a run may propose a million.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, TextClause, bindparam, text

from idempotency.transactions import LedgerPart

PAGE: Final = 20_000
BY: Final = "spark lost"
"""The author of GONE."""
_WHY: Final = "a later run no longer finds it"

_LAST: Final = text("""
SELECT subject, cause FROM (
    SELECT subject, cause FROM lost_candidates
     WHERE run_id = :run AND (subject, cause) > (:subject, :cause)
     ORDER BY subject, cause LIMIT :page) AS page
 ORDER BY subject DESC, cause DESC LIMIT 1""")
_COLUMNS: Final = (
    "subject, cause, lane, message_id, biz_id, receiver, origin, created_at, expires_at, certain, detail,"
    " body"
)
# Decisions stay, a person's order to resend (NEW, decided_by) among them. GONE may come back. An open one
# follows the lane's policy only towards NEW.
_ENTER: Final = text(f"""
INSERT INTO lost_findings ({_COLUMNS}, first_run, last_run, found_at, status)
SELECT {_COLUMNS}, :run, :run, :now,
       CASE WHEN certain = 1 AND lane IN :resending THEN 'NEW' ELSE 'ASKED' END
  FROM (SELECT {_COLUMNS},
               row_number() OVER (PARTITION BY subject, cause ORDER BY certain DESC, origin) AS place
          FROM lost_candidates
         WHERE run_id = :run AND (subject, cause) > (:subject, :cause)
           AND (subject, cause) <= (:last_subject, :last_cause)) AS page
 WHERE place = 1
ON CONFLICT (subject, cause) DO UPDATE
   SET last_run = excluded.last_run, certain = excluded.certain, detail = excluded.detail,
       expires_at = coalesce(excluded.expires_at, lost_findings.expires_at),
       body = coalesce(excluded.body, lost_findings.body),
       found_at = CASE WHEN lost_findings.status = 'GONE' THEN excluded.found_at
                       ELSE lost_findings.found_at END,
       decided_at = CASE WHEN lost_findings.status = 'GONE' THEN NULL
                         ELSE lost_findings.decided_at END,
       decided_by = CASE WHEN lost_findings.status = 'GONE' THEN NULL
                         ELSE lost_findings.decided_by END,
       decided_why = CASE WHEN lost_findings.status = 'GONE' THEN NULL
                          ELSE lost_findings.decided_why END,
       status = CASE WHEN lost_findings.status = 'GONE' THEN excluded.status
                     WHEN lost_findings.status = 'ASKED' AND lost_findings.decided_at IS NULL
                     THEN excluded.status
                     ELSE lost_findings.status END""").bindparams(  # noqa: S608 - ours
    bindparam("resending", expanding=True)
)
# Recovery has begun to enter a NEW one with `decided_at`, and notes its end itself. Statuses are literals:
# the pages follow the partial index (status, id).
_GONE: Final = {
    status: text(f"""
UPDATE lost_findings
   SET status = 'GONE', decided_at = :now, decided_by = :by, decided_why = :why
 WHERE id IN (SELECT id FROM lost_findings
               WHERE status = '{status}' AND id > :after AND last_run < :run AND cause = :cause
                 AND lane IN :lanes {begun}
               ORDER BY id LIMIT :page)
RETURNING id""").bindparams(bindparam("lanes", expanding=True))  # noqa: S608 - ours
    for status, begun in (("NEW", "AND decided_at IS NULL"), ("ASKED", ""))
}
_CLEAR: Final = {
    True: text("""
DELETE FROM lost_candidates WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM lost_candidates WHERE run_id < :run LIMIT :page))"""),
    False: text("""
DELETE FROM lost_candidates WHERE rowid IN (
    SELECT rowid FROM lost_candidates WHERE run_id < :run LIMIT :page)"""),
}


class Promoted(NamedTuple):
    """Numbers of findings that the end of a run changed."""

    entered: int
    """Candidates that are findings now, new or known."""
    gone: int


class Candidates(LedgerPart):
    """Raises LedgerError alone."""

    def clear(self, before: int) -> int:
        """Deletes the candidates of all runs before that one, a page in each transaction. Returns their
        number."""
        deleted = 0
        while True:
            with self._transaction() as connection:
                values = {"run": before, "page": PAGE}
                some = connection.execute(_CLEAR[self._database.is_postgres], values).rowcount
            deleted += some
            if some < PAGE:
                return deleted


def promote(
    connection: Connection,
    run: int,
    now: int,
    *,
    looked: Mapping[str, Collection[str]],
    resending: Collection[str],
    page: int = PAGE,
) -> Promoted:
    """Makes findings of the run's candidates, in the transaction that ends the run.

    `looked`: by cause, the lanes of which the run found everything: an open finding that it did not find
    again is GONE. `resending`: the lanes with `lost = "resend"`, whose certain findings recovery sends by
    itself. `now`: epoch milliseconds by the database's clock.
    """
    entered = _enter(connection, run, now, resending, page)
    gone = sum(
        _gone(
            connection, statement, {"run": run, "now": now, "cause": cause, "lanes": [*lanes]}, page
        )
        for cause, lanes in sorted(looked.items())
        for statement in _GONE.values()
        if lanes
    )
    return Promoted(entered, gone)


def _enter(
    connection: Connection, run: int, now: int, resending: Collection[str], page: int
) -> int:
    entered, place = 0, {"subject": "", "cause": ""}
    while True:
        asked = {"run": run, **place}
        last = connection.execute(_LAST, {**asked, "page": page}).one_or_none()
        if last is None:
            return entered
        values = {"now": now, "last_subject": last.subject, "last_cause": last.cause}
        values["resending"] = list(resending) or [""]
        entered += connection.execute(_ENTER, {**asked, **values}).rowcount
        place = {"subject": last.subject, "cause": last.cause}


def _gone(connection: Connection, statement: TextClause, values: dict[str, Any], page: int) -> int:
    gone = after = 0
    while True:
        named = {**values, "by": BY, "why": _WHY, "page": page, "after": after}
        some = list(connection.execute(statement, named).scalars())
        gone += len(some)
        if len(some) < page:
            return gone
        after = max(some)
