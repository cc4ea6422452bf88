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

import msgspec

from backends.settings import AlertSettings, SettingsError
from channels.endpoints import BadEndpoint
from channels.engine import Sender
from channels.webhook_post import WebhookPost

TIMESTAMP: Final = "Hongyan-Timestamp"
SIGNATURE: Final = "Hongyan-Signature"


class AlertHook:
    """Posts alerts. Thread-safe as its transport is."""

    def __init__(
        self, settings: AlertSettings, sender: Sender, now: Callable[[], float] = time
    ) -> None:
        """Raises SettingsError for a webhook that is no address."""
        try:
            self._hook = WebhookPost(
                settings.webhook, sender, timeout_s=settings.timeout_s, ca_file=settings.ca_file
            )
        except BadEndpoint as exc:
            raise SettingsError(f"alerts.webhook: {exc}") from exc
        self._secret = settings.secret.encode()
        self._now = now

    def post(self, alert: Mapping[str, Any]) -> str | None:
        """Posts one. Returns the error, or None if it arrived. Never raises."""
        body = msgspec.json.encode(alert)
        error = self._hook.post(body, self._signed(body))
        return None if error is None else error.cause

    def _signed(self, body: bytes) -> list[tuple[bytes, bytes]]:
        stamp = str(int(self._now())).encode()
        fields = [(TIMESTAMP.encode(), stamp)]
        if self._secret:
            signature = hmac.new(self._secret, stamp + b"." + body, sha256).hexdigest()
            fields.append((SIGNATURE.encode(), f"v1={signature}".encode()))
        return fields
