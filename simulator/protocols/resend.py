"""Resend's HTTP API, as strict as its documents: `POST /emails` and nothing else.

Credential `api_key` (of `resend`); the default is the simulator's secret. An idempotency key counts
for 24 hours: the same payload is answered with the first id, another one with 409. A team has 2 requests a
second (behaviour `limits`: "off" takes any number).

Sources: https://resend.com/docs/api-reference/emails/send-email,
https://resend.com/docs/api-reference/errors, https://resend.com/docs/api-reference/rate-limit,
https://resend.com/docs/dashboard/emails/idempotency-keys
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from simulator.ledger import LedgerRecord
from simulator.protocols._windows import KeyedWindows
from simulator.servers.http_request import Request
from simulator.wire import (
    ProtocolContext,
    Question,
    ReceivedCall,
    Recipient,
    Reply,
    Verdict,
    WireProtocol,
)

_WINDOW_MS: Final = 24 * 3_600_000
_MAX_KEY: Final = 256
_MAX_TO: Final = 50
_MAX_BYTES: Final = 40 << 20
_DIGEST: Final = 16
_ADDRESS = re.compile(
    r"(?:[^<>]+ )?<[^<>@\s]+@[^<>@\s.]+(?:\.[^<>@\s.]+)+>|[^<>@\s]+@[^<>@\s.]+(?:\.[^<>@\s.]+)+"
)
_STATUS: Final = {
    **dict.fromkeys(("invalid_idempotency_key", "validation_error"), 400),
    **dict.fromkeys(("missing_api_key", "restricted_api_key"), 401),
    **dict.fromkeys(("invalid_api_key", "suspended_api_key"), 403),
    "not_found": 404,
    "method_not_allowed": 405,
    **dict.fromkeys(("invalid_idempotent_request", "concurrent_idempotent_requests"), 409),
    **dict.fromkeys(("invalid_attachment", "invalid_from_address", "invalid_access"), 422),
    **dict.fromkeys(("invalid_parameter", "invalid_region", "missing_required_field"), 422),
    **dict.fromkeys(("rate_limit_exceeded", "daily_quota_exceeded", "monthly_quota_exceeded"), 429),
    "security_error": 451,
    **dict.fromkeys(("application_error", "internal_server_error"), 500),
}
_LIMITS: Final = (
    ("ratelimit-limit", "2"),
    ("ratelimit-remaining", "0"),
    ("ratelimit-reset", "1"),
    ("retry-after", "1"),
)


class _Wrong(Exception):
    """A request that Resend refuses: the code, and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Kept(NamedTuple):
    """The first request with a key."""

    at_ms: int
    digest: str
    ids: dict[str, str]
    """Receiver to the id in its answer."""


class ResendProtocol(WireProtocol):
    """All state belongs to the simulator's loop."""

    name = "resend"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._kept: dict[str, _Kept] = {}
        self._unnamed = 0
        self._limits = KeyedWindows(world, self.name, (2, 1))

    def read(self, request: Request, path: str) -> ReceivedCall | Question | Reply:
        """Returns a message to send, or its refusal."""
        if not request.field("user-agent"):
            return Reply(b"error code: 1010", 403, [("Content-Type", "text/plain")])
        try:
            self._check_login(request)
            if self._limits.over(self.name):
                raise _Wrong("rate_limit_exceeded", "Too many requests.")
            if path != "/emails":
                raise _Wrong("not_found", "The requested endpoint does not exist.")
            if request.method != "POST":
                raise _Wrong("method_not_allowed", "Method is not allowed for the requested path.")
            key = self._key(request)
            to = _checked(_parsed(request.body))
            self._check_repeat(key, _digest(request.body))
        except _Wrong as exc:
            return _error(exc.code, str(exc))
        return ReceivedCall([Recipient(one) for one in to], key)

    def provider_id(self, seq: int) -> str:
        """Returns a UUID, as Resend's ids are."""
        return str(uuid5(NAMESPACE_URL, f"resend:{seq}"))

    def known(self, send: ReceivedCall, recipient: Recipient) -> str | None:
        """Returns the id of a key's first answer within its window; else None."""
        kept = self._within(send.id)
        return kept.ids.get(recipient.receiver) if kept else None

    def accepted(self, record: LedgerRecord) -> None:
        """Remembers the key."""
        kept = self._kept.get(record.id)
        if kept is None or kept.digest != record.digest:
            kept = self._kept[record.id] = _Kept(record.at_ms, record.digest, {})
        kept.ids[record.receiver] = record.provider_id

    def reply(self, send: ReceivedCall, verdicts: Sequence[Verdict]) -> Reply:
        """Answers for the message, not for receivers: the first one's error is the call's."""
        refused = [verdict.code for verdict in verdicts if verdict.code]
        if refused:
            return self.refuse(refused[0])
        return Reply(json.dumps({"id": verdicts[0].provider_id}).encode())

    def refuse(self, code: str) -> Reply:
        """Returns an error with its documented status."""
        return _error(code, f"{code}, as a rule of the simulator wants it.")

    def _check_login(self, request: Request) -> None:
        scheme, _, key = request.field("authorization").partition(" ")
        if scheme != "Bearer" or not key:
            raise _Wrong("missing_api_key", "Missing API key in the authorization header.")
        wanted = self.world.credential(self.name, "api_key")
        if not compare_digest(key.encode(), wanted.encode()):
            self.world.count("resend.keys_refused")
            raise _Wrong("invalid_api_key", "API key is invalid.")

    def _key(self, request: Request) -> str:
        """Returns the idempotency key; a unique name of our own if there is none."""
        if not any(name.lower() == b"idempotency-key" for name, _ in request.fields):
            self._unnamed += 1
            return f"unnamed-{self.world.now_ms()}-{self._unnamed}"
        if not 0 < len(request.key) <= _MAX_KEY:
            raise _Wrong("invalid_idempotency_key", "The key must be between 1-256 chars.")
        return request.key

    def _check_repeat(self, key: str, digest: str) -> None:
        kept = self._within(key)
        if kept and kept.digest != digest:
            raise _Wrong(
                "invalid_idempotent_request",
                "Same idempotency key used with a different request payload.",
            )

    def _within(self, key: str) -> _Kept | None:
        kept = self._kept.get(key)
        return kept if kept and self.world.now_ms() - kept.at_ms < _WINDOW_MS else None


def _parsed(body: bytes) -> dict[str, Any]:
    if len(body) > _MAX_BYTES:
        raise _Wrong("validation_error", "The email is larger than 40 MB.")
    try:
        found = json.loads(body)
    except ValueError as exc:
        raise _Wrong("validation_error", "The request body is not valid JSON.") from exc
    if not isinstance(found, dict):
        raise _Wrong("validation_error", "The request body must be an object.")
    return found


def _checked(mail: dict[str, Any]) -> list[str]:
    """Returns the addresses in `to`. Raises _Wrong with the first fault of the mail."""
    template = mail.get("template")
    needed = ("from", "to") if template else ("from", "to", "subject")
    missing = [name for name in needed if not mail.get(name)]
    if missing:
        raise _Wrong("missing_required_field", f"Missing `{missing[0]}` field.")
    if not (isinstance(mail["from"], str) and _ADDRESS.fullmatch(mail["from"])):
        raise _Wrong("invalid_from_address", "Invalid `from` field.")
    if not template and not (mail.get("html") or mail.get("text")):
        raise _Wrong("missing_required_field", "Missing `html` or `text` field.")
    if template:
        _check_template(mail, template)
    for one in mail.get("attachments", []):
        if not (isinstance(one, dict) and (one.get("content") or one.get("path"))):
            raise _Wrong("invalid_attachment", "Attachment must have either a content or path.")
    for name in ("cc", "bcc", "reply_to"):
        _addresses(name, mail.get(name, []))
    return _addresses("to", mail["to"])


def _check_template(mail: dict[str, Any], template: object) -> None:
    if not isinstance(template, dict) or not isinstance(template.get("id"), str):
        raise _Wrong("validation_error", "The template needs an id.")
    if mail.get("html") or mail.get("text"):
        raise _Wrong("validation_error", "html and text cannot be sent with a template.")
    variables = template.get("variables", {})
    plain = isinstance(variables, dict) and all(
        isinstance(value, str | int | float) and not isinstance(value, bool)
        for value in variables.values()
    )
    if not plain:
        raise _Wrong("validation_error", "Variables are strings and numbers.")


def _addresses(name: str, given: object) -> list[str]:
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, list) or len(found) > _MAX_TO:
        raise _Wrong("validation_error", f"The `{name}` field takes up to {_MAX_TO} addresses.")
    if not all(isinstance(one, str) and _ADDRESS.fullmatch(one) for one in found):
        raise _Wrong("validation_error", f"Invalid `{name}` field.")
    return found


def _digest(body: bytes) -> str:
    return sha256(body).hexdigest()[:_DIGEST]


def _error(code: str, message: str) -> Reply:
    status = _STATUS.get(code, 400)
    body = json.dumps({"statusCode": status, "name": code, "message": message})
    return Reply(body.encode(), status, _LIMITS if code == "rate_limit_exceeded" else ())


PROTOCOLS = (ResendProtocol,)
