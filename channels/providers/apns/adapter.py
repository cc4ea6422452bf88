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
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import ClassVar, Final

import httpx
import msgspec

from channels.accounts.reach import PERSONS, Reach, wrong_receiver
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
from channels.providers.apns.message import PROVIDER, names_topic, read, worded
from channels.providers.apns.token_source import ApnsOptions, ApnsTokens
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Limit, Rejected, Unknown

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
    codes.rejected("BadCollapseId", "the collapse id is too long"),
    codes.rejected("BadDeviceToken", "the device token is not valid, or of the other environment"),
    codes.rejected("BadExpirationDate", "apns-expiration is not valid"),
    codes.rejected("BadMessageId", "apns-id is not valid"),
    codes.rejected("BadPriority", "apns-priority is not valid"),
    codes.account_fault("BadTopic", "apns-topic is not valid", HOUR),
    codes.rejected("DeviceTokenNotForTopic", "the device token is another application's"),
    codes.rejected("DuplicateHeaders", "a header field stands twice"),
    codes.not_sent("IdleTimeout", "the connection was idle for too long", _SECOND),
    codes.rejected("InvalidPushType", "apns-push-type is not valid"),
    codes.rejected("MissingDeviceToken", "the path names no device"),
    codes.account_fault("MissingTopic", "apns-topic is missing", HOUR),
    codes.rejected("PayloadEmpty", "the payload is empty"),
    codes.account_fault("TopicDisallowed", "the key may not push to this topic", HOUR),
)
_FORBIDDEN: Final = (
    codes.shut_out("BadCertificate", "the certificate is bad", HOUR),
    codes.shut_out(
        "BadCertificateEnvironment", "the certificate is of the other environment", HOUR
    ),
    codes.shut_out("BadEnvironmentKeyIdInToken", "the key is of the other environment", HOUR),
    codes.account_fault(_EXPIRED, "the provider token is older than an hour"),
    codes.rejected("Forbidden", "the action is not allowed"),
    codes.shut_out("InvalidProviderToken", "the provider token is not valid", HOUR),
    codes.shut_out("MissingProviderToken", "there is no provider token", HOUR),
    codes.not_sent("UnrelatedKeyIdInToken", "the connection began with another key", MINUTE),
)
_OTHERS: Final = {
    HTTPStatus.NOT_FOUND: (codes.account_fault("BadPath", "no such address", HOUR),),
    HTTPStatus.METHOD_NOT_ALLOWED: (
        codes.account_fault("MethodNotAllowed", "the address takes no POST", HOUR),
    ),
    HTTPStatus.GONE: (
        codes.rejected("ExpiredToken", "the device token has expired"),
        codes.rejected("Unregistered", "the application is no longer on this device"),
    ),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: (
        codes.rejected("PayloadTooLarge", "the payload is too large"),
    ),
    HTTPStatus.TOO_MANY_REQUESTS: (
        codes.paced(
            "TooManyProviderTokenUpdates",
            Limit.ACCOUNT,
            "another provider token came within 20 minutes",
            20 * MINUTE,
        ),
        codes.paced("TooManyRequests", Limit.RECEIVER, "too many to this device in a row", MINUTE),
    ),
    HTTPStatus.INTERNAL_SERVER_ERROR: (codes.unknown("InternalServerError", "an internal error"),),
    HTTPStatus.SERVICE_UNAVAILABLE: (
        codes.unknown("ServiceUnavailable", "the service is not available"),
        codes.unknown("Shutdown", "the server is shutting down"),
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


class ApnsChannel(ClockedChannel):
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
        codes.documented(_RESPONSES, *(row for rows in _BY_STATUS.values() for row in rows))
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

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Refuses a receiver that is no device token, and a content that Apple cannot send."""
        if wrong := wrong_receiver(account, self.channel, delivery.receiver):
            return wrong
        if not _DEVICE.fullmatch(delivery.receiver):
            return "bad_receiver: give a device token, 32 to 200 hexadecimal digits"
        try:
            read(delivery)
        except UNSENDABLE as exc:
            return reason_of(exc)
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
            detail = "a reason that Apple does not document, about the key or the certificate"
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
