"""Posts of our own to an address of the business: alerts and outcome events.

Certificates are verified, redirects not followed. Any 2xx is a success.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx

from channels.channel import Failure
from channels.endpoints import HTTP, endpoint_url
from channels.engine import Sender
from channels.http_client.failures import BadRequest

Fields = Sequence[tuple[bytes, bytes]]


class PostError(NamedTuple):
    """Why a post did not arrive."""

    cause: str
    answered: bool
    """Whether the webhook answered. Then it may refuse this body and take another."""


class WebhookPost:
    """Posts JSON to one address, over the transport that calls providers. Thread-safe as `sender` is."""

    def __init__(self, address: str, sender: Sender, *, timeout_s: float, ca_file: str) -> None:
        """Raises BadEndpoint if `address` is no address. An empty `ca_file` stands for the system's."""
        self._url = endpoint_url(address, HTTP)
        self._sender = sender
        self._extensions: dict[str, Any] = {"timeout": {"total": timeout_s}}
        if ca_file:
            self._extensions["ca_file"] = ca_file

    def post(self, body: bytes, signed: Fields) -> PostError | None:
        """Posts once. Returns the error, or None if it arrived. Never raises."""
        fields = [(b"content-type", b"application/json"), (b"user-agent", b"hongyan"), *signed]
        request = httpx.Request(
            "POST", self._url, headers=fields, content=body, extensions=dict(self._extensions)
        )
        try:
            answer = self._sender.send(request)
        except BadRequest as exc:
            return PostError(str(exc), answered=False)
        if isinstance(answer, Failure):
            return PostError(f"{answer.code}: {answer.detail}".rstrip(": "), answered=False)
        if answer.is_success:
            return None
        return PostError(f"the webhook answered {answer.status_code}", answered=True)
