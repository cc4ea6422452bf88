"""AsyncAPI document of Hongyan's topics, seen from Hongyan: it receives notifications and sends outcomes.

The payloads are the JSON Schemas of this folder, written out: their keywords are AsyncAPI's own.
"""

from __future__ import annotations

from typing import Any, Final

from message.envelope import VERSION
from message.schemas import outcome
from message.schemas.envelope import EXAMPLE, envelope_schema
from message.schemas.parts import embedded
from message.vocabulary import CHANNELS, DEFAULT_TOPIC_PREFIX, KINDS

ASYNCAPI: Final = "3.0.0"
_BINDING: Final = "0.5.0"
"""Version of AsyncAPI's Kafka bindings."""
_TRACEPARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def asyncapi() -> dict[str, Any]:
    """Returns the document (AsyncAPI 3.0)."""
    return {
        "asyncapi": ASYNCAPI,
        "info": {
            "title": "Hongyan",
            "version": f"{VERSION}.0.0",
            "description": "Notifications that business systems hand to Hongyan over Kafka, and "
            "the outcomes that Hongyan reports. docs/producing.md is the producer guide.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {"dispatch": _dispatch(), "outcomes": _outcomes()},
        "operations": {
            "receiveNotification": _operation("receive", "dispatch", "notification"),
            "sendOutcome": _operation("send", "outcomes", "outcome"),
        },
        "components": {"messages": {"notification": _notification(), "outcome": _outcome()}},
    }


def _operation(action: str, channel: str, message: str) -> dict[str, Any]:
    place = f"#/channels/{channel}"
    return {
        "action": action,
        "channel": {"$ref": place},
        "messages": [{"$ref": f"{place}/messages/{message}"}],
    }


def _dispatch() -> dict[str, Any]:
    return {
        "address": "{prefix}.dispatch.{channel}.{kind}",
        "title": "Notifications of one lane",
        "description": "One topic for each lane, which is a channel and a kind. "
        "`hongyan topics apply` makes them.",
        "parameters": {
            "prefix": _prefix(),
            "channel": {"description": "The envelope's `channel`.", "enum": list(CHANNELS)},
            "kind": {"description": "The envelope's `kind`.", "enum": list(KINDS)},
        },
        "messages": {"notification": {"$ref": "#/components/messages/notification"}},
    }


def _outcomes() -> dict[str, Any]:
    return {
        "address": "{prefix}.outcomes",
        "title": "Outcomes of deliveries",
        "description": "One message for each end of a delivery, at least once. Lanes choose it by policy.",
        "parameters": {"prefix": _prefix()},
        "messages": {"outcome": {"$ref": "#/components/messages/outcome"}},
    }


def _prefix() -> dict[str, Any]:
    return {"description": "`kafka.topic_prefix`.", "default": DEFAULT_TOPIC_PREFIX}


def _notification() -> dict[str, Any]:
    return {
        "name": "notification",
        "title": "Notification",
        "summary": "One content to one or more receivers over one channel.",
        "contentType": "application/json",
        "headers": {
            "type": "object",
            "properties": {
                "hongyan-id": {"type": "string", "description": "The envelope's `id`."},
                "traceparent": {
                    "type": "string",
                    "description": "W3C Trace Context of the sender.",
                },
            },
        },
        "payload": embedded(envelope_schema()),
        "bindings": _keyed("`ordering_key`, else `id`, in UTF-8. Partitioner: murmur2."),
        "examples": [
            {
                "name": "sms",
                "headers": {"hongyan-id": EXAMPLE["id"], "traceparent": _TRACEPARENT},
                "payload": EXAMPLE,
            }
        ],
    }


def _outcome() -> dict[str, Any]:
    return {
        "name": "outcome",
        "title": "Outcome event",
        "summary": "One end of one delivery.",
        "contentType": "application/json",
        "headers": {
            "type": "object",
            "properties": {
                "hongyan-event-id": {"type": "string", "description": "The event's `event_id`."}
            },
        },
        "payload": embedded(outcome.outcome_schema()),
        "bindings": _keyed("The key of the notification's record."),
        "examples": [
            {
                "name": "sent",
                "headers": {"hongyan-event-id": outcome.EXAMPLE["event_id"]},
                "payload": outcome.EXAMPLE,
            }
        ],
    }


def _keyed(meaning: str) -> dict[str, Any]:
    key = {"type": "string", "description": meaning}
    return {"kafka": {"key": key, "bindingVersion": _BINDING}}
