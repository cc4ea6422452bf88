"""From failures and statuses to outcomes: the part that every HTTP provider shares.

    not written                       NotSent
    written, no answer                Unknown
    2xx                               Accepted (the adapter reads the provider's id)
    408, 425, 429                     NotSent
    503 with Retry-After              NotSent
    3xx, other 4xx except 409         Rejected
    everything else                   Unknown

An adapter asks `refusal` first and overrides what its provider documents otherwise.
"""

from __future__ import annotations

from time import time
from typing import Final

import httpx

from channels.channel import Call, Failure, Phase
from channels.retry_after import retry_after_ms
from message.outcomes import AnyOutcome, NotSent, Rejected, Unknown

_LATER: Final = frozenset({408, 425, 429})
_UNAVAILABLE: Final = 503
_CONFLICT: Final = 409
"""Another request with this key may be under way: neither sent nor refused."""


def of_failure(failure: Failure) -> NotSent | Unknown:
    """The outcome of a call without an answer."""
    if failure.phase is Phase.NOT_WRITTEN:
        return NotSent(failure.code, failure.detail)
    return Unknown(failure.code, failure.detail)


def refusal(answer: httpx.Response, now_s: float | None = None) -> AnyOutcome | None:
    """The outcome of an answer other than 2xx; None for 2xx."""
    status = answer.status_code
    if 200 <= status < 300:
        return None
    code, detail = (
        f"http_{status}",
        f"the provider answered {status} {answer.reason_phrase}".strip(),
    )
    wait_ms = retry_after_ms(answer.headers, time() if now_s is None else now_s)
    if status in _LATER or (status == _UNAVAILABLE and wait_ms is not None):
        return NotSent(code, detail, wait_ms)
    if 300 <= status < 500 and status != _CONFLICT:
        return Rejected(code, detail)
    return Unknown(code, detail)


def for_all(call: Call, outcome: AnyOutcome) -> list[AnyOutcome]:
    """The same outcome for every delivery of the call."""
    return [outcome] * len(call.deliveries)
