"""What the tests of the SMS providers share: deliveries, dialogues held by hand, simulators asked."""

from collections.abc import Sequence
from typing import Any

import msgspec

from channels.channel import (
    Account,
    Answer,
    Attempt,
    Call,
    Channel,
    Dialogue,
    Failure,
    Phase,
    ResolveResult,
)
from channels.registry import load_accounts
from message.delivery import Delivery, deliveries_of
from message.envelope import Notification, Template
from message.outcomes import AnyOutcome

KEY = "0123456789abcdef0123456789abcdef"
AT_MS = 1_790_000_000_000
"""2026-09-21T14:13:20Z, 22:13:20 in China."""
LOST = Failure(Phase.WRITTEN, "reset", "the connection was reset")
REFUSED = Failure(Phase.NOT_WRITTEN, "connect", "nobody listens")


def account_of(table: dict[str, Any], endpoint: str = "", **changes: Any) -> Account:
    """The account as the configuration would give it."""
    named = {"endpoint": endpoint} if endpoint else {}
    return load_accounts({"main": {**table, **named, **changes}})["main"]


def delivery(
    receiver: str = "+8613800000001",
    *,
    others: Sequence[str] = (),
    template: Template | None = None,
    content: dict[str, Any] | None = None,
    message_id: str = "m-1",
    attempt: int = 1,
    **attributes: Any,
) -> Delivery:
    """One SMS, one of several of its notification where there are others."""
    notification = Notification(
        id=message_id,
        channel="sms",
        kind="notice",
        receivers=[receiver, *others],
        template=template,
        content=content,
        created_at=AT_MS,
        attributes=attributes,
    )
    one = deliveries_of(notification, b"", expires_at=AT_MS + 86_400_000)[0]
    one.attempt, one.call_key = attempt, KEY
    return one


def outcome(channel: Channel, account: Account, one: Delivery, answer: Answer) -> AnyOutcome:
    """What an answer means for a call with one delivery."""
    (found,) = channel.outcomes(Call(account, (one,)), answer)
    return found


def attempt_of(one: Delivery, age_s: float = 3_600, called_at: int = AT_MS) -> Attempt:
    """The delivery in doubt, so long after its call."""
    return Attempt(one, called_at, called_at + int(age_s * 1_000))


def held(dialogue: Dialogue | None, *answers: Answer) -> tuple[list[Any], ResolveResult]:
    """The requests of a dialogue that is given these answers, and what it found."""
    assert dialogue is not None
    asked = []
    try:
        request = next(dialogue)
        for answer in answers:
            asked.append(request)
            request = dialogue.send(answer)
    except StopIteration as end:
        return asked, end.value
    raise AssertionError(f"the dialogue asks on after {len(answers)} answers")


def altered(one: Delivery, **changes: Any) -> Delivery:
    """The delivery of the same notification with other fields."""
    return msgspec.structs.replace(
        one, notification=msgspec.structs.replace(one.notification, **changes)
    )
