"""Fetches JSON documents of a sign-in provider or a business: certificates are verified, redirects not
followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

import httpx
import msgspec

from channels.channel import Failure
from channels.endpoints import HTTP, BadEndpoint, endpoint_url
from channels.engine import Sender
from channels.http_client.failures import BadRequest

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_MOST: Final = 1 << 20
"""Bytes of an answer."""


class FetchFailed(Exception):
    """No document came. `status` is the answer's, or 0 without one; the text holds no secret."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class FetchRefused(FetchFailed):
    """Nobody was asked: the address or the request cannot be used."""


def check_secure(address: str, *, plaintext: bool = False) -> None:
    """Raises BadEndpoint for an address that is neither https nor on this machine. `plaintext` allows other
    machines, in a network that is encrypted itself."""
    url = endpoint_url(address, HTTP)
    if url.scheme != "https" and url.host not in _LOOPBACK and not plaintext:
        raise BadEndpoint("must begin with https://")


class JsonFetch:
    """Thread-safe as `sender` is. Every method raises FetchFailed."""

    def __init__(
        self,
        sender: Sender,
        *,
        timeout_s: float,
        ca_file: str = "",
        most: int = _MOST,
        plaintext: bool = False,
    ) -> None:
        """An empty `ca_file` stands for the system's authorities. `most`: bytes of an answer. `plaintext`:
        see `check_secure`."""
        self._sender = sender
        self._most = most
        self._plaintext = plaintext
        self._extensions: dict[str, Any] = {"timeout": {"total": timeout_s}}
        if ca_file:
            self._extensions["ca_file"] = ca_file

    def get(self, address: str, fields: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """Returns the object at an address. `fields`: further header fields."""
        headers = [(name.encode("ascii"), value.encode("ascii")) for name, value in fields]
        return self._fetch("GET", address, headers, b"")

    def post(
        self, address: str, fields: dict[str, str], login: tuple[str, str] | None = None
    ) -> dict[str, Any]:
        """Posts a form, with a name and a password if given (HTTP Basic). Returns the answer's object."""
        headers = [(b"content-type", b"application/x-www-form-urlencoded")]
        if login is not None:
            basic = httpx.BasicAuth(*login)._auth_header  # noqa: SLF001 - the header alone
            headers.append((b"authorization", basic.encode()))
        return self._fetch("POST", address, headers, urlencode(fields).encode())

    def _fetch(
        self, method: str, address: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> dict[str, Any]:
        try:
            check_secure(address, plaintext=self._plaintext)
            fields = [(b"accept", b"application/json"), (b"user-agent", b"hongyan"), *headers]
            request = httpx.Request(
                method, address, headers=fields, content=body, extensions=dict(self._extensions)
            )
            answer = self._sender.send(request)
        except (BadEndpoint, BadRequest) as exc:
            raise FetchRefused(f"the address {exc}") from exc
        if isinstance(answer, Failure):
            raise FetchFailed(f"{answer.code}: {answer.detail}".rstrip(": "))
        if answer.status_code != httpx.codes.OK:
            raise FetchFailed(f"it answered {answer.status_code}", answer.status_code)
        return _object(answer.content, self._most)


def _object(content: bytes, most: int) -> dict[str, Any]:
    try:
        if len(content) <= most:
            return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        pass
    raise FetchFailed("its answer is no JSON object that can be used")
