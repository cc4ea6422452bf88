"""JSON Schema of the envelope, for producers in any language (docs/schema/envelope.schema.json).

Fields, types and defaults come from `Notification`; this module adds the limits of `message.envelope`'s
checks and the meanings. Every keyword is one of Draft 7, too, and nothing is a reference: AsyncAPI takes
the schema as it is. Patterns hold plain characters and classes alone, which all dialects read alike.
"""

from __future__ import annotations

from typing import Final

import msgspec

from message.envelope import (
    CONTROL,
    MAX_BYTES,
    MAX_ID,
    MAX_RECEIVER,
    MAX_RECEIVERS,
    VERSION,
    Notification,
)
from message.schemas.parts import DIALECT, NULL, Schema, limited
from message.vocabulary import CHANNELS, KINDS

_TEXT: Final[Schema] = {"maxLength": MAX_RECEIVER, "not": {"pattern": CONTROL}}
_BLANK: Final = "[^ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]"
"""Finds a character that is no blank."""
_LIMITS: Final[dict[str, Schema]] = {
    "v": {"const": VERSION},
    # Not `^[ -~]*$`: some dialects let `$` match before a line feed at the end.
    "id": {"minLength": 1, "maxLength": MAX_ID, "not": {"pattern": "[^ -~]"}},
    "biz_id": _TEXT,
    "channel": {"enum": list(CHANNELS)},
    "kind": {"enum": list(KINDS)},
    "receivers": {
        "minItems": 1,
        "maxItems": MAX_RECEIVERS,
        "items": {"type": "string", "minLength": 1, **_TEXT, "pattern": _BLANK},
    },
    "account": _TEXT,
    "ttl_ms": {"exclusiveMinimum": 0},
    "ordering_key": _TEXT,
    "resend_of": _TEXT,
}
_MEANINGS: Final = {
    "v": "Version of this form.",
    "id": "Unique per send call: printable ASCII. Sending the same id again doubles nothing.",
    "biz_id": "The business's own name for it, to find it by.",
    "channel": "Channel; with `kind` it names the lane and the topic.",
    "kind": "Kind; with `channel` it names the lane and the topic.",
    "receivers": "Whole addresses of the channel. One listed twice counts once.",
    "account": "An account of the worker's configuration; null: the lane's choice.",
    "template": "A template and its parameters. Exactly one of `template` and `content` is given.",
    "content": "The content itself, in the form of the channel.",
    "created_at": "Epoch milliseconds; at most 10 minutes ahead of the worker's clock.",
    "ttl_ms": "Life from `created_at`; null: the lane's. Capped by the lane's `max_ttl_ms`.",
    "ordering_key": 'In lanes with `ordering = "key"`, deliveries of one key keep their order.',
    "resend_of": "Id of the message of which this one is a deliberate second copy.",
    "attributes": "Anything of the sender's own.",
}
_TEMPLATE_MEANINGS: Final = {
    "id": "Name in templates.toml, or a provider's own id on channels whose providers have templates.",
    "params": "Values of its variables, by name.",
}
UNSAID: Final = (
    f"The value has at most {MAX_BYTES:,} bytes of UTF-8, without a byte order mark.",
    "Integers are written without fraction and exponent: 1000, never 1000.0 or 1e3.",
    "No number is beyond a double or has thousands of digits; no text holds half a surrogate pair.",
    "A member is given once.",
    "created_at is at most 10 minutes ahead of the worker's clock.",
    "channel and kind are those of the topic.",
    "The worker has the account, the template and its variables, and can reach the receivers.",
)
"""Rules that JSON Schema cannot express; the decoder or the worker checks them."""
EXAMPLE: Final[Schema] = {
    "v": VERSION,
    "id": "0192f3c47b1a7cc0a1b2c3d4e5f60718",
    "biz_id": "order-1001",
    "channel": "sms",
    "kind": "notice",
    "receivers": ["+8613800000001"],
    "account": None,
    "template": {"id": "order-shipped", "params": {"order": "order-1001"}},
    "created_at": 1790000000000,
    "ttl_ms": 3600000,
    "ordering_key": None,
    "resend_of": None,
    "attributes": {},
}


def envelope_schema() -> Schema:
    """Returns the schema of a Kafka value (Draft 2020-12)."""
    parts = msgspec.json.schema_components([Notification])[1]
    body = parts[Notification.__name__]
    properties = {
        name: limited(_MEANINGS[name], one, _LIMITS.get(name, {}))
        for name, one in body["properties"].items()
    }
    properties["template"] = _template(parts["Template"])
    return {
        "$schema": DIALECT,
        "$id": f"urn:hongyan:schema:envelope:{VERSION}",
        "title": "Hongyan envelope",
        "description": "One notification: a Kafka value of a topic PREFIX.dispatch.CHANNEL.KIND. Unknown "
        "members are ignored, kept and passed on. Beyond this schema: " + " ".join(UNSAID),
        "type": "object",
        "required": body["required"],
        "properties": properties,
        "oneOf": [_given("template"), _given("content")],
        "examples": [EXAMPLE],
    }


def _template(base: Schema) -> Schema:
    """Returns the schema of `template`, with the named text's own in place of a reference."""
    properties = {
        name: {"description": _TEMPLATE_MEANINGS[name], **one}
        for name, one in base["properties"].items()
    }
    properties["id"] |= _TEXT
    named = {"type": "object", "required": base["required"], "properties": properties}
    return {"description": _MEANINGS["template"], "anyOf": [named, NULL], "default": None}


def _given(name: str) -> Schema:
    return {"required": [name], "properties": {name: {"type": "object"}}}
