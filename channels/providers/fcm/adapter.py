"""Firebase Cloud Messaging, HTTP v1: one device, or one topic, a call.

    POST <endpoint>/v1/projects/<project_id>/messages:send                  Authorization: Bearer ya29.…
    {"message": {"token": "…", "notification": {…}, "data": {…}, "android": {…}, "apns": {…}, …}}
    {"name": "projects/<project_id>/messages/0:1500415314455276%31bd1c9631bd1c96"}

    {"error": {"code": 404, "message": "…", "status": "NOT_FOUND", "details": [
        {"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": "UNREGISTERED"}]}}

A receiver is a registration token, or `/topics/<name>`. `content`: channels/providers/fcm/message.py.
Tokens: channels/providers/fcm/token_source.py.

The FcmError in `details` decides, else the canonical `status`. QUOTA_EXCEEDED stands for three limits: of
the project, of a device and of a topic. A QuotaFailure in `details` tells which. It is read as the
project's, unless all violations name a device or a topic. Without any violation the message may name one
("Topic quota exceeded.", binwiederhier/ntfy#289, read 2026-11-28). There is no idempotency and no query; a
repeat replaces the first on the device. A 503, even with Retry-After, may come after FCM accepted the
message: "the server couldn't process the request in time".

In Google's own SDK 404 has one meaning, with an FcmError and without: the token is no longer registered
(firebase-admin-python 2 and 3, messaging.py: `NOT_FOUND` is registration-token-not-registered). A missing
project, or one of another key, answers 403.

Sources: https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages/send,
https://firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode,
https://firebase.google.com/docs/cloud-messaging/error-codes
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final
from urllib.parse import quote

import httpx
import msgspec

from channels.accounts.reach import EVERYBODY, Reach
from channels.bad_content import UNSENDABLE, reason_of
from channels.base import ClockedChannel
from channels.capabilities import Capabilities
from channels.channel import Account, Answer, Call, Failure, TokenSource
from channels.endpoints import below, endpoint_url
from channels.http_client.request import extensions_of, fields_of, post_json
from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
from channels.judging.foreign_json import decoded
from channels.judging.outcomes import CONTRADICTION, for_all, of_failure, refusal
from channels.judging.retry_after import retry_after_ms
from channels.providers.fcm.message import PROVIDER, message, read
from channels.providers.fcm.token_source import ENDPOINT, FcmOptions, FcmTokens
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Unknown

_TOPIC = re.compile(r"/topics/[a-zA-Z0-9\-_.~%]{1,900}", re.ASCII)
_TOKEN = re.compile(r"[a-zA-Z0-9:_\-]+", re.ASCII)
_FCM_ERROR: Final = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
_QUOTA_FAILURE: Final = "type.googleapis.com/google.rpc.QuotaFailure"
_TARGET = re.compile(r"\b(?:device|topic)s?\b", re.ASCII | re.IGNORECASE)
_UNAUTHENTICATED: Final = "UNAUTHENTICATED"
_MAX_DETAIL: Final = 200

_CODES: Final = RowSource(
    "https://firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode", "2026-11-22"
)
_CANONICAL: Final = RowSource(
    "https://cloud.google.com/apis/design/errors",
    "2026-11-22",
    copy="firebase-admin 7.7.0 (PyPI), exceptions.py, which has its codes",
)
_ADMIN: Final = RowSource(
    "https://github.com/firebase/firebase-admin-python",
    "2026-11-22",
    copy="firebase-admin 7.7.0 (PyPI), messaging.py",
)

_ERRORS: Final = ErrorTable(
    codes.documented(
        _CODES,
        codes.unknown("UNSPECIFIED_ERROR", "no more is known of this error"),
        codes.rejected("INVALID_ARGUMENT", "a token, a key, a size or a parameter is not valid"),
        codes.rejected("UNREGISTERED", "the application is no longer on this device"),
        codes.rejected("SENDER_ID_MISMATCH", "the token is of another sender"),
        codes.paced(
            "QUOTA_EXCEEDED",
            Limit.ACCOUNT,
            "more messages than allowed; pace: receiver if the answer names a device or topic",
            MINUTE,
        ),
        codes.unknown("UNAVAILABLE", "overloaded: the message was not taken on in time"),
        codes.unknown("INTERNAL", "an internal error"),
        # About iOS and web alone: the account still reaches Android, so its breaker stays shut.
        codes.not_sent("THIRD_PARTY_AUTH_ERROR", "the APNs or web push key is refused", HOUR),
    ),
    # The older name of the error above; Google's SDKs still read it (firebase-admin 6, messaging.py).
    codes.documented(_ADMIN, codes.not_sent("APNS_AUTH_ERROR", "the APNs key is refused", HOUR)),
    codes.documented(
        _CANONICAL,
        codes.account_fault(_UNAUTHENTICATED, "the access token is not valid"),
        codes.shut_out("PERMISSION_DENIED", "the account lacks a permission", HOUR),
        codes.rejected("NOT_FOUND", "the token is not registered any more"),
        codes.paced("RESOURCE_EXHAUSTED", Limit.ACCOUNT, "more calls than allowed", MINUTE),
        codes.rejected("FAILED_PRECONDITION", "the message cannot be sent as it is"),
        codes.rejected("OUT_OF_RANGE", "a parameter is out of its range"),
        codes.unknown("ABORTED", "two requests met"),
        codes.unknown("DEADLINE_EXCEEDED", "the time was over before the answer"),
        codes.unknown("CANCELLED", "the call was cancelled"),
        codes.unknown("DATA_LOSS", "data was lost"),
        codes.unknown("UNKNOWN", "an error of another system"),
    ),
)


class _Body(msgspec.Struct):
    message: dict[str, Any]


class _Detail(msgspec.Struct):
    type: str = msgspec.field(name="@type", default="")
    error_code: str = msgspec.field(name="errorCode", default="")
    violations: Any = None
    """Of a QuotaFailure; other details may have a field of this name."""

    def quotas(self) -> list[str]:
        """Returns the subject and description of each violation of a quota."""
        if self.type != _QUOTA_FAILURE or not isinstance(self.violations, list):
            return []
        found = [one for one in self.violations if isinstance(one, dict)]
        return [f"{one.get('subject', '')} {one.get('description', '')}" for one in found]


class _Error(msgspec.Struct):
    status: str = ""
    message: str = ""
    details: list[_Detail] = []

    @property
    def code(self) -> str:
        """FCM's own code, else the canonical one."""
        own = (detail.error_code for detail in self.details if detail.type == _FCM_ERROR)
        return next((code for code in own if code), self.status)

    def is_of_receiver(self, project: str) -> bool:
        """Returns whether every quota that was exceeded is a device's or a topic's. `project` is our own
        name, which may hold such a word."""
        texts = [text for one in self.details for text in one.quotas()] or [self.message]
        return all(_TARGET.search(text.replace(project, "")) for text in texts)


class _Answered(msgspec.Struct):
    name: str = ""
    error: _Error | None = None


_decoder = msgspec.json.Decoder(_Answered)


class FcmChannel(ClockedChannel):
    """Stateless but for a clock."""

    provider: ClassVar[str] = PROVIDER
    channel: ClassVar[str] = "push"
    options: ClassVar[type[msgspec.Struct]] = FcmOptions
    endpoint: ClassVar[str] = ENDPOINT
    tokens: ClassVar[TokenSource | None] = FcmTokens()
    reach: ClassVar[Reach] = EVERYBODY
    counted_by: ClassVar[Sequence[str]] = ("project_id",)
    errors: ClassVar[ErrorTable] = _ERRORS
    promises: ClassVar[Capabilities] = Capabilities(
        title="Firebase Cloud Messaging (HTTP v1)",
        idempotency="none; a repeated notification replaces the first on the device, by the call key",
        receipts="none over HTTP; the provider exports deliveries to BigQuery",
        limits="one device or topic a call; 600,000 messages a minute; 4,096 bytes",
        source=(
            "https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages/send",
            "https://firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode",
            "https://firebase.google.com/docs/cloud-messaging/throttling-and-quotas",
        ),
    )

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Refuses a receiver that is neither token nor topic, and a content that FCM cannot send."""
        receiver = delivery.receiver
        if not (_TOPIC if receiver.startswith("/") else _TOKEN).fullmatch(receiver):
            return "bad_receiver: give a registration token, or /topics/ and a topic's name"
        try:
            read(delivery)
            msgspec.json.encode(delivery.content_for(PROVIDER))
        except UNSENDABLE as exc:
            return reason_of(exc)
        return ""

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST of the call's one delivery."""
        (delivery,) = call.deliveries
        account = call.account
        url = _address(account.endpoint, account.options.project_id)
        fields = [
            *fields_of(url),
            (b"Authorization", b"Bearer " + call.token.encode("latin-1")),
        ]
        body = msgspec.json.encode(_Body(message(delivery, call.key, self._now())))
        return post_json(url, fields, body, extensions_of(account))

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns the outcome of the call's one delivery."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        reply = _read(answer)
        if reply is not None and reply.error is not None and reply.error.code:
            return for_all(call, self._refused(call, reply.error, answer))
        outcome = refusal(answer, self._now())
        if outcome is not None and reply is not None and reply.name:
            outcome = CONTRADICTION
        if outcome is None and (reply is None or not reply.name):
            outcome = Unknown("malformed_answer", "an answer without the message's name")
        return for_all(call, outcome or Accepted(reply.name if reply is not None else ""))

    def token_refused(self, answer: httpx.Response) -> bool:
        """Returns whether the access token was refused. FCM's own 401 is about the device makers' keys."""
        reply = _read(answer)
        return (
            reply is not None and reply.error is not None and reply.error.code == _UNAUTHENTICATED
        )

    def _refused(self, call: Call, error: _Error, answer: httpx.Response) -> AnyOutcome:
        detail = error.message[:_MAX_DETAIL]
        wait_ms = retry_after_ms(answer.headers, self._now())
        outcome = self.errors.outcome(error.code, detail, wait_ms, status=answer.status_code)
        paces = isinstance(outcome, NotSent) and outcome.limit is Limit.ACCOUNT
        if paces and error.is_of_receiver(call.account.options.project_id):
            return msgspec.structs.replace(outcome, limit=Limit.RECEIVER)
        return outcome


@lru_cache(maxsize=256)
def _address(endpoint: str, project: str) -> httpx.URL:
    path = f"v1/projects/{quote(project, safe='')}/messages:send"
    return below(endpoint_url(endpoint), path)


def _read(answer: httpx.Response) -> _Answered | None:
    return decoded(_decoder.decode, answer.content)


CHANNELS = (FcmChannel(),)
