"""From failures and statuses to outcomes: the part that every HTTP provider shares.

    not written                       NotSent
    written, no answer                Unknown
    2xx                               Accepted (the adapter reads the provider's id)
    429                               NotSent: the account's limit, it only paces
    other 4xx except 409              NotSent
    everything else                   Unknown

These rules judge answers that are not the provider's own; the error table judges its codes. A proxy, a
firewall or a login page may answer in its place. Their 4xx says that the request went no further, and
nothing about the message. Their redirect says nothing of earlier work.
503 is Unknown with Retry-After, too: the field does not say that nothing was done (RFC 9110 §10.2.3). A
gateway adds it when its backend did not answer in time.

The webhook protocol is ours and promises more (`own_protocol`): 3xx and 4xx except 408, 409, 425 and 429
reject, 503 with Retry-After paces.

An adapter asks `refusal` first and overrides what its provider documents otherwise.
"""

from __future__ import annotations

from time import time
from typing import Final

import httpx
import msgspec

from channels.channel import Call, Failure, Phase
from channels.judging.error_table import refused_by_status
from channels.judging.retry_after import retry_after_ms
from message.foreign_text import shown, shown_answer, shown_code
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown

_UNAVAILABLE: Final = 503


def of_failure(failure: Failure) -> NotSent | Unknown:
    """Returns the outcome of a call without an answer."""
    if failure.phase is Phase.NOT_WRITTEN:
        return NotSent(failure.code, failure.detail)
    return Unknown(failure.code, failure.detail)


CONTRADICTION: Final = Unknown(
    "contradiction", "the answer says that it was taken, and its status that it was not"
)
"""The outcome of a body that reports success under a status that refuses."""


def refusal(
    answer: httpx.Response, now_s: float | None = None, *, own_protocol: bool = False
) -> AnyOutcome | None:
    """Returns the outcome of an answer other than 2xx; None for 2xx."""
    status = answer.status_code
    if 200 <= status < 300:
        return None
    code, detail = (
        f"http_{status}",
        f"the provider answered {status} {answer.reason_phrase}".strip(),
    )
    wait_ms = retry_after_ms(answer.headers, time() if now_s is None else now_s)
    if own_protocol:
        return _promised(status, code, detail, wait_ms)
    found = refused_by_status(status, code, detail, wait_ms)
    if isinstance(found, Rejected):
        return NotSent(code, detail, wait_ms)
    return found or Unknown(code, detail)


def _promised(status: int, code: str, detail: str, wait_ms: int | None) -> AnyOutcome:
    """Returns the outcome by the webhook protocol."""
    if status == _UNAVAILABLE and wait_ms is not None:
        return NotSent(code, detail, wait_ms, limit=Limit.ACCOUNT)
    if 300 <= status < 400:
        return Rejected(code, detail)
    return refused_by_status(status, code, detail, wait_ms) or Unknown(code, detail)


def for_all(call: Call, outcome: AnyOutcome) -> list[AnyOutcome]:
    """Returns the same outcome for every delivery of the call."""
    return [outcome] * len(call.deliveries)


def shown_outcomes(
    call: Call, outcomes: list[AnyOutcome], content: bytes = b""
) -> list[AnyOutcome]:
    """Returns the outcomes with the provider's codes and sentences as they may be shown. Those may repeat
    any receiver or content of the call. `content` is the answer's; others than Accepted keep it."""
    if [type(outcome) for outcome in outcomes].count(Accepted) == len(outcomes):
        return outcomes
    private = _private_texts(call)
    answer = shown_answer(content, private) if content else ""
    # Deliveries of a call often have equal outcomes.
    done = {outcome: _shown(outcome, private, answer) for outcome in set(outcomes)}
    return [done[outcome] for outcome in outcomes]


def _private_texts(call: Call) -> list[str]:
    """Returns the private texts of all deliveries, each text once. Deliveries of one notification differ in
    their receivers alone."""
    texts = dict.fromkeys(delivery.receiver for delivery in call.deliveries)
    contents = {(id(d.notification), id(d.rendered)): d for d in call.deliveries}
    for delivery in contents.values():
        texts.update(dict.fromkeys(delivery.private_texts()))
    return list(texts)


def _shown(outcome: AnyOutcome, private: list[str], answer: str) -> AnyOutcome:
    if isinstance(outcome, Accepted):
        return outcome
    code, detail = shown_code(outcome.code, private), shown(outcome.detail, private)
    return msgspec.structs.replace(outcome, code=code, detail=detail, answer=answer)
