"""`/deliveries/KEY/rebuilt`: the delivery's path as Spark rebuilt it from the whole trace.

A page of its own: it opens the warehouse, which may be a remote store.
"""

from __future__ import annotations

from typing import NamedTuple

from litestar import get
from litestar.params import FromPath

from admin.access import OF_ROW, Role, needs
from admin.pages.deliveries.delivery_facts import row_of
from admin.parts import ConsoleParts
from admin.web.given import GivenParts, GivenPerson, GivenView
from admin.web.view import Page
from idempotency.search.store import SearchRow
from tracing.rebuilt_traces import RebuiltTraces, TracesUnreadable, place_of, why_not
from tracing.timeline import Moment, RebuiltDelivery, moments


class RebuiltFacts(NamedTuple):
    """Parts of one delivery in the warehouse."""

    delivery: RebuiltDelivery | None
    """None: it has nothing of it."""
    moments: list[Moment]
    written_at: int = 0
    """Time of the table's last commit, epoch milliseconds."""
    problem: str = ""
    """The reason why the warehouse cannot be read; empty: it was read."""


@get("/deliveries/{key:str}/rebuilt", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def rebuilt(view: GivenView, parts: GivenParts, person: GivenPerson, key: FromPath[str]) -> Page:
    """The page. Raises Missing, LedgerError."""
    row = row_of(parts, key, person)
    return view.page("deliveries/rebuilt.html", row=row, facts=rebuilt_facts(parts, row))


def rebuilt_facts(parts: ConsoleParts, row: SearchRow) -> RebuiltFacts:
    """Reads the warehouse. Never raises: a warehouse that cannot be read is a problem of the facts."""
    if why := why_not(parts.settings):
        return RebuiltFacts(None, [], problem=why)
    try:
        traces = RebuiltTraces(place_of(parts.settings))
        of_message = traces.of_messages([row.message_id])
        written_at = traces.written_at()
    except TracesUnreadable as exc:
        return RebuiltFacts(None, [], problem=str(exc))
    found = next((one for one in of_message if one.delivery_key == row.delivery_key), None)
    return RebuiltFacts(found, moments(found.timeline) if found else [], written_at)


HANDLERS = [rebuilt]
