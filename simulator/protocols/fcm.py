"""Firebase Cloud Messaging: the token exchange and `messages:send`.

Checked as the provider does: the JWT's signature (RS256, written out here from RFC 8017 §8.2.2), its
issuer, scope, audience and times; the bearer token; the project; the message's fields and their types, its
4,096 bytes (half to a topic), exactly one target. Credentials: `project_id`, `client_email`, `modulus`
(the public key's, hexadecimal; the exponent is 65537). The key that belongs to the default is in
tests/conformance/samples/fcm.py.

Sources: https://developers.google.com/identity/protocols/oauth2/service-account#httprest,
https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec

from simulator.protocols._tokens import IssuedTokens, Standing, base64url
from simulator.servers.http_request import Request
from simulator.wire import (
    ID,
    OneReceiver,
    ProtocolContext,
    Question,
    ReceivedCall,
    Recipient,
    Reply,
    Verdict,
)

_MODULUS: Final = (
    "999711170241057eb625a34520630b35e38ac7faa2295ca151cdea9c8a1bb63ced7741af140209801c5ea9fd"
    "45afc78282e8c20bf1f81380233969c28da016c77a7e56b783d26086dc067a6305de9d08c28db4f9bc3b0e33"
    "b19fc4a89cacedc97d8989fdfb75962036ebb26cf2481d74640213d5b6701d403558e615e09e0b041e1df8d6"
    "1794471bd0fc7d32875ae97a89488fe6a220f0cbe015ccaa5ceb388eefb09c8d1564b41867c9de52fad985af"
    "adef43b298a945caa052c85428099edeef4fc32a39e1427f8dbb837ff05fe9178cf37076be4328d4a8075ad0"
    "2b3c933b381198efc7127af0e5712fecb7d11b807d08ca1a3cb6065b30a9574bf4b6d553"
)
_EXPONENT: Final = 65_537
_SHA256_INFO: Final = bytes.fromhex("3031300d060960864801650304020105000420")
"""DigestInfo of SHA-256 before the digest (RFC 8017 §9.2, note 1)."""
_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_AUDIENCE: Final = "https://oauth2.googleapis.com/token"
_SCOPE: Final = "https://www.googleapis.com/auth/firebase.messaging"
_MAX_LIFE_S: Final = 3_600
_SKEW_S: Final = 300
_MS: Final = 1_000
_PREFIX: Final = "ya29."
_MAX_BYTES: Final = 4_096
_FCM_ERROR: Final = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
_STATUSES: Final[Mapping[str, tuple[int, str]]] = {
    "UNSPECIFIED_ERROR": (500, "UNKNOWN"),
    "INVALID_ARGUMENT": (400, "INVALID_ARGUMENT"),
    "UNREGISTERED": (404, "NOT_FOUND"),
    "SENDER_ID_MISMATCH": (403, "PERMISSION_DENIED"),
    "QUOTA_EXCEEDED": (429, "RESOURCE_EXHAUSTED"),
    "UNAVAILABLE": (503, "UNAVAILABLE"),
    "INTERNAL": (500, "INTERNAL"),
    "THIRD_PARTY_AUTH_ERROR": (401, "UNAUTHENTICATED"),
}
"""FCM's own errors: the HTTP status, the canonical one."""
_CANONICAL: Final = {
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
}
_TARGETS: Final = frozenset({"token", "topic", "condition"})
_OBJECTS: Final = frozenset({"notification", "data", "android", "apns", "webpush", "fcm_options"})
_TTL = re.compile(r"[0-9]+(\.[0-9]{1,9})?s", re.ASCII)


class Fcm(OneReceiver):
    """Its state is the tokens it gave."""

    name = "fcm"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        # Google gives a new token each time; to a sender it makes no difference.
        self._tokens = IssuedTokens(world, self.name)

    def read(self, request: Request, path: str) -> ReceivedCall | Question | Reply:
        """Serves two paths; any other is 404."""
        project = self.world.credential(self.name, "project_id", ID)
        if path == "/token" and request.method == "POST":
            return self._token(request)
        if path == f"/v1/projects/{project}/messages:send" and request.method == "POST":
            return self._refused(request) or self._message(request)
        return _canonical("NOT_FOUND", "Requested entity was not found.")

    def provider_id(self, seq: int) -> str:
        """Returns an id in the provider's form."""
        return f"projects/{self.world.credential(self.name, 'project_id', ID)}/messages/0:{seq}%sim"

    def taken(self, send: ReceivedCall, verdict: Verdict) -> Reply:
        """Returns the answer for the one target of a call."""
        return Reply(msgspec.json.encode({"name": verdict.provider_id}))

    def refuse(self, code: str) -> Reply:
        """Returns an error; FCM's own codes are in the details."""
        if code not in _STATUSES:
            return _canonical(code, f"error {code}")
        status, canonical = _STATUSES[code]
        details = [{"@type": _FCM_ERROR, "errorCode": code}]
        return _error(status, canonical, f"error {code}", details)

    def _token(self, request: Request) -> Question | Reply:
        form = parse_qs(request.body.decode("latin-1"))
        if form.get("grant_type", [""])[0] != _GRANT:
            return _no_token("unsupported_grant_type", "Invalid grant_type")
        problem = self._jwt_refused(form.get("assertion", [""])[0])
        if problem:
            self.world.count(f"{self.name}.signatures_refused")
            return _no_token("invalid_grant", problem)
        return Question("TOKEN", self._give)

    def _give(self) -> Reply:
        token, seconds = self._tokens.give()
        given = {"access_token": _PREFIX + token, "expires_in": seconds, "token_type": "Bearer"}
        return Reply(msgspec.json.encode(given))

    def _jwt_refused(self, assertion: str) -> str:
        """Returns why the JWT is refused; empty: it is good."""
        signed, _, signature = assertion.rpartition(".")
        try:
            header, claims = (msgspec.json.decode(base64url(part)) for part in signed.split("."))
            given = base64url(signature)
        except (ValueError, msgspec.DecodeError):
            return "Invalid JWT: malformed"
        if not isinstance(claims, dict) or header.get("alg") != "RS256":
            return "Invalid JWT: alg must be RS256"
        modulus = int(self.world.credential(self.name, "modulus", _MODULUS), 16)
        if not _verified(signed.encode(), given, modulus):
            return "Invalid JWT Signature."
        return self._claims_refused(claims)

    def _claims_refused(self, claims: Mapping[str, Any]) -> str:
        email = f"{ID}@simulator.example"
        if claims.get("iss") != self.world.credential(self.name, "client_email", email):
            return "Invalid grant: account not found"
        if claims.get("aud") != _AUDIENCE or claims.get("scope") != _SCOPE:
            return "Invalid JWT: audience or scope"
        now_s, begins, ends = self.world.now_ms() / _MS, claims.get("iat"), claims.get("exp")
        if not isinstance(begins, int) or not isinstance(ends, int):
            return "Invalid JWT: iat and exp must be numbers"
        timely = begins - _SKEW_S <= now_s < ends and ends - begins <= _MAX_LIFE_S
        return "" if timely else "Invalid JWT: Token must be a short-lived token"

    def _refused(self, request: Request) -> Reply | None:
        scheme, _, token = request.field("authorization").partition(" ")
        standing = self._tokens.standing(token.removeprefix(_PREFIX))
        if scheme == "Bearer" and token.startswith(_PREFIX) and standing is Standing.GOOD:
            return None
        return _canonical("UNAUTHENTICATED", "Request had invalid authentication credentials.")

    def _message(self, request: Request) -> ReceivedCall | Reply:
        try:
            body = msgspec.json.decode(request.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _invalid("Invalid JSON payload received.")
        message = body.get("message") if isinstance(body, dict) else None
        if not isinstance(message, dict):
            return _invalid("Recipient of the message is not set.")
        targets = [name for name in _TARGETS if message.get(name)]
        if len(targets) != 1:
            return _invalid("Recipient of the message is not set.")
        if problem := _problem(message):
            return _invalid(problem)
        receiver = str(message[targets[0]])
        return ReceivedCall([Recipient(receiver)], _name(message))


def _problem(message: Mapping[str, Any]) -> str:
    """Returns the fault of a message; empty: none."""
    if unknown := set(message) - _TARGETS - _OBJECTS:
        return f"Invalid JSON payload received. Unknown name {min(unknown)!r} at 'message'"
    if any(not isinstance(message.get(name, {}), dict) for name in _OBJECTS):
        return "Invalid value at 'message'"
    data = message.get("data", {})
    if not all(isinstance(value, str) for value in data.values()):
        return "Invalid value at 'message.data[0].value' (TYPE_STRING)"
    if any(key == "from" or key.startswith(("google.", "gcm.")) for key in data):
        return "Invalid data payload key"
    if not _TTL.fullmatch(str(message.get("android", {}).get("ttl", "0s"))):
        return "Invalid value at 'message.android.ttl'"
    size = len(msgspec.json.encode((message.get("notification"), data or None)))
    limit = _MAX_BYTES // 2 if "topic" in message else _MAX_BYTES
    return "Message too big" if size > limit else ""


def _name(message: Mapping[str, Any]) -> str:
    """Returns the sender's name for the notification on an Android device, the only id there is."""
    notification = message.get("android", {}).get("notification", {})
    return str(notification.get("tag", ""))


def _verified(signed: bytes, signature: bytes, modulus: int) -> bool:
    """Checks RSASSA-PKCS1-v1_5 with SHA-256: the signature, raised, is the padded digest alone."""
    size = (modulus.bit_length() + 7) // 8
    digest = _SHA256_INFO + hashlib.sha256(signed).digest()
    padded = b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest
    number = int.from_bytes(signature, "big")
    if len(signature) != size or number >= modulus:
        return False
    return pow(number, _EXPONENT, modulus).to_bytes(size, "big") == padded


def _error(status: int, canonical: str, text: str, details: Sequence[Any]) -> Reply:
    error = {"code": status, "message": text, "status": canonical, "details": details}
    return Reply(msgspec.json.encode({"error": error}), status)


def _canonical(code: str, text: str) -> Reply:
    return _error(_CANONICAL.get(code, 500), code, text, [])


def _invalid(text: str) -> Reply:
    details = [{"@type": _FCM_ERROR, "errorCode": "INVALID_ARGUMENT"}]
    return _error(400, "INVALID_ARGUMENT", text, details)


def _no_token(code: str, text: str) -> Reply:
    return Reply(msgspec.json.encode({"error": code, "error_description": text}), 400)


PROTOCOLS = (Fcm,)
