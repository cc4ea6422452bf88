"""JSON Schema of the outcome event, for consumers in any language (docs/schema/outcome.schema.json).

Fields and types come from `OutcomeEvent`. A later version may add members, so others are allowed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from message.keys import KEY_LENGTH
from message.outcome_event import ANNOUNCED, VERSION, OutcomeEvent
from message.schemas.parts import DIALECT, Schema, limited
from message.vocabulary import CHANNELS, KINDS, LANES

_HASH_LENGTH: Final = 64
_HEX: Final[Schema] = {"not": {"pattern": "[^0-9a-f]"}}
_DIGEST: Final[Schema] = {"minLength": KEY_LENGTH, "maxLength": KEY_LENGTH, **_HEX}
_LIMITS: Final[dict[str, Schema]] = {
    "v": {"const": VERSION},
    "event_id": _DIGEST,
    "channel": {"enum": list(CHANNELS)},
    "kind": {"enum": list(KINDS)},
    "lane": {"enum": [lane.name for lane in LANES]},
    "receiver_hash": {"minLength": _HASH_LENGTH, "maxLength": _HASH_LENGTH, **_HEX},
    "attempt": {"minimum": 0},
    "delivery_key": _DIGEST,
    "created_at": {"minimum": 0},
    "ended_at": {"minimum": 0},
}
_MEANINGS: Final = {
    "v": "Version of this form.",
    "event_id": "The same in each repeat of this event. A delivery's next end has another one.",
    "id": "The notification's `id`.",
    "biz_id": "The notification's `biz_id`.",
    "channel": "The notification's `channel`.",
    "kind": "The notification's `kind`.",
    "lane": "CHANNEL.KIND.",
    "receiver_hash": "HMAC-SHA256 over channel and receiver under `outcomes.hash_key`; null if the "
    "ledger's key does not open the receiver.",
    "receiver_mask": "The receiver as a trace shows it.",
    "state": "The state in which the delivery ended.",
    "reason": "A code of Hongyan's own; null where the state says all.",
    "provider_code": "Code of the call, or of the receipt, that ended it.",
    "provider_id": "The provider's name for the message.",
    "account": "The account of the last call.",
    "attempt": "Provider calls made.",
    "delivery_key": "The delivery's name in ledger, trace and commands.",
    "created_at": "Start of the delivery in the ledger, epoch milliseconds by the ledger's clock.",
    "ended_at": "Start of this state, epoch milliseconds by the ledger's clock.",
    "resend_of": "Id of the message of which this one is a deliberate second copy.",
}
EXAMPLE: Final[Schema] = {
    "v": VERSION,
    "event_id": "a3f1c0de5b7742d89a6e4c1b2d3f4a5b",
    "id": "0192f3c47b1a7cc0a1b2c3d4e5f60718",
    "biz_id": "order-1001",
    "channel": "sms",
    "kind": "notice",
    "lane": "sms.notice",
    "receiver_hash": "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef",
    "receiver_mask": "+86138***0001",
    "state": "SENT",
    "reason": None,
    "provider_code": None,
    "provider_id": "900619746936498440",
    "account": "aliyun",
    "attempt": 1,
    "delivery_key": "5c1b8a0d7e6f4c3b2a19080706050403",
    "created_at": 1790000000140,
    "ended_at": 1790000000170,
    "resend_of": None,
}


def outcome_schema() -> Schema:
    """Returns the schema of an outcome event (Draft 2020-12)."""
    body = msgspec.json.schema_components([OutcomeEvent])[1][OutcomeEvent.__name__]
    properties = {name: _field(name, one) for name, one in body["properties"].items()}
    return {
        "$schema": DIALECT,
        "$id": f"urn:hongyan:schema:outcome:{VERSION}",
        "title": "Hongyan outcome event",
        "description": "One end of one delivery, at least once: a repeat has the same event_id.",
        "type": "object",
        "required": list(properties),
        "properties": properties,
        "examples": [EXAMPLE],
    }


def _field(name: str, base: Schema) -> Schema:
    if name == "state":
        forms = [{"const": one.value, "description": text} for one, text in ANNOUNCED.items()]
        return {"description": _MEANINGS[name], "type": "string", "oneOf": forms}
    return limited(_MEANINGS[name], base, _LIMITS.get(name, {}))
