"""The `null` provider: accepts everything without a byte of I/O, on every channel. For benchmarks."""

from __future__ import annotations

from typing import ClassVar

import httpx

from channels.accounts.reach import EVERYBODY, Reach
from channels.base import BaseChannel
from channels.capabilities import Capabilities
from channels.channel import Answer, Call
from message.outcomes import Accepted, AnyOutcome


class NullChannel(BaseChannel):
    """The engine calls `accept` and makes no request."""

    provider: ClassVar[str] = "null"
    channel: ClassVar[str] = "*"
    max_batch: ClassVar[int] = 1
    reach: ClassVar[Reach] = EVERYBODY
    takes_anything: ClassVar[bool] = True
    promises: ClassVar[Capabilities] = Capabilities(title="Null (for benchmarks)", resolve="none")

    def accept(self, call: Call) -> list[AnyOutcome]:
        """Returns Accepted for every delivery, under its own key."""
        return [Accepted(delivery.key) for delivery in call.deliveries]

    def request(self, call: Call) -> httpx.Request:
        """Raises NotImplementedError: the engine calls `accept` instead."""
        raise NotImplementedError("the null provider makes no request")

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns the same as `accept`; the answer is ignored."""
        return self.accept(call)
