"""A call without an answer: a value on the send path, an error to httpx.

httpx.TransportError
 └─ TransportFailure   carries the Failure: how far the call is known to have come
ValueError
 └─ BadRequest         the request can never be put on the wire: a mistake in its adapter
"""

from __future__ import annotations

from typing import Final

import httpx

from channels.channel import Failure, Phase


class TransportFailure(httpx.TransportError):
    """A call ended without an answer; `failure.phase` says whether the provider may have acted."""

    def __init__(self, failure: Failure, request: httpx.Request | None = None) -> None:
        super().__init__(f"{failure.code}: {failure.detail}", request=request)
        self.failure = failure


class BadRequest(ValueError):
    """A request that cannot be written as HTTP: a line break in a header, another scheme."""


WITHDRAWN: Final = "withdrawn"
"""The code of a call that its caller took back before it was the provider's."""
TOO_LATE: Final = "too_late"
"""The code of a call whose lease ended before its first byte."""
LEASE_LAPSED: Final = "lease_lapsed"
"""The reason of a call that was withdrawn or never began: its caller's lease is over."""


def withdrawn(why: str) -> Failure:
    """Returns the failure of a call that its caller took back (`Call.withdrawn`)."""
    return Failure(Phase.NOT_WRITTEN, WITHDRAWN, f"taken back before the message was sent: {why}")


def late() -> Failure:
    """Returns the failure of a call whose lease ended before the first byte (`Call.not_after`)."""
    return Failure(Phase.NOT_WRITTEN, TOO_LATE, "the lease was over before the first byte")
