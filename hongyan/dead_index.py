"""The dead letters of `hongyan dead list`, from the index that a recovery keeps.

A list of the topic reads a month of letters; the index answers within a bounded time, and without Kafka.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final, NamedTuple

from backends.settings import Settings, SettingsError
from hongyan.database import existing
from idempotency.dead_letters.browsing import LetterBrowser
from idempotency.dead_letters.rows import (
    ANYWHERE,
    IndexedLetter,
    IndexLag,
    KeptForm,
    LetterFilter,
)
from idempotency.ledger import LedgerError
from idempotency.sql_ledger import clock_of
from message.vocabulary import dead_letter_topic
from sending.dead_letters.reader import DeadLetterFilter

STATEMENT_MS: Final = 2_000
"""Longest time of one statement."""
LATE_MS: Final = 60_000
"""A look at the topic that is older is late: recoveries look every ten seconds."""


class IndexedLetters(NamedTuple):
    """Letters, the newest first, and the state of the index."""

    letters: list[IndexedLetter]
    remark: str
    """A sentence for the person if the index is behind the topic; else empty."""


class NoIndex(Exception):
    """The index cannot answer; the text has the reason, empty where there is none to tell."""


def indexed(settings: Settings, wanted: DeadLetterFilter, limit: int) -> IndexedLetters:
    """Returns the newest letters of the index. Raises NoIndex."""
    try:
        database = existing(settings, statement_ms=STATEMENT_MS)
    except SettingsError:
        raise NoIndex("") from None  # there is no ledger here
    with closing(database):
        browser = LetterBrowser(database, clock_of(database))
        lanes = (wanted.lane,) if wanted.lane else ANYWHERE
        asked = LetterFilter(reason=wanted.reason, lanes=lanes, since=wanted.since_ms)
        try:
            lag, now_ms = browser.lag(), browser.now_ms()
            if not lag.seen_at:
                raise NoIndex("no recovery has read the topic of dead letters yet")
            return IndexedLetters(browser.page(asked, limit), _remark(lag, now_ms))
        except LedgerError as exc:
            raise NoIndex(str(exc)) from exc


def _remark(lag: IndexLag, now_ms: int) -> str:
    age_ms = now_ms - lag.seen_at
    if age_ms > LATE_MS:
        return f"a recovery last read the topic {age_ms // 1_000} s ago; --from-topic reads it now"
    if lag.letters:
        return f"{lag.letters} newer letters are not in the index yet; --from-topic reads them now"
    return ""


def fields_of(letter: IndexedLetter, settings: Settings) -> dict[str, Any]:
    """Returns the fields of `dead list --json`. The index holds no receivers and no stub: None."""
    topic = dead_letter_topic(settings.kafka.topic_prefix)
    return {
        "at": letter.at,
        "reason": letter.reason,
        "detail": letter.detail,
        "origin": letter.origin,
        "lane": letter.lane,
        "id": letter.message_id,
        "receivers": None,
        "bytes": letter.size,
        "truncated": letter.form == KeptForm.CUT,
        "stub": None,
        "place": f"{topic}/{letter.partition}/{letter.place}",
        "form": letter.form,
        "state": letter.state,
        "ended_at": letter.ended_at,
        "ended_by": letter.ended_by,
        "why": letter.why,
    }
