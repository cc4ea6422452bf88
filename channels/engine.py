"""Runs one provider call: ask the adapter, put it on the wire, let the adapter read the answer.

What goes wrong inside an adapter is an outcome too, never an exception:

    before the write   nothing was sent and a retry would fail the same: Rejected `adapter_error`
    after it           the provider may have acted: Unknown `adapter_error`
"""

from __future__ import annotations

from typing import Protocol

import httpx
import structlog

from channels.channel import Call, Channel, Failure
from channels.failures import BadRequest
from channels.null import NullChannel
from channels.outcomes import for_all, of_failure
from message.outcomes import AnyOutcome, Rejected, Unknown

log = structlog.get_logger(__name__)


class Sender(Protocol):
    """What the engine needs of a transport; raises BadRequest alone."""

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        """One call on the wire."""
        ...


class Engine:
    """Stateless beside its transport; safe from many threads."""

    def __init__(self, transport: Sender) -> None:
        self._transport = transport

    def send(self, channel: Channel, call: Call, timeout_s: float) -> list[AnyOutcome]:
        """One outcome per delivery, in their order, within `timeout_s` seconds; never raises."""
        if isinstance(channel, NullChannel):
            return channel.accept(call)
        try:
            request = channel.request(call)
            request.extensions["timeout"] = {"total": timeout_s}
        except Exception as exc:
            return for_all(call, Rejected("adapter_error", _told(channel, "request", exc)))
        return self._exchange(channel, call, request)

    def _exchange(self, channel: Channel, call: Call, request: httpx.Request) -> list[AnyOutcome]:
        try:
            answer = self._transport.send(request)
        except BadRequest as exc:
            return for_all(call, Rejected("adapter_error", _told(channel, "request", exc)))
        except Exception as exc:
            return for_all(call, Unknown("transport_error", _told(channel, "transport", exc)))
        try:
            return _one_each(call, channel.outcomes(call, answer))
        except Exception as exc:
            detail = _told(channel, "outcomes", exc)
            if isinstance(answer, Failure):
                return for_all(call, of_failure(answer))
            return for_all(call, Unknown("adapter_error", detail))


def _one_each(call: Call, outcomes: list[AnyOutcome]) -> list[AnyOutcome]:
    if len(outcomes) != len(call.deliveries):
        raise ValueError(f"{len(outcomes)} outcomes for {len(call.deliveries)} deliveries")
    return outcomes


def _told(channel: Channel, step: str, exc: Exception) -> str:
    """Log with its traceback what only a programmer can mend, and put it in one sentence."""
    log.exception("adapter_failed", provider=channel.provider, step=step)
    return f"the {channel.provider} adapter failed in {step}: {type(exc).__name__}: {exc}"
