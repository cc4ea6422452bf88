"""Finds out whether a database refuses our login, such as for a wrong password. Waiting does not help then.

A failed connection has no SQLSTATE in libpq's interface, and its text is in the server's language. So the
one attempt made here is traced (PQtrace) into memory, and the code is read from the trace.
"""

from __future__ import annotations

import os
import re
import select
import time
from pathlib import Path
from typing import Final, NamedTuple

from psycopg import NotSupportedError, OperationalError, pq
from psycopg.conninfo import make_conninfo
from sqlalchemy.engine import URL

from backends.sql.database import CONNECT_S

_REFUSING: Final = ("28", "3D", "42501")
"""Authorization, no such database, no right to connect to it."""
_CODE: Final = re.compile(rb'^B\t\d+\tErrorResponse\t.*? C "(\w{5})"', re.MULTILINE)
_EVENTS: Final = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}


def refusal(url: URL) -> str | None:
    """Returns the server's refusal in one sentence; None if it lets us in, is away or only busy."""
    if url.get_backend_name() == "sqlite":
        folder = Path(url.database or "").parent
        return None if folder.is_dir() else f"there is no folder {folder}"
    try:
        answer = _attempt(_conninfo(url))
    except (OperationalError, NotSupportedError):  # no such host; a libpq that cannot trace
        return None
    if answer.wants_password:
        return "it wants a password, and there is none"
    refused = answer.codes and all(code.startswith(_REFUSING) for code in answer.codes)
    return answer.said if refused else None


class _Answer(NamedTuple):
    """Result of an attempt: a text, the SQLSTATE of each host, and whether a password is missing."""

    said: str
    codes: list[str]
    wants_password: bool


def _conninfo(url: URL) -> str:
    _, named = url.get_dialect()().create_connect_args(url)
    return make_conninfo("", **named)


def _attempt(conninfo: str) -> _Answer:
    """Tries to connect, for at most CONNECT_S seconds."""
    trace = os.memfd_create("refusal")
    try:
        connection = pq.PGconn.connect_start(conninfo.encode())
        try:
            connection.trace(trace)
            connection.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
            _connect(connection, time.monotonic() + CONNECT_S)
            connection.untrace()  # writes out what is buffered
            os.lseek(trace, 0, os.SEEK_SET)
            return _Answer(
                _sentence(connection.get_error_message()),
                [code.decode() for code in _CODE.findall(os.read(trace, 1 << 20))],
                connection.needs_password,
            )
        finally:
            connection.finish()
    finally:
        os.close(trace)


def _connect(connection: pq.abc.PGconn, deadline: float) -> None:
    while (wanted := _EVENTS.get(pq.PollingStatus(connection.connect_poll()))) is not None:
        poll = select.poll()
        poll.register(connection.socket, wanted)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1_000):
            return


def _sentence(text: str) -> str:
    """Returns the first line without the server's address and the word FATAL in any language."""
    return text.strip().partition("\n")[0].rpartition(":  ")[2]
