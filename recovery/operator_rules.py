"""Rules for a person's actions on deliveries, by their state. Pure.

again         PARKED, REJECTED, EXPIRED, RETRY ─▶ RETRY
arrived       UNKNOWN, PARKED in doubt ─▶ SENT
not_arrived   UNKNOWN, PARKED in doubt ─▶ RETRY, as surely not sent
accept_risk   UNKNOWN, PARKED in doubt ─▶ RETRY, counted as a possible duplicate
discard       UNKNOWN, PARKED, RETRY ─▶ DROPPED
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from idempotency.claims.rows import BEHIND
from idempotency.recovery.contract import OPERATOR
from idempotency.recovery.selection import Pick
from message.reasons import DISCARDED, resend_of_dropped
from message.states import Event, State, sources
from recovery.unknown.decisions import REPLAY
from tracing.masks import masked_text

AUTHOR_AT_MOST: Final = 64
"""Characters of an author's name in a row's reason."""
WHY_AT_MOST: Final = 200
"""Characters of a person's explanation in a row's reason."""
DOUBLE: Final = "an earlier call may have sent it: this may be a second copy"
NOT_IN_DOUBT: Final = "it is in no doubt: there is nothing to ask its provider"
_MS: Final = 1_000


class Verb(StrEnum):
    """A person's action on a delivery."""

    AGAIN = "again"
    ARRIVED = "arrived"
    NOT_ARRIVED = "not_arrived"
    ACCEPT_RISK = "accept_risk"
    DISCARD = "discard"


SENDS: Final = frozenset({Verb.AGAIN, Verb.NOT_ARRIVED, Verb.ACCEPT_RISK})
"""Verbs after which a delivery is sent."""
DECIDES: Final = frozenset({Verb.ARRIVED, Verb.NOT_ARRIVED, Verb.ACCEPT_RISK})
"""Verbs about a delivery in doubt."""
_EVENTS: Final = {
    Verb.AGAIN: Event.OPERATOR_RETRY,
    Verb.ARRIVED: Event.OPERATOR_SENT,
    Verb.NOT_ARRIVED: Event.OPERATOR_NOT_SENT,
    Verb.ACCEPT_RISK: Event.OPERATOR_RISK,
    Verb.DISCARD: Event.OPERATOR_DISCARD,
}


class OperatorNote(msgspec.Struct, frozen=True):
    """Author and explanation of an action, for the row's reason and the trace."""

    author: str = ""
    why: str = ""

    def reason(self, verb: Verb) -> str:
        """Returns the row's reason: `operator:li@ops: the portal shows nothing`; bounded and masked."""
        code = DISCARDED if verb is Verb.DISCARD else OPERATOR
        return f"{code}:{self}" if self.author or self.why else code

    def __str__(self) -> str:
        """Returns `li@ops: the portal shows nothing`."""
        parts = (self.author[:AUTHOR_AT_MOST], masked_text(self.why[:WHY_AT_MOST]))
        return ": ".join(part for part in parts if part)


def event_of(verb: Verb, pick: Pick) -> Event:
    """Returns the verb's move for a delivery that `refusal` does not refuse."""
    if verb is Verb.ACCEPT_RISK and pick.state is State.PARKED:
        return Event.OPERATOR_RETRY
    return _EVENTS[verb]


def refusal(verb: Verb, pick: Pick) -> str:
    """Returns why the verb is refused; empty if it is not."""
    if verb in SENDS and pick.recalled and pick.state not in (State.SENT, State.DELIVERED):
        return "it was recalled and would end again at once: --new-id makes a copy"
    if verb is Verb.AGAIN:
        return _not_again(pick)
    if verb is Verb.DISCARD:
        return _not_discarded(pick)
    return _not_decided(verb, pick)


def _not_again(pick: Pick) -> str:
    if pick.state is State.RETRY and pick.reason == BEHIND:
        return "it waits behind an earlier one of its key, and goes when that one has ended"
    if pick.state is State.RETRY and pick.reason == REPLAY:
        return (
            "it is in doubt, and recovery repeats the same call soon: its provider drops the repeat if the"
            " first one arrived"
        )
    if pick.state in sources(Event.OPERATOR_RETRY):
        return ""
    if pick.state is State.UNKNOWN:
        return (
            "it is in doubt, and recovery asks its provider: --arrived, --not-arrived or --accept-risk"
            " decides it by hand"
        )
    if pick.state is State.IN_FLIGHT:
        return "its call is under way"
    if pick.state is State.DROPPED:
        return resend_of_dropped(pick.reason or "")
    return "it was sent: --new-id makes a second copy"


def _not_discarded(pick: Pick) -> str:
    if pick.state in sources(Event.OPERATOR_DISCARD):
        return ""
    if pick.state is State.IN_FLIGHT:
        return "its call is under way: discard it when that has ended, or recall it"
    return f"it has ended already: {pick.state.value}"


def _not_decided(verb: Verb, pick: Pick) -> str:
    if pick.state is State.UNKNOWN or (pick.state is State.PARKED and pick.doubted):
        return ""
    if pick.state in (State.SENT, State.DELIVERED, State.UNDELIVERED):
        return "the ledger has it as sent already"
    if pick.state is State.IN_FLIGHT:
        return "its call is under way"
    if verb is Verb.ARRIVED:
        return f"it surely was not sent ({pick.reason or pick.state.value}): nothing of it can have arrived"
    return (
        f"it surely was not sent ({pick.reason or pick.state.value}): it needs no decision by hand"
    )


def held_text(until_ms: int, zone: str) -> str:
    """Returns `held until 2026-11-23 08:00 Asia/Shanghai: quiet hours of its lane`."""
    at = datetime.fromtimestamp(until_ms / _MS, ZoneInfo(zone))
    return f"held until {at:%Y-%m-%d %H:%M} {zone}: quiet hours of its lane"
