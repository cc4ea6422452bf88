"""The SQL of `idempotency.alerts.windows`, the same on both databases but for how rows are locked."""

from __future__ import annotations

from typing import Final

from sqlalchemy import TextClause, text

_ROW: Final = """
SELECT a.*, (SELECT count(*) FROM alert_silences AS s
              WHERE s.rule = a.rule AND s.subject IN ('', a.subject) AND s.until > :now) AS silences
  FROM alerts AS a"""
_NAMED: Final = "WHERE rule = :rule AND subject = :subject"

ENTER: Final = text("""
INSERT INTO alerts (rule, subject, told_at, kept) VALUES (:rule, :subject, 0, 0)
ON CONFLICT DO NOTHING""")

# A lasting alert counts once, at its beginning.
NOTE: Final = text(f"""
UPDATE alerts
   SET kept = kept + CASE WHEN :lasting = 0 THEN :count WHEN state = 'firing' THEN 0 ELSE 1 END,
       since = CASE WHEN state = 'firing' THEN since ELSE :now END,
       state = 'firing', last_at = :now, lane = :lane, about = :about, text = :text,
       lasting = :lasting
 {_NAMED} AND (:after = 0 OR last_at < :after)""")  # noqa: S608

CURRENT: Final = text(f"{_ROW} WHERE a.rule = :rule AND a.subject = :subject")

TELL: Final = text(f"""
UPDATE alerts
   SET told_at = :told_at, kept = 0, told_by = :by, post_state = :state,
       post_count = post_count + :count, post_at = :now, next_try = coalesce(next_try, :now)
 {_NAMED}""")  # noqa: S608

COUNT_SILENCED: Final = text(f"UPDATE alerts SET silenced = silenced + kept, kept = 0 {_NAMED}")  # noqa: S608

CHANGE: Final = text(f"UPDATE alerts SET state = :state {_NAMED}")  # noqa: S608

_WAITING: Final = f"""{_ROW}
 WHERE (a.kept > 0 AND a.told_at + :window <= :now)
    OR (a.state = 'firing' AND a.lasting = 1 AND :clear > 0 AND a.last_at + :clear <= :now)
    OR (a.state = 'firing' AND a.lasting = 0 AND a.last_at + :window <= :now)
 ORDER BY a.rule, a.subject"""

_NEXT_POST: Final = """
SELECT * FROM alerts WHERE next_try <= :now ORDER BY next_try LIMIT 1"""

LEASE_POST: Final = text(f"UPDATE alerts SET next_try = :until {_NAMED}")  # noqa: S608

POSTED: Final = text(f"""
UPDATE alerts
   SET post_count = post_count - :count, tries = 0, post_error = '',
       next_try = CASE WHEN post_at = :at THEN NULL ELSE :now END
 {_NAMED} AND next_try IS NOT NULL""")  # noqa: S608

TRIES: Final = text(f"SELECT tries FROM alerts {_NAMED}")  # noqa: S608

NOT_POSTED: Final = text(f"""
UPDATE alerts SET tries = tries + 1, next_try = :next_try, post_error = :error
 {_NAMED} AND next_try IS NOT NULL""")  # noqa: S608

GIVE_UP: Final = text("""
UPDATE alerts SET next_try = NULL, post_count = 0, tries = 0
 WHERE next_try IS NOT NULL AND post_at < :before""")

FORGET: Final = text("""
DELETE FROM alerts
 WHERE state <> 'firing' AND kept = 0 AND next_try IS NULL AND last_at < :before AND told_at < :before""")


def waiting(lock: str) -> TextClause:
    """Returns the query for rows that have something to report, or are over."""
    return text(_WAITING + (lock.replace(" SKIP", " OF a SKIP") if lock else ""))


def next_post(lock: str) -> TextClause:
    """Returns the query for the row whose post is due for longest."""
    return text(_NEXT_POST + lock)
