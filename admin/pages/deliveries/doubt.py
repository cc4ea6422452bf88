"""`/doubt`: deliveries in doubt of the person's lanes, with the evidence and the decisions."""

from __future__ import annotations

from typing import Final, NamedTuple

from litestar import get
from litestar.params import FromQuery

from admin.access import Role, needs
from admin.pages.deliveries.actions import DANGEROUS
from admin.pages.deliveries.delivery_facts import channel_of, meaning_of
from admin.parts import ConsoleParts
from admin.web.given import GivenParts, GivenPerson, GivenView
from admin.web.paging import keys_of, page_of
from admin.web.view import Page
from channels.channel import Account
from channels.judging.error_table import ErrorRow
from channels.registry import account_without_secrets
from idempotency.fleet.status import FleetStatus
from idempotency.recovery.doubt_list import DoubtList, DoubtPlace, DoubtRow
from message.vocabulary import LANES
from recovery.operator_rules import Verb

PER_PAGE: Final = 25
DECISIONS: Final = (
    "ask",
    Verb.ARRIVED.value,
    Verb.NOT_ARRIVED.value,
    Verb.ACCEPT_RISK.value,
)


class DoubtLine(NamedTuple):
    """One delivery on the page."""

    row: DoubtRow
    window_ms: int
    """Time in which its provider still takes a repeat for the same call; 0: none, or over."""
    meaning: ErrorRow | None

    @property
    def seen(self) -> str:
        """The row as the person sees it (admin/pages/deliveries/actions.py)."""
        return f"UNKNOWN.{self.row.attempt}.{self.row.updated_at}"


@get("/doubt", opt=needs(Role.VIEWER, "lane"), sync_to_thread=True)
def doubt(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    lane: FromQuery[str] = "",
    after: FromQuery[str] = "",
) -> Page:
    """The lanes with doubts, and one lane's deliveries. Raises WrongCursor, Forbidden, LedgerError."""
    reads, clock = parts.databases.reads, parts.databases.reads_clock
    lanes = [
        one
        for one in FleetStatus(reads, clock).lanes(person.among([each.name for each in LANES]))
        if one.doubted
    ]
    lane = lane or (lanes[0].lane if lanes else "")
    listed = DoubtList(reads, clock)
    found = listed.page(lane, keys_of(after, DoubtPlace), PER_PAGE + 1) if lane else []
    rows = page_of(found, PER_PAGE, lambda row: row.place)
    now = listed.now_ms()
    return view.page(
        "deliveries/doubt.html",
        lanes=lanes,
        lane=lane,
        lines=[_line(parts, row, now) for row in rows.rows],
        next=rows.next,
        now=now,
        decisions=DECISIONS,
        dangerous=DANGEROUS,
        operates=bool(lane) and person.may(Role.OPERATOR, lane),
    )


def _line(parts: ConsoleParts, row: DoubtRow, now: int) -> DoubtLine:
    channel = channel_of(parts, row.account)
    account = _account(parts, row.account)
    window = channel.dedup_window(account) if channel is not None and account is not None else 0
    left = max(0, row.called_at + window - now) if window else 0
    return DoubtLine(row, left, meaning_of(parts, row.account, row.reason)[1])


def _account(parts: ConsoleParts, name: str) -> Account | None:
    table = parts.settings.accounts.get(name)
    return account_without_secrets(name, table) if table is not None else None


HANDLERS = [doubt]
