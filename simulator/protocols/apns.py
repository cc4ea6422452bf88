"""Apple Push Notification service: `POST /3/device/<token>` over HTTP/2.

Checked as the provider does: HTTP/2, the provider token's signature, key, team and age, one key a
connection, new tokens no more than once in 20 minutes, topic, push type, priority, expiration, collapse id,
apns-id, the device token's form, 4,096 bytes of payload (5,120 for VoIP), a burst of notifications to one
device. Credentials: `team_id`, `key_ids` (separated by commas), `public_key` (both coordinates,
hexadecimal), `topic`. The key that belongs to the default is in tests/conformance/samples/apns.py.

Apple names no number for "too many requests for the same device token": here it is three in a second.

Sources, read 2026-11-22: Apple, "Sending notification requests to APNs", "Handling notification responses
from APNs", "Establishing a token-based connection to APNs"
(https://developer.apple.com/documentation/usernotifications)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec

from simulator.protocols._es256 import verified
from simulator.protocols._json import json_object
from simulator.protocols._tokens import base64url
from simulator.protocols._windows import KeyedWindows
from simulator.servers.http_request import Request
from simulator.wire import (
    OneReceiver,
    ProtocolContext,
    Question,
    ReceivedCall,
    Recipient,
    Reply,
    Verdict,
)

_PUBLIC_KEY: Final = (
    "fb6a9ccbe1ea7b161fc1697f022adf002532f3dc5d79f27282df39cc305c74a4"
    "09aedb0229f183b0647033127b9b37d79ec023cc93609377b9a58270946bb3bc"
)
_TEAM: Final = "SIMULATOR0"
_KEYS: Final = "SIMULATOR1,SIMULATOR2"
_TOPIC: Final = "com.example.simulator"
_PATH: Final = "/3/device/"
_OLDEST_MS: Final = 3_600_000
_AHEAD_MS: Final = 300_000
_UPDATE_MS: Final = 1_200_000
_BURST: Final = (3, 1)
_MAX_BYTES: Final = 4_096
_MAX_VOIP_BYTES: Final = 5_120
_MAX_COLLAPSE: Final = 64
_GONE_MS: Final = 86_400_000
_DEVICE = re.compile(r"(?:[0-9a-fA-F]{2}){16,100}")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"[0-9]{1,18}")
_TYPES: Final[Mapping[str, str]] = {
    "alert": "",
    "background": "",
    "controls": ".push-type.controls",
    "location": ".location-query",
    "voip": ".voip",
    "complication": ".complication",
    "fileprovider": ".pushkit.fileprovider",
    "mdm": "",
    "liveactivity": ".push-type.liveactivity",
    "pushtotalk": ".voip-ptt",
    "widgets": ".push-type.widgets",
}
"""Push types, and the endings of their topics."""
_STATUSES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("BadCertificate", "BadCertificateEnvironment"), 403),
    **dict.fromkeys(("BadEnvironmentKeyIdInToken", "UnrelatedKeyIdInToken"), 403),
    **dict.fromkeys(("ExpiredProviderToken", "InvalidProviderToken", "MissingProviderToken"), 403),
    "Forbidden": 403,
    "BadPath": 404,
    "MethodNotAllowed": 405,
    **dict.fromkeys(("ExpiredToken", "Unregistered"), 410),
    "PayloadTooLarge": 413,
    **dict.fromkeys(("TooManyProviderTokenUpdates", "TooManyRequests"), 429),
    "InternalServerError": 500,
    **dict.fromkeys(("ServiceUnavailable", "Shutdown"), 503),
}
"""HTTP statuses of reasons; the others are 400."""


class Apns(OneReceiver):
    """Its state is the provider tokens that it saw."""

    name = "apns"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._bursts = KeyedWindows(world, self.name, _BURST)
        self._limited = world.behaviour(self.name, "limits", "on") == "on"
        self._tokens: dict[str, tuple[str, int, int]] = {}
        """Tokens that were good when first seen: key id, issued at (ms), generation."""
        self._new_at_ms: dict[str, int] = {}
        """Time at which a team's newest token was first seen."""
        self._keys: WeakKeyDictionary[object, str] = WeakKeyDictionary()
        """The key of each connection's first push."""

    def read(self, request: Request, path: str) -> ReceivedCall | Question | Reply:
        """Serves one path; any other is 404."""
        if request.version != "2":
            return Reply(b"", 505)
        checks: Sequence[Callable[[Request, str], str]] = (
            self._wrong_target,
            self._wrong_login,
            self._wrong_fields,
            self._wrong_payload,
            self._too_many,
        )
        for check in checks:
            if reason := check(request, path):
                return self.refuse(reason)
        device = path.removeprefix(_PATH)
        name = request.field("apns-id") or str(UUID(int=self.world.now_ms()))
        return ReceivedCall([Recipient(device, f"{self.name}:{name}")], name)

    def taken(self, send: ReceivedCall, verdict: Verdict) -> Reply:
        """Returns an empty body, and the notification's id in a field."""
        return Reply(b"", 200, [("apns-id", send.id)])

    def refuse(self, code: str) -> Reply:
        """Returns an error with its reason's status; 410 says since when."""
        status = _STATUSES.get(code, 400)
        body: dict[str, Any] = {"reason": code}
        if status == 410:
            body["timestamp"] = self.world.now_ms() - _GONE_MS
        return Reply(msgspec.json.encode(body), status)

    def _wrong_target(self, request: Request, path: str) -> str:
        if request.method != "POST":
            return "MethodNotAllowed"
        if not path.startswith(_PATH):
            return "BadPath"
        device = path.removeprefix(_PATH)
        if not device:
            return "MissingDeviceToken"
        return "" if _DEVICE.fullmatch(device) else "BadDeviceToken"

    def _wrong_login(self, request: Request, path: str) -> str:
        scheme, _, token = request.field("authorization").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return "MissingProviderToken"
        if reason := self._wrong_token(token):
            self.world.count(f"{self.name}.tokens_refused")
            return reason
        kid, _, _ = self._tokens[token]
        first = self._keys.setdefault(request.connection, kid) if request.connection else kid
        return "" if first == kid else "UnrelatedKeyIdInToken"

    def _wrong_token(self, token: str) -> str:
        now = self.world.now_ms()
        known = self._tokens.get(token)
        if known is None:
            kid, issued_ms = self._signed(token)
            if not kid or issued_ms > now + _AHEAD_MS:
                return "InvalidProviderToken"
            team = self.world.credential(self.name, "team_id", _TEAM)
            if issued_ms > now - _OLDEST_MS:
                if self._limited and now - self._new_at_ms.get(team, 0) < _UPDATE_MS:
                    return "TooManyProviderTokenUpdates"
                self._new_at_ms[team] = now
                self.world.count(f"new_tokens.{self.name}")
            known = self._tokens[token] = (kid, issued_ms, self.world.token_generation)
        _, issued_ms, generation = known
        fresh = issued_ms > now - _OLDEST_MS and generation == self.world.token_generation
        return "" if fresh else "ExpiredProviderToken"

    def _signed(self, token: str) -> tuple[str, int]:
        """Returns key id and time of issue, in milliseconds; no key id: it is no token of this team."""
        signed, _, signature = token.rpartition(".")
        try:
            header, claims = (msgspec.json.decode(base64url(part)) for part in signed.split("."))
            given, kid, issued = base64url(signature), header["kid"], claims["iat"]
            good = header["alg"] == "ES256" and isinstance(issued, int)
            issuer = claims["iss"]
        except (ValueError, TypeError, KeyError, msgspec.DecodeError):
            return "", 0
        credential = self.world.credential
        keys = credential(self.name, "key_ids", _KEYS).split(",")
        if not good or kid not in keys or issuer != credential(self.name, "team_id", _TEAM):
            return "", 0
        key = credential(self.name, "public_key", _PUBLIC_KEY)
        point = int(key[:64], 16), int(key[64:], 16)
        return (kid, issued * 1_000) if verified(signed.encode(), given, point) else ("", 0)

    def _wrong_fields(self, request: Request, path: str) -> str:
        names = [name for name, _ in request.fields]
        if len(set(names)) != len(names):
            return "DuplicateHeaders"
        kind, name = request.field("apns-push-type"), request.field("apns-id")
        priority, ends = request.field("apns-priority") or "10", request.field("apns-expiration")
        wrong = {
            "BadMessageId": name and not _ID.fullmatch(name),
            "MissingTopic": not request.field("apns-topic"),
            "InvalidPushType": kind not in _TYPES,
            "TopicDisallowed": request.field("apns-topic") != self._topic(kind),
            "BadPriority": priority not in ("1", "5", "10")
            or (kind == "background" and priority == "10"),
            "BadExpirationDate": ends and not _NUMBER.fullmatch(ends),
            "BadCollapseId": len(request.field("apns-collapse-id")) > _MAX_COLLAPSE,
        }
        return next((reason for reason, found in wrong.items() if found), "")

    def _topic(self, kind: str) -> str:
        return self.world.credential(self.name, "topic", _TOPIC) + _TYPES.get(kind, "")

    def _wrong_payload(self, request: Request, path: str) -> str:
        voip = request.field("apns-push-type") == "voip"
        if len(request.body) > (_MAX_VOIP_BYTES if voip else _MAX_BYTES):
            return "PayloadTooLarge"
        return "" if json_object(request.body) else "PayloadEmpty"

    def _too_many(self, request: Request, path: str) -> str:
        return "TooManyRequests" if self._bursts.over(path) else ""


PROTOCOLS = (Apns,)
