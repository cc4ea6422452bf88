"""Requests built lean: httpx's own Request, made without what a transport of ours has no use for.

`httpx.Request(content=…)` costs ten times as much, most of it to find out what is known here, and header
objects that would only be taken apart again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx

from channels.channel import Account

Fields = Sequence[tuple[bytes, bytes]]
_MADE_LATER: Final = frozenset({"headers", "stream", "_content"})
"""What httpx.Request.__init__ sets beside method, URL and extensions."""


def fields_of(url: httpx.URL) -> list[tuple[bytes, bytes]]:
    """Returns the header fields of every request of ours: Host, User-Agent."""
    return [(b"Host", url.netloc), (b"User-Agent", b"hongyan")]


def extensions_of(account: Account) -> dict[str, Any]:
    """Returns what the transport has to know of the account."""
    return {"ca_file": account.ca_file} if account.ca_file else {}


class JsonPost(httpx.Request):
    """A POST of JSON whose parts are ready. That it still behaves like any other Request is held by
    tests/channels/http_client/test_request.py."""

    def __init__(
        self, url: httpx.URL, fields: Fields, body: bytes, extensions: Mapping[str, Any]
    ) -> None:
        self.method = "POST"
        self.url = url
        self.extensions = dict(extensions)
        self.fields = fields
        """Without those that the body makes."""
        self.body = body

    def read(self) -> bytes:
        """The body, which is here already."""
        return self.body

    def __getattr__(self, name: str) -> Any:
        if name not in _MADE_LATER:
            raise AttributeError(name)
        extensions = self.extensions
        super().__init__(
            self.method,
            self.url,
            headers=[
                *self.fields,
                (b"Content-Type", b"application/json"),
                (b"Content-Length", b"%d" % len(self.body)),
            ],
            stream=httpx.ByteStream(self.body),
            extensions=extensions,
        )
        self.extensions = extensions  # the very dict: who set a deadline in it, set it
        self._content = self.body
        return getattr(self, name)


def post_json(
    url: httpx.URL, fields: Fields, body: bytes, extensions: Mapping[str, Any]
) -> JsonPost:
    """A POST of JSON; `fields` are the account's own, Host among them, and the call's; none that speaks of
    the body or the connection."""
    return JsonPost(url, fields, body, extensions)
