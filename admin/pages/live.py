"""`/live/BOARD`: server-sent events with the new text of a live part, whenever its board has a new value.

Watchers ask no database: they share the board's reader. Their sessions are asked for together once a
minute, so that an ended one ends its streams.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Final

from litestar import get
from litestar.params import FromPath
from litestar.response import ServerSentEvent, ServerSentEventMessage

from admin.access import Person, for_signed_in
from admin.live.board import BoardValue, LiveBoard
from admin.live.session_watch import SessionWatch
from admin.live.spec import BoardSpec
from admin.web import cookies
from admin.web.errors import Missing
from admin.web.given import GivenParts, GivenPerson, GivenView
from admin.web.view import AnyRequest, View

HEARTBEAT_S: Final = 15.0
LONGEST_S: Final = 3_600.0
"""A stream ends after this time; the browser opens it again."""


@get("/live/{name:str}", opt=for_signed_in(), sync_to_thread=False)
def live(
    name: FromPath[str],
    request: AnyRequest,
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
) -> ServerSentEvent:
    """The stream of one board. Raises Missing, Forbidden."""
    spec: BoardSpec | None = request.app.state.boards.get(name)
    if spec is None:
        raise Missing(name)
    person.require(spec.role)
    token = request.cookies.get(cookies.cookie_name(cookies.SESSION, parts.secure), "")
    watch: SessionWatch = request.app.state.watch
    events = _events(spec, view, parts.boards[spec.name], person)
    return ServerSentEvent(_while_signed_in(events, watch, token))


async def _while_signed_in(
    events: AsyncIterator[ServerSentEventMessage], watch: SessionWatch, token: str
) -> AsyncIterator[ServerSentEventMessage]:
    with watch.watching(token):
        async for event in events:
            if not await watch.goes_on(token):
                return
            yield event


async def _events(
    spec: BoardSpec, view: View, board: LiveBoard, person: Person
) -> AsyncIterator[ServerSentEventMessage]:
    version, began = 0, time.monotonic()
    while time.monotonic() - began < LONGEST_S:
        value = await board.after(version, HEARTBEAT_S)
        if value is None:
            if board.stopped:
                return
            yield ServerSentEventMessage(comment="still here")
            continue
        version = value.version
        yield ServerSentEventMessage(data=board_text(spec, value, view, person), event=spec.name)


def board_text(spec: BoardSpec, value: BoardValue, view: View, person: Person) -> str:
    """Returns the text of a board's part for this person."""

    def write(written: Callable[..., str]) -> str:
        shown = None if value.value is None else spec.shown(value.value, person)
        return written(spec.template, board=value, value=shown)

    if not spec.shares_text:
        return write(view.written)
    return value.texts.of((spec.name, seen_by(view, person)), lambda: write(view.written_for_all))


def seen_by(view: View, person: Person) -> Hashable:
    """Returns what a shared text depends on beside its value: equal for all who see the same."""
    return view.texts.language, tuple(sorted(person.roles.items()))


HANDLERS = [live]
