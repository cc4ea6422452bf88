"""The webhook that alerts are posted to: JSON, signed, over the transport that calls providers.

    POST <alerts.webhook>     Content-Type: application/json
    Hongyan-Timestamp: 1790000000
    Hongyan-Signature: v1=<hex HMAC-SHA256 of "<timestamp>.<body>" under alerts.secret>

Certificates are verified, redirects not followed. Any 2xx is a success.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from hashlib import sha256
from time import time
from typing import Any, Final

import httpx
import msgspec

from backends.settings import AlertSettings, SettingsError
from channels.channel import Failure
from channels.endpoints import HTTP, BadEndpoint, endpoint_url
from channels.engine import Sender
from channels.http_client.failures import BadRequest

TIMESTAMP: Final = "Hongyan-Timestamp"
SIGNATURE: Final = "Hongyan-Signature"


class AlertHook:
    """Posts alerts. Thread-safe as its transport is."""

    def __init__(
        self, settings: AlertSettings, sender: Sender, now: Callable[[], float] = time
    ) -> None:
        """Raises SettingsError for a webhook that is no address."""
        try:
            self._url = endpoint_url(settings.webhook, HTTP)
        except BadEndpoint as exc:
            raise SettingsError(f"alerts.webhook: {exc}") from exc
        self._secret = settings.secret.encode()
        self._extensions: dict[str, Any] = {"timeout": {"total": settings.timeout_s}}
        if settings.ca_file:
            self._extensions["ca_file"] = settings.ca_file
        self._sender = sender
        self._now = now

    def post(self, alert: Mapping[str, Any]) -> str | None:
        """Posts one. Returns the error, or None if it arrived. Never raises."""
        body = msgspec.json.encode(alert)
        fields = {"Content-Type": "application/json", "User-Agent": "hongyan", **self._signed(body)}
        request = httpx.Request(
            "POST", self._url, headers=fields, content=body, extensions=dict(self._extensions)
        )
        try:
            answer = self._sender.send(request)
        except BadRequest as exc:
            return str(exc)
        if isinstance(answer, Failure):
            return f"{answer.code}: {answer.detail}".rstrip(": ")
        return None if answer.is_success else f"the webhook answered {answer.status_code}"

    def _signed(self, body: bytes) -> dict[str, str]:
        stamp = str(int(self._now()))
        if not self._secret:
            return {TIMESTAMP: stamp}
        signature = hmac.new(self._secret, stamp.encode() + b"." + body, sha256).hexdigest()
        return {TIMESTAMP: stamp, SIGNATURE: f"v1={signature}"}
