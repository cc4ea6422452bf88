"""Requests of SDKs that are built on `requests`: kept as the SDK made them, and led to our simulator.

An SDK keeps the address of its provider, so that what it makes can be compared with what our adapter
makes for that provider. Only the connection goes elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import parse_qsl, urlsplit

import httpx
import requests
from requests.adapters import HTTPAdapter


class Made(NamedTuple):
    """One request, whoever made it."""

    method: str
    address: str
    """Scheme, host and path."""
    query: dict[str, str]
    fields: Mapping[str, str]
    """Header fields; names in any case."""
    body: bytes
    answer: httpx.Response = httpx.Response(204)
    """The simulator's; only an SDK's request has one."""

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)

    @property
    def named(self) -> tuple[str, str, dict[str, str]]:
        """Where it goes: method, address and query."""
        return self.method, self.address, self.query


@contextmanager
def led(routes: Mapping[str, str]) -> Iterator[list[Made]]:
    """Yields all requests that this process makes by `requests`, in order.

    `routes` maps the beginning of an address to its replacement on the wire. A request to any other address
    raises AssertionError.
    """
    made: list[Made] = []
    send = HTTPAdapter.send

    def kept(
        self: HTTPAdapter, request: requests.PreparedRequest, *args: Any, **more: Any
    ) -> requests.Response:
        url = request.url or ""
        begins = next((one for one in routes if url.startswith(one)), None)
        assert begins is not None, f"a request to {url.partition('?')[0]}"
        led_on = request.copy()
        led_on.url = routes[begins] + url.removeprefix(begins)
        answer = send(self, led_on, *args, **{**more, "proxies": None})
        read = httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
        made.append(of_requests(request)._replace(answer=read))
        return answer

    with patch.object(HTTPAdapter, "send", kept):
        yield made


def of_requests(request: requests.PreparedRequest) -> Made:
    """Returns an SDK's request; raises AssertionError for a body that is a stream."""
    body = request.body or b""
    assert isinstance(body, bytes | str), "the body is a stream"
    content = body.encode() if isinstance(body, str) else body
    fields = httpx.Headers({name: _text(value) for name, value in request.headers.items()})
    return _made(request.method or "", request.url or "", fields, content)


def of_httpx(request: httpx.Request) -> Made:
    """Returns our adapter's request."""
    return _made(request.method, str(request.url), request.headers, request.read())


def _made(method: str, url: str, fields: Mapping[str, str], body: bytes) -> Made:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    address = f"{parts.scheme}://{parts.netloc}{parts.path}"
    return Made(method, address, query, fields, body)


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
