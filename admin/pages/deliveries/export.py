"""A search's results as CSV, for a spreadsheet. Without receivers; recorded in the audit."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final

from litestar import Response, post

from admin.access import Role, needs
from admin.pages.deliveries.search import found_page
from admin.pages.deliveries.search_line import allowed, problem_of
from admin.parts import ConsoleParts
from admin.web.forms import WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.moments import iso
from admin.web.sealing import SealBroken, unsealed
from idempotency.search.language import DeliveryTerms, QueryError, parse
from idempotency.search.store import MOST as PAGE
from idempotency.search.store import SearchRow
from tracing.masks import mask, masked_text

MOST: Final = 10_000
"""Rows of one file."""
BUDGET_S: Final = 15.0
"""Time after which the file ends with the rows that it has."""
COLUMNS: Final = (
    *("delivery_key", "message_id", "biz_id", "lane", "state", "reason", "attempt", "account"),
    *("provider_id", "template", "created_at", "updated_at", "expires_at", "policy_version"),
    *("resend_of", "origin"),
)
_TIMES: Final = frozenset({"created_at", "updated_at", "expires_at"})
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


@post("/search/csv", opt=needs(Role.VIEWER), status_code=200, sync_to_thread=True)
def export(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm
) -> Response[bytes]:
    """The file. Its last line says if rows are left out. Raises WrongForm, LedgerError."""
    reason = form.reason()
    try:
        line = unsealed(parts.settings.console.secret, person.id, form.required("s"))
        terms = parse(line, view.now_ms)
        wanted = allowed(terms, person)
        parts.journal.record_alone(
            person=person.name,
            action="delivery.export",
            subject=_masked_line(line, terms),
            reason=reason,
            address=view.address,
        )
        content = csv_of(_rows(parts, wanted), view.text("search.csv_cut", most=MOST))
    except SealBroken:
        raise WrongForm("search.seal_over") from None
    except QueryError as exc:
        raise WrongForm("search.not_saved", problem=problem_of(exc, view.texts).text) from exc
    headers = {"content-disposition": 'attachment; filename="hongyan-deliveries.csv"'}
    return Response(content, headers=headers, media_type="text/csv; charset=utf-8")


def _masked_line(line: str, terms: DeliveryTerms) -> str:
    """Returns the line for the audit. A receiver of a chat is masked, too: it is neither a number nor an
    address."""
    masked, receiver = masked_text(line), terms.receiver
    return masked.replace(receiver, mask("", receiver)) if receiver else masked


def csv_of(rows: Iterator[SearchRow | None], cut: str) -> bytes:
    """Returns the rows as CSV for spreadsheets; None among them is the place at which rows are left out."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([cut] if row is None else [_cell(row, name) for name in COLUMNS])
    return b"\xef\xbb\xbf" + out.getvalue().encode(errors="replace")


def harmless(text: str) -> str:
    """Returns the text so that no spreadsheet takes it for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _cell(row: SearchRow, name: str) -> str:
    value = getattr(row, name)
    if name in _TIMES:
        return iso(value)
    return harmless(str(value).replace("\0", "\ufffd")) if value is not None else ""


def _rows(
    parts: ConsoleParts,
    terms: DeliveryTerms | None,
    now: Callable[[], float] = monotonic,
) -> Iterator[SearchRow | None]:
    count, after, until = 0, None, now() + BUDGET_S
    while terms is not None:
        found = found_page(parts, terms, after, PAGE)
        yield from found.rows[: MOST - count]
        count, after = count + len(found.rows), found.next
        if after is None:
            return
        if count >= MOST or now() >= until:
            yield None
            return


HANDLERS = [export]
