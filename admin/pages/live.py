"""`/live/BOARD`: server-sent events with the new text of a live part, whenever its board has a new value.

Watchers ask no database: they share the board's reader. The session is asked again once a minute, so that
an ended one ends the stream.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Final

from anyio import to_thread
from litestar import get
from litestar.params import FromPath
from litestar.response import ServerSentEvent, ServerSentEventMessage

from admin.access import Person, for_signed_in
from admin.live.board import BoardValue, LiveBoard
from admin.live.spec import BoardSpec
from admin.parts import ConsoleParts
from admin.web import cookies
from admin.web.errors import Missing
from admin.web.given import GivenParts, GivenPerson, GivenView
from admin.web.view import AnyRequest, View
from idempotency.ledger import LedgerError

HEARTBEAT_S: Final = 15.0
SESSION_EVERY_S: Final = 60.0
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
    return ServerSentEvent(_events(spec, view, parts, person, token))


async def _events(
    spec: BoardSpec, view: View, parts: ConsoleParts, person: Person, token: str
) -> AsyncIterator[ServerSentEventMessage]:
    board: LiveBoard = parts.boards[spec.name]
    version, began = 0, time.monotonic()
    asked = began
    while time.monotonic() - began < LONGEST_S:
        value = await board.after(version, HEARTBEAT_S)
        if time.monotonic() - asked >= SESSION_EVERY_S:
            asked = time.monotonic()
            if not await _is_signed_in(parts, token):
                return
        if value is None:
            if board.stopped:
                return
            yield ServerSentEventMessage(comment="still here")
            continue
        version = value.version
        yield ServerSentEventMessage(data=board_text(spec, value, view, person), event=spec.name)


def board_text(spec: BoardSpec, value: BoardValue, view: View, person: Person) -> str:
    """Returns the text of a board's part for this person."""
    shown = None if value.value is None else spec.shown(value.value, person)
    return view.written(spec.template, board=value, value=shown)


async def _is_signed_in(parts: ConsoleParts, token: str) -> bool:
    """Returns whether the session goes on. With the database away it does: pages keep their last state."""
    try:
        return await to_thread.run_sync(parts.people.sessions.find, token) is not None
    except LedgerError:
        return True


HANDLERS = [live]
