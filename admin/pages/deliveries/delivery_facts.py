"""Facts of one delivery in the databases: its row, moments, receipts and copies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from admin.access import Person, Role
from admin.pages.deliveries.search import past_row
from admin.pages.deliveries.search_line import search_of
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from channels.channel import Channel
from channels.judging.error_table import ErrorRow
from channels.registry import PROVIDERS
from idempotency.archive.history import PastDeliveries
from idempotency.error_mapping import errors
from idempotency.lookups import KeptRow, Queries
from idempotency.payload_cipher import PayloadCipher, PayloadUnreadable
from idempotency.receipts.lookups import ReceiptShown, receipts_of
from idempotency.recovery.selection import Pick, Picks
from idempotency.search.language import DeliveryTerms
from idempotency.search.store import SearchRow
from message.keys import KEY_LENGTH
from tracing.masks import mask
from tracing.stories import live_parts, stories_of
from tracing.timeline import LedgerRow, Moment, Story

_KEY: Final = re.compile(f"[0-9a-f]{{{KEY_LENGTH}}}")
MOST_MOMENTS: Final = 500
"""Moments of one page; the newest ones."""


class DeliveryFacts(NamedTuple):
    """One delivery as its page shows it."""

    row: SearchRow
    pick: Pick | None
    """Its row in the ledger; None in the archive."""
    moments: Sequence[Moment]
    left_out: int
    """Moments that are not shown."""
    copies: Sequence[str]
    siblings: int
    """Other receivers of its message, of which the page knows."""
    receipts: Sequence[ReceiptShown]
    receiver: str
    """Masked; empty where it cannot be opened."""
    code: str
    """The provider's code in the row's reason; empty without one."""
    meaning: ErrorRow | None
    """That code's row in the adapter's table."""
    now_ms: int
    """Time of the request."""


class OpenedContents(NamedTuple):
    """A delivery's payload and receiver, opened. Personal data: no template gets it."""

    kept: KeptRow | None = None
    problem: str = ""
    """Why the payload cannot be read; empty if it can be, or is not there."""


def row_of(parts: ConsoleParts, key: str, person: Person) -> SearchRow:
    """Returns the delivery's row, in the archive too. Raises Missing, also for a lane that the person does
    not see, and LedgerError."""
    if not _KEY.fullmatch(key):
        raise Missing(key)
    search = search_of(parts)
    found = search.by_keys([key])
    if not found:
        found = search.page(DeliveryTerms(delivery_key=key, until=1 << 62, default_since=True)).rows
    if not found:
        found = _in_files(parts, key)
    if not found or not person.may(Role.VIEWER, found[0].lane):
        raise Missing(key)
    return found[0]


def facts_of(
    parts: ConsoleParts, row: SearchRow, opened: OpenedContents, now_ms: int
) -> DeliveryFacts:
    """Returns everything about the row. Raises LedgerError."""
    reads, clock = parts.databases.reads, parts.databases.reads_clock
    pick = None if row.where else Picks(reads, clock).keyed(row.delivery_key, row.day)
    story = _story(parts, row)
    moments = _moments(story, row.delivery_key)
    code, meaning = meaning_of(parts, row.account or "", row.reason or "")
    return DeliveryFacts(
        row=row,
        pick=pick,
        moments=moments[-MOST_MOMENTS:],
        left_out=max(0, len(moments) - MOST_MOMENTS),
        copies=story.copies if story else (),
        siblings=len(story.deliveries) - 1 if story else 0,
        receipts=receipts_of(reads, row.delivery_key),
        receiver=_masked_receiver(row, opened.kept),
        code=code,
        meaning=meaning,
        now_ms=now_ms,
    )


def kept_of(parts: ConsoleParts, row: SearchRow) -> KeptRow | None:
    """Returns payload and receiver, opened; None without them. Raises PayloadUnreadable, LedgerError."""
    if not row.where:
        return _queries(parts).kept(row.delivery_key, row.day)
    recovery, base = parts.settings.recovery, parts.settings.base
    archived = parts.ledger.archived(recovery.archive_dir, base)
    found = [one for one in archived.find(row.delivery_key) if one.delivery_key == row.delivery_key]
    return archived.kept(found[0]) if found else None


def opened_of(parts: ConsoleParts, row: SearchRow) -> OpenedContents:
    """Returns what `kept_of` does, or why not. Raises LedgerError."""
    try:
        return OpenedContents(kept_of(parts, row))
    except PayloadUnreadable as exc:
        return OpenedContents(problem=str(exc))


def _masked_receiver(row: SearchRow, kept: KeptRow | None) -> str:
    return mask(row.lane.partition(".")[0], kept.receiver) if kept else ""


def channel_of(parts: ConsoleParts, account: str) -> Channel | None:
    """Returns the adapter of an account in the configuration; None without one."""
    table = parts.settings.accounts.get(account, {})
    return PROVIDERS.get(str(table.get("provider", "")))


def meaning_of(parts: ConsoleParts, account: str, reason: str) -> tuple[str, ErrorRow | None]:
    """Returns the provider's code in a reason, and its row in the adapter's table."""
    channel = channel_of(parts, account)
    if channel is None or not reason:
        return "", None
    for code in (reason, reason.partition(":")[2]):
        if code and (row := channel.errors.row(code)):
            return code, row
    return "", None


def _queries(parts: ConsoleParts) -> Queries:
    return Queries(parts.databases.reads, PayloadCipher(parts.settings.database.payload_key))


def _in_files(parts: ConsoleParts, key: str) -> list[SearchRow]:
    reads, recovery = parts.databases.reads, parts.settings.recovery
    if reads.is_postgres:
        return []
    found = PastDeliveries(reads, recovery.archive_dir, parts.settings.base).find(key)
    return [past_row(one.row, one.where) for one in found if one.row.delivery_key == key]


def _story(parts: ConsoleParts, row: SearchRow) -> Story | None:
    fields = {name: getattr(row, name) for name in LedgerRow.__struct_fields__}
    ledger_row = msgspec.convert(fields, LedgerRow)
    with errors():
        known = live_parts(parts.databases.reads, row.message_id, [ledger_row])
    known.past = {row.delivery_key: row.where} if row.where else {}
    return next(iter(stories_of([row.message_id], known)), None)


def _moments(story: Story | None, key: str) -> list[Moment]:
    if story is None:
        return []
    return next((one.moments for one in story.deliveries if one.delivery_key == key), [])
