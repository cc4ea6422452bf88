"""The OpenAPI 3.1 document of the gateway. A test holds it against the routes and the answers."""

from __future__ import annotations

from copy import deepcopy
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from message.envelope import CONTROL, MAX_ID, MAX_RECEIVER
from message.schemas.envelope import EXAMPLE, envelope_schema
from message.states import State
from message.vocabulary import LANES
from producer.gateway.envelope_limits import MOST_ITEMS, NO_PATH
from producer.gateway.problems import MEDIA_TYPE
from recovery.recall.recall import LISTED, RecallVerdict

Schema = dict[str, Any]
_ID: Final = "0192f3c47b1a7cc0a1b2c3d4e5f60718"
_TEXT: Final[Schema] = {"type": "string"}
_TIME: Final[Schema] = {"type": "integer", "description": "Epoch milliseconds."}
_MESSAGE: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_ID,
    "pattern": "^[ -~]+$",
}
_BUSINESS: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_RECEIVER,
    "not": {"pattern": CONTROL},
}
_PROBLEMS: Final = {
    "400": "The request cannot be read.",
    "401": "No valid API key.",
    "403": "The key has not the scope or the lane.",
    "404": "Nothing of that name in the lanes of the key.",
    "405": "Not a method of this path.",
    "409": "A request with this Idempotency-Key is at work: repeat it later.",
    "413": "The body is too large, or has too many items, or too many objects and lists.",
    "415": "The body is not application/json, or has a Content-Encoding.",
    "422": "The notification is refused (`expired`: its time is over), or the Idempotency-Key was used "
    "with another body.",
    "429": "Too many requests of this key.",
    "500": "A fault of the gateway. Repeat with the same Idempotency-Key or id.",
    "503": "Kafka or the database is away. Repeat with the same Idempotency-Key, or with the `id` given.",
}
_OF_ALL: Final = ("405", "500")
_OF_SEND: Final = ("400", "401", "403", "409", "413", "415", "422", "429", "503")
_OF_READ: Final = ("400", "401", "403", "404", "422", "429", "503")
_OF_RECALL: Final = ("400", "401", "403", "404", "413", "415", "422", "429", "503")
_LATER: Final = frozenset({"409", "429", "503"})
"""Statuses with `Retry-After`."""


def document() -> Schema:
    """Returns the document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hongyan gateway",
            "version": _version(),
            "description": "Hands notifications to Hongyan. 202 means that every in-sync replica of "
            "Kafka has the notification. Errors are problem+json (RFC 9457).",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"apiKey": []}],
        "paths": {
            "/v1/notifications": {"post": _send(), "get": _read_biz()},
            "/v1/notifications:batch": {"post": _batch()},
            "/v1/notifications:recall": {"post": _recall()},
            "/v1/notifications/{message_id}": {"get": _read()},
            "/openapi.json": {"get": _self()},
        },
        "components": {
            "securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(),
            "responses": {status: _problem(status) for status in _PROBLEMS},
        },
    }


def _version() -> str:
    try:
        return version("hongyan")
    except PackageNotFoundError:
        return "0"


def _send() -> Schema:
    return {
        "operationId": "sendNotification",
        "summary": "Hand over one notification (scope send)",
        "parameters": _of_post(),
        "requestBody": _body("NewNotification", _example()),
        "responses": {
            "202": _answer("Kafka has it.", "Accepted", {"id": _ID, "lane": "sms.notice"})
            | {
                "headers": {
                    "Location": {"schema": _TEXT, "description": "Path of its state."},
                    "Idempotent-Replayed": _replayed(),
                }
            },
            **_refs(_OF_SEND),
        },
    }


def _batch() -> Schema:
    accepted = {"index": 0, "status": 202, "id": _ID, "lane": "sms.notice"}
    result = {"accepted": 1, "refused": 0, "results": [accepted]}
    problem = _example_problem()
    mixed = {
        "accepted": 1,
        "refused": 1,
        "results": [accepted, {"index": 1, "status": 422, "problem": problem}],
    }
    replayed = {"headers": {"Idempotent-Replayed": _replayed()}}
    wait = "Seconds after which the items that cannot go now may be repeated."
    later = {"Retry-After": _wait(wait)}
    return {
        "operationId": "sendBatch",
        "summary": f"Hand over up to {MOST_ITEMS:,} notifications, each with a result (scope send)",
        "parameters": _of_post(),
        "requestBody": _body("Batch", {"notifications": [_example()]}),
        "responses": {
            "202": _answer("Kafka has all of them.", "BatchResult", result) | replayed,
            "207": _answer("Some were refused; see each result.", "BatchResult", mixed)
            | {"headers": replayed["headers"] | later},
            **_refs(_OF_SEND),
        },
    }


def _recall() -> Schema:
    return {
        "operationId": "recallNotification",
        "summary": "Recall a notification, or those of a business id (scope recall)",
        "requestBody": _body("Recall", {"id": _ID}),
        "responses": {
            "200": _answer(
                "The recall holds.",
                "Recalled",
                {"kind": "message", "name": _ID, "made_at": 1790000000000, "deliveries": []},
            ),
            **_refs(_OF_RECALL),
        },
    }


def _read() -> Schema:
    return {
        "operationId": "readNotification",
        "summary": "State and timeline of one notification (scope read)",
        "parameters": [
            {
                "name": "message_id",
                "in": "path",
                "required": True,
                "schema": _MESSAGE,
                "example": _ID,
            }
        ],
        "responses": {"200": _answer("It is known.", "Story", _story()), **_refs(_OF_READ)},
    }


def _read_biz() -> Schema:
    return {
        "operationId": "readBusinessId",
        "summary": "Newest notifications of a business id (scope read)",
        "parameters": [
            {"name": "biz_id", "in": "query", "required": True, "schema": _BUSINESS}
            | {"example": "order-1001"}
        ],
        "responses": {
            "200": _answer("Those in the key's lanes.", "Stories", {"notifications": [_story()]}),
            **_refs(_OF_READ),
        },
    }


def _self() -> Schema:
    return {
        "operationId": "openapi",
        "summary": "This document",
        "security": [],
        "responses": {
            "200": {
                "description": "OpenAPI 3.1.",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            **_refs(()),
        },
    }


def _schemas() -> dict[str, Schema]:
    return {
        "NewNotification": _new_notification(),
        "Batch": _object(
            notifications={
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_ITEMS,
                "items": _ref("NewNotification"),
            }
        ),
        "Recall": {
            "type": "object",
            "properties": {"id": _MESSAGE, "biz_id": _BUSINESS},
            "additionalProperties": False,
            "oneOf": [{"required": ["id"]}, {"required": ["biz_id"]}],
        },
        "Accepted": _object(id=_TEXT, lane=_lane()),
        "BatchResult": _object(
            accepted={"type": "integer"},
            refused={"type": "integer"},
            results={"type": "array", "items": _item()},
        ),
        "Recalled": _recalled(),
        "Story": _story_schema(),
        "Stories": _object(notifications={"type": "array", "items": _ref("Story")}),
        "Problem": _problem_schema(),
    }


def _new_notification() -> Schema:
    """Returns the envelope's schema; the gateway fills in v, id and created_at."""
    schema = deepcopy(envelope_schema())
    for name in ("$schema", "$id", "title"):
        schema.pop(name)
    filled = ("id", "created_at")
    schema["required"] = [name for name in schema["required"] if name not in filled]
    schema["properties"]["id"]["not"] = {"pattern": f"^({NO_PATH})$"}
    schema["description"] = "A notification. Missing v, id and created_at are filled in."
    schema["examples"] = [_example()]
    return schema


def _item() -> Schema:
    return {
        "type": "object",
        "required": ["index", "status"],
        "properties": {
            "index": {"type": "integer"},
            "status": {"type": "integer", "description": "As if it had been sent alone."},
            "id": _TEXT,
            "lane": _lane(),
            "problem": _ref("Problem"),
        },
    }


def _recalled() -> Schema:
    delivery = _object(
        delivery_key=_TEXT,
        message_id=_TEXT,
        lane=_TEXT,
        receiver=_TEXT | {"description": "Masked."},
        state=_state(),
        verdict={"type": "string", "enum": [*RecallVerdict]},
        why=_TEXT,
    )
    return _object(
        kind={"type": "string", "enum": ["message", "biz"]},
        name=_TEXT,
        made_at=_TIME,
        deliveries={"type": "array", "items": delivery, "maxItems": LISTED},
        verdicts={
            "type": "object",
            "description": "Number of deliveries by verdict, those beyond the list too.",
            "additionalProperties": {"type": "integer"},
        },
    )


def _story_schema() -> Schema:
    moment = {
        "type": "object",
        "required": ["at", "what"],
        "properties": {
            "at": _TIME,
            "what": _TEXT,
            "attempt": {"type": "integer"},
            **dict.fromkeys(("state", "account"), _TEXT),
            **dict.fromkeys(("reason", "provider_id"), _or_null(_TEXT)),
        },
    }
    delivery = _object(
        delivery_key=_TEXT,
        receiver=_TEXT | {"description": "Masked."},
        state=_or_null(_state()),
        reason=_or_null(_TEXT),
        attempt={"type": "integer"},
        updated_at=_or_null(_TIME),
        expires_at=_or_null(_TIME),
        timeline={"type": "array", "items": moment},
    )
    return _object(
        id=_TEXT,
        biz_id=_or_null(_TEXT),
        lane=_TEXT,
        deliveries={"type": "array", "items": delivery},
    )


def _problem_schema() -> Schema:
    return {
        "type": "object",
        "required": ["type", "title", "status", "code", "detail"],
        "properties": {
            "type": _TEXT,
            "title": _TEXT,
            "status": {"type": "integer"},
            "code": _TEXT,
            "detail": _TEXT | {"description": "One sentence that says what to do."},
            "path": _TEXT | {"description": "The field at fault, as $.receivers[3]."},
            "id": _TEXT | {"description": "Id with which a repeat doubles nothing."},
            "retry_after_s": {"type": "integer"},
        },
    }


def _of_post() -> list[Schema]:
    return [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "A repeat with the same key and body gets the first answer, for 24 hours.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
            "example": "order-1001-shipped",
        },
        {
            "name": "traceparent",
            "in": "header",
            "required": False,
            "description": "W3C trace context, which the trace keeps.",
            "schema": _TEXT,
        },
    ]


def _example() -> Schema:
    filled = ("v", "id", "created_at")
    return {k: v for k, v in EXAMPLE.items() if k not in filled and v is not None}


def _example_problem() -> Schema:
    return {
        "type": "urn:hongyan:problem:bad_receivers",
        "title": "The notification or request is refused",
        "status": 422,
        "code": "bad_receivers",
        "detail": "0 receivers; 1 to 1,000",
        "path": "$.receivers",
    }


def _story() -> Schema:
    return {"id": _ID, "biz_id": "order-1001", "lane": "sms.notice", "deliveries": []}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "required": [*properties], "properties": properties}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _lane() -> Schema:
    return {"type": "string", "enum": [lane.name for lane in LANES]}


def _state() -> Schema:
    return {"type": "string", "enum": [*State]}


def _replayed() -> Schema:
    return {"schema": {"type": "string", "const": "true"}, "description": "The first answer again."}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _refs(statuses: tuple[str, ...]) -> dict[str, Schema]:
    named = sorted({*statuses, *_OF_ALL})
    return {status: {"$ref": f"#/components/responses/{status}"} for status in named}


def _body(schema: str, example: Schema) -> Schema:
    return {
        "required": True,
        "content": {"application/json": {"schema": _ref(schema), "example": example}},
    }


def _answer(text: str, schema: str, example: Schema) -> Schema:
    return {
        "description": text,
        "content": {"application/json": {"schema": _ref(schema), "example": example}},
    }


def _problem(status: str) -> Schema:
    found: Schema = {
        "description": _PROBLEMS[status],
        "content": {MEDIA_TYPE: {"schema": _ref("Problem")}},
    }
    if status in _LATER:
        found["headers"] = {"Retry-After": _wait("Seconds after which a repeat may succeed.")}
    if status == "405":
        found["headers"] = {"Allow": {"schema": _TEXT, "description": "Methods of this path."}}
    return found


def _wait(text: str) -> Schema:
    return {"schema": {"type": "integer"}, "description": text}
