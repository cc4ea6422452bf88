"""Requests built lean: all fields given, the body ready, so that httpx has nothing left to work out.

`httpx.Request(content=…)` costs four times as much, most of it to find out what is known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx

Fields = Sequence[tuple[bytes, bytes]]


def post_json(
    url: httpx.URL, fields: Fields, body: bytes, extensions: dict[str, Any]
) -> httpx.Request:
    """A POST of JSON; `fields` are the account's own, Host among them, and the call's."""
    return httpx.Request(
        "POST",
        url,
        headers=[
            *fields,
            (b"Content-Type", b"application/json"),
            (b"Content-Length", b"%d" % len(body)),
        ],
        stream=httpx.ByteStream(body),
        extensions=extensions,
    )
