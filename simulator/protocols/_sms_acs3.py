"""Alibaba Cloud's check of a signature V3: from the bytes that came, in the documented order.

Source: https://help.aliyun.com/zh/sdk/product-overview/v3-request-structure-and-signature
"""

from __future__ import annotations

import hashlib
import hmac
import re
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, unquote_plus

from simulator.servers.http_request import Request
from simulator.wire import ProtocolContext

_AUTHORIZATION = re.compile(
    r"ACS3-HMAC-SHA256 Credential=(?P<id>[^,]+),SignedHeaders=(?P<names>[^,]+),"
    r"Signature=(?P<made>[0-9a-f]{64})"
)
_WINDOW_MS: Final = 15 * 60_000
_NEEDED: Final = frozenset(
    {
        "host",
        "x-acs-action",
        "x-acs-content-sha256",
        "x-acs-date",
        "x-acs-signature-nonce",
        "x-acs-version",
    }
)


class Gateway:
    """Belongs to the loop's thread. Nonces are kept as long as their date is good."""

    def __init__(self, world: ProtocolContext, protocol: str) -> None:
        self._world = world
        self._id = world.credential(protocol, "access_key_id", "simulator-id")
        self._secret = world.credential(protocol, "access_key_secret")
        self._nonces: dict[str, int] = {}

    def fault(self, request: Request) -> str:
        """Returns the code of the refusal; empty: the request is in order."""
        found = _AUTHORIZATION.fullmatch(request.field("authorization"))
        if found is None:
            return "IncompleteSignature"
        if found["id"] != self._id:
            return "InvalidAccessKeyId.NotFound"
        if late := self._date_fault(request.field("x-acs-date")):
            return late
        names = found["names"].split(";")
        if not self._signed(request, names, found["made"]):
            return "SignatureDoesNotMatch"
        return self._nonce_fault(request.field("x-acs-signature-nonce"))

    def _date_fault(self, text: str) -> str:
        try:
            date = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            return "InvalidTimeStamp.Format"
        late = abs(self._world.now_ms() - date.timestamp() * 1_000) > _WINDOW_MS
        return "InvalidTimeStamp.Expired" if late else ""

    def _signed(self, request: Request, names: list[str], made: str) -> bool:
        present = {name.decode("latin-1").lower() for name, _ in request.fields}
        must = {name for name in present if name.startswith("x-acs-")} | _NEEDED
        if "content-type" in present:
            must.add("content-type")
        digest = hashlib.sha256(request.body).hexdigest()
        if not must <= set(names) or names != sorted(names):
            return False
        if request.field("x-acs-content-sha256") != digest:
            return False
        headers = "".join(f"{name}:{request.field(name).strip()}\n" for name in names)
        canonical = "\n".join(
            [
                request.method,
                request.path,
                _canonical(request.query),
                headers,
                ";".join(names),
                digest,
            ]
        )
        to_sign = "ACS3-HMAC-SHA256\n" + hashlib.sha256(canonical.encode()).hexdigest()
        right = hmac.new(self._secret.encode(), to_sign.encode(), hashlib.sha256).hexdigest()
        return hmac.compare_digest(right, made)

    def _nonce_fault(self, nonce: str) -> str:
        now_ms = self._world.now_ms()
        if not nonce or nonce in self._nonces:
            return "SignatureNonceUsed"
        self._nonces[nonce] = now_ms
        while now_ms - next(iter(self._nonces.values())) > 2 * _WINDOW_MS:
            del self._nonces[next(iter(self._nonces))]
        return ""


def fields(text: str) -> dict[str, str]:
    """Returns a query or a form by name."""
    pairs = (part.partition("=") for part in text.split("&") if part)
    return {unquote_plus(name): unquote_plus(value) for name, _, value in pairs}


def _canonical(query: str) -> str:
    pairs = sorted(fields(query).items())
    return "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in pairs)
