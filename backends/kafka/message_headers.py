"""Headers of consumed records. Every reader of a topic takes them from here."""

from __future__ import annotations

from operator import methodcaller
from typing import Any, Final

Headers = list[tuple[str, bytes | None]]
_headers: Final = methodcaller("headers")


def headers_of(message: Any) -> Headers | None:
    """Returns the record's headers; None if the name of one is not UTF-8.

    The client cannot decode such a name: it sets an error, and returns a list whose first tuple holds NULL,
    now and at each further call. Reading that tuple ends the process, so the list is replaced by an empty
    one. CPython raises SystemError for such an answer, but not if its own call of the method has run often:
    a quicker one then has no check. A call by C (`methodcaller`) always has it.
    """
    try:
        found: Headers | None = _headers(message)
    except (SystemError, UnicodeDecodeError):  # the second: a client that hands its error on
        message.set_headers([])
        return None
    return found or []
