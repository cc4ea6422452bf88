"""Limits for strangers who connect to receipts or gateway: connections, heads, bodies, and times.

Anybody may connect; only a whole request can show whose it is. Until then a connection costs at
most HEAD_BYTES and one read, and has REQUEST_S to become a request. Beyond MOST_CONNECTIONS the oldest
waiting one is closed. The application bounds each body, and `BodyBudget` all together.

uvicorn's other protocol, httptools, keeps a head of any size; h11 has `h11_max_incomplete_event_size`.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_BYTES: Final = 32 * 1024
"""Of request line and header fields together, of a chunk's head, of the fields behind the last chunk."""
REQUEST_S: Final = 20.0
"""Time from the connection, or from the previous answer, until the request is whole."""
MOST_CONNECTIONS: Final = 512
MOST_BODY_BYTES: Final = 64 << 20
"""Bytes of all bodies that are read at once."""
_NUMBERS: Final = count()


class BodyBudget:
    """Bytes of bodies that are held; belongs to the event loop's thread."""

    def __init__(self, most: int = MOST_BODY_BYTES) -> None:
        self._left = most

    def take(self, size: int) -> bool:
        """Reserves `size` bytes. Returns False if there is no room."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """Frees `size` bytes."""
        self._left += size


class BoundedProtocol(H11Protocol):
    """One connection; belongs to the event loop's thread."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Counts it, and closes the oldest waiting connection where there are too many."""
        self.number = next(_NUMBERS)
        super().connection_made(transport)
        self._start_waiting()
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends its timer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads on, unless the connection is being closed."""
        if not self.transport.is_closing():
            super().data_received(data)

    def on_response_complete(self) -> None:
        """Closes the connection where the rest of a refused body is still to come."""
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.close()
        else:
            self._start_waiting()
        super().on_response_complete()

    @property
    def waits_for_client(self) -> bool:
        """True where the client has to send or to read, and no work of ours is under way."""
        asked = self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)
        return not asked or self.flow.write_paused

    def _start_waiting(self) -> None:
        self._stop_waiting()
        self._late = self.loop.call_later(REQUEST_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        if self.waits_for_client:
            self.transport.abort()

    def _make_room(self) -> None:
        ours = (one for one in self.connections if isinstance(one, BoundedProtocol))
        waiting = [one for one in ours if one.waits_for_client]
        min(waiting, key=lambda one: one.number, default=self).transport.abort()
