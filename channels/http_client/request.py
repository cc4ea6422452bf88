"""Lean requests: httpx's own Request, without the parts that our transports do not use.

`httpx.Request(content=…)` costs ten times as much. Most of that finds out facts that are known here, and
makes header objects that would only be taken apart again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx

from channels.channel import Account

Fields = Sequence[tuple[bytes, bytes]]
_MADE_LATER: Final = frozenset({"headers", "stream", "_content"})
"""Attributes that httpx.Request.__init__ sets beside method, URL and extensions."""


def fields_of(url: httpx.URL) -> list[tuple[bytes, bytes]]:
    """Returns the header fields of every request of ours: Host, User-Agent."""
    return [(b"Host", url.netloc), (b"User-Agent", b"hongyan")]


def extensions_of(account: Account) -> dict[str, Any]:
    """Returns the account's settings that the transport needs."""
    return {"ca_file": account.ca_file} if account.ca_file else {}


class JsonPost(httpx.Request):
    """A POST of JSON whose parts are ready. tests/channels/http_client/test_request.py holds it to the
    behaviour of any other Request."""

    def __init__(
        self, url: httpx.URL, fields: Fields, body: bytes, extensions: Mapping[str, Any]
    ) -> None:
        self.method = "POST"
        self.url = url
        self.extensions = dict(extensions)
        self.fields = fields
        """Header fields, without those of the body."""
        self.body = body

    def read(self) -> bytes:
        """Returns the body."""
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
        self.extensions = extensions  # the same dict: it may hold a deadline already
        self._content = self.body
        return getattr(self, name)


def post_json(
    url: httpx.URL, fields: Fields, body: bytes, extensions: Mapping[str, Any]
) -> JsonPost:
    """Returns a POST of JSON. `fields` are the account's own, Host among them, and the call's; none is
    about the body or the connection."""
    return JsonPost(url, fields, body, extensions)
