"""Apple Push Notification service, token-based: one device a call, over HTTP/2.

    POST <endpoint>/3/device/<device token>
    authorization: bearer <provider token>     apns-id: <uuid>     apns-topic: <bundle id>     …
    {"aps": {"alert": {"title": "…", "body": "…"}}, …}

    200   apns-id: <the same uuid>              and no body
    410   {"reason": "Unregistered", "timestamp": 1762000000000}

A receiver is a device token, in hexadecimal. Contents: channels/providers/apns/message.py. Provider
tokens: channels/providers/apns/token_source.py. The sandbox is the endpoint https://api.sandbox.push.apple.com.

`apns-id` is the call's key as a UUID, the same for every attempt. Apple documents it as a name in answers
and in its delivery log. The effect of a second request is not documented, and there is no query. So the
policy decides on an attempt in doubt. `apns-collapse-id` makes a repeat replace the first in the device's
list, if it is still there. The device shows and sounds it again: both were delivered. 200 means that Apple
has the notification, not that the device has it.

The reason under its status decides. 5xx is in doubt: Apple may have acted before it. A refusal of an
expired provider token sent nothing: the token is signed anew and the call repeated once. Wrong topics halt
the account, unless the content names its own.

Sources, read 2026-11-22: "Sending notification requests to APNs", "Handling notification responses from
APNs", "Troubleshooting push notifications" (https://developer.apple.com/documentation/usernotifications)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from http import HTTPStatus
from time import time
from typing import ClassVar, Final

import httpx
import msgspec

from channels.accounts.reach import PERSONS, Reach, wrong_receiver
from channels.bad_content import BadContent
from channels.base import BaseChannel
from channels.capabilities import Capabilities
from channels.channel import Account, Answer, Call, Failure, TokenSource
from channels.endpoints import below, endpoint_url
from channels.http_client.request import extensions_of, fields_of, post_json
from channels.judging.error_table import (
    HOUR,
    MINUTE,
    ErrorRow,
    ErrorTable,
    RowSource,
    documented,
    paced,
    shut_out,
)
from channels.judging.foreign_json import decoded
from channels.judging.outcomes import CONTRADICTION, for_all, of_failure, refusal
from channels.judging.retry_after import retry_after_ms
from channels.providers.apns.message import PROVIDER, names_topic, read, worded
from channels.providers.apns.token_source import ApnsOptions, ApnsTokens
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown

_DEVICE: Final = re.compile(r"(?:[0-9a-fA-F]{2}){16,100}")
_EXPIRED: Final = "ExpiredProviderToken"
_TOPICS: Final = frozenset({"BadTopic", "MissingTopic", "TopicDisallowed"})
_SECOND: Final = 1_000

_RESPONSES: Final = RowSource(
    "https://developer.apple.com/documentation/usernotifications/handling-notification-responses-from-apns",
    "2026-11-22",
    copy="the page's opening, and its reasons as docs.rs/a2 0.5.0 and other clients list them",
)

_BAD_REQUEST: Final = (
    ErrorRow("BadCollapseId", "rejected", "the collapse id is too long"),
    ErrorRow(
        "BadDeviceToken", "rejected", "the device token is not valid, or of the other environment"
    ),
    ErrorRow("BadExpirationDate", "rejected", "apns-expiration is not valid"),
    ErrorRow("BadMessageId", "rejected", "apns-id is not valid"),
    ErrorRow("BadPriority", "rejected", "apns-priority is not valid"),
    ErrorRow("BadTopic", "not_sent", "apns-topic is not valid", HOUR, account=True),
    ErrorRow("DeviceTokenNotForTopic", "rejected", "the device token is another application's"),
    ErrorRow("DuplicateHeaders", "rejected", "a header field stands twice"),
    ErrorRow("IdleTimeout", "not_sent", "the connection was idle for too long", _SECOND),
    ErrorRow("InvalidPushType", "rejected", "apns-push-type is not valid"),
    ErrorRow("MissingDeviceToken", "rejected", "the path names no device"),
    ErrorRow("MissingTopic", "not_sent", "apns-topic is missing", HOUR, account=True),
    ErrorRow("PayloadEmpty", "rejected", "the payload is empty"),
    ErrorRow(
        "TopicDisallowed", "not_sent", "the key may not push to this topic", HOUR, account=True
    ),
)
_FORBIDDEN: Final = (
    shut_out("BadCertificate", "the certificate is bad", HOUR),
    shut_out("BadCertificateEnvironment", "the certificate is of the other environment", HOUR),
    shut_out("BadEnvironmentKeyIdInToken", "the key is of the other environment", HOUR),
    ErrorRow(_EXPIRED, "not_sent", "the provider token is older than an hour", account=True),
    ErrorRow("Forbidden", "rejected", "the action is not allowed"),
    shut_out("InvalidProviderToken", "the provider token is not valid", HOUR),
    shut_out("MissingProviderToken", "there is no provider token", HOUR),
    ErrorRow("UnrelatedKeyIdInToken", "not_sent", "the connection began with another key", MINUTE),
)
_OTHERS: Final = {
    HTTPStatus.NOT_FOUND: (ErrorRow("BadPath", "not_sent", "no such address", HOUR, account=True),),
    HTTPStatus.METHOD_NOT_ALLOWED: (
        ErrorRow("MethodNotAllowed", "not_sent", "the address takes no POST", HOUR, account=True),
    ),
    HTTPStatus.GONE: (
        ErrorRow("ExpiredToken", "rejected", "the device token has expired"),
        ErrorRow("Unregistered", "rejected", "the application is no longer on this device"),
    ),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: (
        ErrorRow("PayloadTooLarge", "rejected", "the payload is too large"),
    ),
    HTTPStatus.TOO_MANY_REQUESTS: (
        paced(
            "TooManyProviderTokenUpdates",
            Limit.ACCOUNT,
            "another provider token came within 20 minutes",
            20 * MINUTE,
        ),
        paced("TooManyRequests", Limit.RECEIVER, "too many to this device in a row", MINUTE),
    ),
    HTTPStatus.INTERNAL_SERVER_ERROR: (
        ErrorRow("InternalServerError", "unknown", "an internal error"),
    ),
    HTTPStatus.SERVICE_UNAVAILABLE: (
        ErrorRow("ServiceUnavailable", "unknown", "the service is not available"),
        ErrorRow("Shutdown", "unknown", "the server is shutting down"),
    ),
}
_BY_STATUS: Final = {
    HTTPStatus.BAD_REQUEST: _BAD_REQUEST,
    HTTPStatus.FORBIDDEN: _FORBIDDEN,
    **_OTHERS,
}
_STATUSES: Final = {row.code: status for status, rows in _BY_STATUS.items() for row in rows}


class _Answered(msgspec.Struct):
    reason: str = ""
    timestamp: int = 0


_decoder = msgspec.json.Decoder(_Answered)


class ApnsChannel(BaseChannel):
    """Stateless but for a clock."""

    provider: ClassVar[str] = PROVIDER
    channel: ClassVar[str] = "push"
    options: ClassVar[type[msgspec.Struct]] = ApnsOptions
    endpoint: ClassVar[str] = "https://api.push.apple.com"
    http2: ClassVar[bool] = True
    tokens: ClassVar[TokenSource | None] = ApnsTokens()
    reach: ClassVar[Reach] = PERSONS
    counted_by: ClassVar[Sequence[str]] = ("team_id",)
    errors: ClassVar[ErrorTable] = ErrorTable(
        documented(_RESPONSES, *(row for rows in _BY_STATUS.values() for row in rows))
    )
    promises: ClassVar[Capabilities] = Capabilities(
        title="Apple Push Notification service (HTTP/2, token-based)",
        idempotency="none: apns-id is a name alone; a repeated alert replaces the first in the device's"
        " list, by apns-collapse-id, and is shown and heard again",
        receipts="none; accepted means that Apple has it, not the device",
        limits="one device a call; 4,096 bytes of payload, VoIP 5,120; one notification of an application"
        " is kept for a device that is away, at most 30 days",
        source=(
            "https://developer.apple.com/documentation/usernotifications/sending-notification-requests-to-apns",
            "https://developer.apple.com/documentation/usernotifications/handling-notification-responses-from-apns",
            "https://developer.apple.com/documentation/usernotifications/establishing-a-token-based-connection-to-apns",
        ),
    )

    def __init__(self, now: Callable[[], float] = time) -> None:
        self._now = now

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Refuses a receiver that is no device token, and a content that Apple cannot send."""
        if wrong := wrong_receiver(account, self.channel, delivery.receiver):
            return wrong
        if not _DEVICE.fullmatch(delivery.receiver):
            return "bad_receiver: give a device token, 32 to 200 hexadecimal digits"
        try:
            read(delivery)
        except BadContent as exc:
            return str(exc)
        except (UnicodeEncodeError, TypeError) as exc:
            return f"bad_content: cannot be written as JSON: {exc}"
        return ""

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST of the call's one delivery."""
        (delivery,) = call.deliveries
        account, options = call.account, call.account.options
        url = below(_address(account.endpoint), f"3/device/{delivery.receiver}")
        headers, payload = worded(delivery, options.topic, call.key, self._now())
        fields = [
            *fields_of(url),
            (b"authorization", b"bearer " + call.token.encode("latin-1")),
            (b"apns-id", _uuid(call.key).encode("ascii")),
            *((name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()),
        ]
        extensions = {"login": f"{options.team_id}:{options.key_id}"} | extensions_of(account)
        return post_json(url, fields, payload, extensions)

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns the outcome of the call's one delivery."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        reason = _read(answer).reason
        if answer.is_success:
            return for_all(call, CONTRADICTION if reason else self._taken(call, answer))
        if reason:
            return for_all(call, self._refused(call, answer))
        foreign = Unknown("malformed_answer", "an answer that is not Apple's")
        return for_all(call, refusal(answer, self._now()) or foreign)

    def token_refused(self, answer: httpx.Response) -> bool:
        """Returns whether the provider token was too old."""
        return answer.status_code == HTTPStatus.FORBIDDEN and _read(answer).reason == _EXPIRED

    def _taken(self, call: Call, answer: httpx.Response) -> AnyOutcome:
        """Returns Accepted only if a 200 repeats the notification's own id, else Unknown."""
        given = answer.headers.get("apns-id", "")
        if answer.status_code == HTTPStatus.OK and given.lower() == _uuid(call.key):
            return Accepted(given)
        return Unknown("malformed_answer", "an answer without the notification's apns-id")

    def _refused(self, call: Call, answer: httpx.Response) -> AnyOutcome:
        reply, status = _read(answer), answer.status_code
        if _STATUSES.get(reply.reason, status) // 100 != status // 100:
            return Unknown("contradiction", f"the reason {reply.reason} under status {status}")
        row = self.errors.row(reply.reason)
        detail = f"{row.meaning}{_since(reply.timestamp)}" if row is not None else ""
        if row is None and status == HTTPStatus.FORBIDDEN:  # Apple adds reasons about keys
            text = "a reason that Apple does not document, about the key or the certificate"
            return NotSent(reply.reason, text, HOUR, account=True)
        if reply.reason in _TOPICS and names_topic(call.deliveries[0]):
            return Rejected(reply.reason, f"{detail}; the content names it")
        wait_ms = retry_after_ms(answer.headers, self._now())
        return self.errors.outcome(reply.reason, detail, wait_ms, status=status)


def _since(timestamp: int) -> str:
    """Returns when Apple last found the device token not valid, as a clause; empty for 0."""
    return f"; Apple found so at {timestamp} (epoch milliseconds)" if timestamp else ""


def _uuid(key: str) -> str:
    """Returns a call's key, 32 hexadecimal digits, as a canonical UUID."""
    return f"{key[:8]}-{key[8:12]}-{key[12:16]}-{key[16:20]}-{key[20:]}".lower()


@lru_cache(maxsize=256)
def _address(endpoint: str) -> httpx.URL:
    return endpoint_url(endpoint)


def _read(answer: httpx.Response) -> _Answered:
    """Returns the answer's body; its reason is empty if Apple gave none."""
    return decoded(_decoder.decode, answer.content) or _Answered()


CHANNELS = (ApnsChannel(),)
