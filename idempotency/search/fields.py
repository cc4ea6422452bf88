"""Fields of the query language. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from message.states import State
from message.vocabulary import LANES


class Field(StrEnum):
    """A field as it is written before its colon."""

    ID = "id"
    KEY = "key"
    BIZ = "biz"
    RECEIVER = "receiver"
    PROVIDER = "provider"
    PLACE = "place"
    COPY_OF = "copy_of"
    TEMPLATE = "template"
    LANE = "lane"
    ACCOUNT = "account"
    STATE = "state"
    ERROR = "error"
    SINCE = "since"
    UNTIL = "until"


class FieldRule(NamedTuple):
    """Rules of one field."""

    help: str
    """One phrase in English; the key of its translation is `search.field.FIELD`."""
    example: str
    several: bool = False
    """Whether it takes several values, divided by commas."""
    names: bool = False
    """Whether it names few deliveries, so that a search may cover a long time."""


RULES: Final = {
    Field.ID: FieldRule("the message's id", "01j…", names=True),
    Field.KEY: FieldRule("the delivery key, 32 hex digits", "5f70bf18…", names=True),
    Field.BIZ: FieldRule("your business id", "order-1001", names=True),
    Field.RECEIVER: FieldRule("the receiver in full", "+8613800000001", names=True),
    Field.PROVIDER: FieldRule("the provider's id", "9006…", names=True),
    Field.PLACE: FieldRule(
        "the record in Kafka, TOPIC/PARTITION/OFFSET", "hongyan.dispatch.sms.notice/3/4711"
    ),
    Field.COPY_OF: FieldRule("the message of which it is a copy", "01j…", names=True),
    Field.TEMPLATE: FieldRule("the template's name", "SMS_123"),
    Field.LANE: FieldRule("lanes; * and ? stand for any letters", "sms.*", several=True),
    Field.ACCOUNT: FieldRule("accounts", "aliyun-main", several=True),
    Field.STATE: FieldRule("states", "PARKED,UNKNOWN", several=True),
    Field.ERROR: FieldRule("the error class, a reason up to its colon", "attempts_spent"),
    Field.SINCE: FieldRule("the begin: an age or a date", "2h"),
    Field.UNTIL: FieldRule("the end: an age or a date", "2026-11-22T08:00"),
}
STATES: Final = tuple(state.value for state in State)
LANE_NAMES: Final = tuple(lane.name for lane in LANES)
ENDED: Final = (
    State.PARKED.value,
    State.REJECTED.value,
    State.EXPIRED.value,
    State.UNDELIVERED.value,
    State.DROPPED.value,
)
"""States that the index `deliveries_ended` holds, spelt as there; it has the time of the end."""
