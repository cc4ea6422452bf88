"""The channel protocol: two pure functions per provider, and no I/O.

`request` builds what goes over the wire, `outcomes` reads what came back. One transport does the
I/O for all of them (channels/transport.py), called directly on the send path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Protocol

import httpx
import msgspec

from message.delivery import Delivery
from message.outcomes import AnyOutcome


class Account(msgspec.Struct, frozen=True):
    """One configured login at one provider; `options` hold what the provider's adapter reads."""

    name: str
    provider: str
    endpoint: str
    options: Mapping[str, Any] = {}


class Call(msgspec.Struct, frozen=True):
    """One provider call for one or more deliveries of one lane and account."""

    account: Account
    deliveries: Sequence[Delivery]


class Phase(StrEnum):
    """How far a failed call is known to have come."""

    NOT_WRITTEN = "not_written"
    """No byte of the request's body, or not the whole request, can have been acted on: NotSent."""
    WRITTEN = "written"
    """The request may have been acted on: Unknown."""


class Failure(msgspec.Struct, frozen=True):
    """A call without an answer. Judged by what was written, never by an exception's name."""

    phase: Phase
    code: str
    """`connect`, `dns`, `tls`, `timeout`, `reset`, `protocol`, …"""
    detail: str = ""


class Resolution(StrEnum):
    """What a provider's query says of an earlier call."""

    SENT = "sent"
    NOT_SENT = "not_sent"
    ASK_LATER = "ask_later"


class Channel(Protocol):
    """One provider's adapter. Stateless; safe from many threads."""

    provider: ClassVar[str]
    channel: ClassVar[str]
    max_batch: ClassVar[int]
    """Deliveries one call may carry."""

    def request(self, call: Call) -> httpx.Request:
        """The request, signed and ready."""
        ...

    def outcomes(self, call: Call, answer: httpx.Response | Failure) -> list[AnyOutcome]:
        """One outcome per delivery, in their order."""
        ...

    def resolve_request(self, account: Account, delivery: Delivery) -> httpx.Request | None:
        """The query that tells what became of an attempt; None where the provider has none."""
        ...

    def resolution(self, answer: httpx.Response | Failure) -> Resolution:
        """What that query's answer says."""
        ...
