"""Headers of consumed records. Every reader of a topic takes them from here."""

from __future__ import annotations

from typing import Any

Headers = list[tuple[str, bytes | None]]


def headers_of(message: Any) -> Headers | None:
    """Returns the record's headers; None if the name of one is not UTF-8.

    The client cannot decode such a name: `Message.headers` raises SystemError, and keeps a list whose first
    tuple holds NULL for its next call. Reading that tuple ends the process, so the list is replaced by an
    empty one.
    """
    try:
        found: Headers | None = message.headers()
    except Exception:  # SystemError; any other would end the worker as surely
        message.set_headers([])
        return None
    return found or []
