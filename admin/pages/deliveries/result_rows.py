"""The rows of a table of deliveries. A page has fifty rows of nine cells: Jinja takes twice as long to
write them (decision 289)."""

from __future__ import annotations

from markupsafe import Markup, escape

from admin.web.badges import badge
from admin.web.foreign_text import visible
from admin.web.moments import moment
from idempotency.search.store import SearchPage, SearchRow


def rows_of(page: SearchPage) -> Markup:
    """Returns the table's rows. What a stranger may have written is escaped, and its marks are visible."""
    return Markup("".join(_row(row, by_end=page.by_end) for row in page.rows))  # noqa: S704 - see `_cell`


def _row(row: SearchRow, *, by_end: bool) -> str:
    at = moment(row.updated_at if by_end else row.created_at)
    return f"""\
<tr><td>{badge(row.state)}</td><td>{at}</td>
<td><a class="code" href="/deliveries/{_cell(row.delivery_key, 64)}">{_cell(row.message_id, 64)}</a></td>
<td class="text">{_cell(row.biz_id, 80)}</td><td>{_cell(row.lane, 64)}</td>\
<td class="text">{_cell(row.reason, 120)}</td>
<td>{_cell(row.account, 64)}</td><td class="text">{_cell(row.template, 64)}</td>\
<td class="number">{int(row.attempt)}</td></tr>
"""


def _cell(text: str | None, most: int) -> str:
    return escape(visible(text, most)) if text else ""
