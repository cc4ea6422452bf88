"""Endpoints: the addresses that an account may name, and the URLs made from them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import httpx

HTTP: Final = ("http", "https")
HTTP_2: Final = ("h2c", "h2")
"""The same over HTTP/2, as RFC 9113 §3.1 calls them: for the transport alone, never in an account."""
_MAX_PORT: Final = 65_535
_BLANK = re.compile(r"[\s\x00-\x1f\x7f]")


class Endpoint(httpx.URL):
    """An account's address. httpx makes the parts of a URL anew each time; here they are cached."""

    @cached_property
    def scheme(self) -> str:
        return super().scheme

    @cached_property
    def netloc(self) -> bytes:
        return super().netloc

    @cached_property
    def raw_path(self) -> bytes:
        return super().raw_path


class BadEndpoint(ValueError):
    """An endpoint that cannot be used; the text says why in one sentence."""


def endpoint_url(text: str, schemes: Sequence[str] = HTTP) -> Endpoint:
    """Returns the endpoint as a URL of one of the schemes. Raises BadEndpoint."""
    if not text:
        raise BadEndpoint("is missing; give the provider's URL, such as https://example.com/hook")
    if _BLANK.search(text):
        raise BadEndpoint("holds a blank or a control character")
    try:
        url = Endpoint(text)
    except httpx.InvalidURL as exc:
        raise BadEndpoint(f"is not a URL: {exc}") from exc
    if url.scheme not in schemes or not url.host:
        named = " or ".join(f"{scheme}://" for scheme in schemes)
        raise BadEndpoint(f"must be a full {named} URL")
    if url.port is not None and not 0 < url.port <= _MAX_PORT:
        raise BadEndpoint(f"names the port {url.port}; there are those from 1 to {_MAX_PORT}")
    if url.userinfo:
        raise BadEndpoint("must not hold a user name or password; give a token instead")
    if url.fragment or text.endswith("#"):
        raise BadEndpoint("must not have a fragment (the part from #)")
    return url


def below(url: httpx.URL, name: str) -> httpx.URL:
    """Returns `<endpoint>/<name>`, before the endpoint's query if any. `name` must need no quoting."""
    path, mark, query = url.raw_path.partition(b"?")
    return url.copy_with(raw_path=path.rstrip(b"/") + b"/" + name.encode("ascii") + mark + query)


def over_http2(url: httpx.URL) -> httpx.URL:
    """Returns the same address for the HTTP/2 transport."""
    return url.copy_with(scheme=HTTP_2[HTTP.index(url.scheme)])


def over_http(url: httpx.URL) -> httpx.URL:
    """Returns the address that `over_http2` was given; any other unchanged."""
    if url.scheme not in HTTP_2:
        return url
    return url.copy_with(scheme=HTTP[HTTP_2.index(url.scheme)])


def with_query(url: httpx.URL, query: str) -> httpx.URL:
    """Returns the URL with `query` after its own. `query` must be quoted already."""
    path, _, own = url.raw_path.partition(b"?")
    whole = b"&".join(part for part in (own, query.encode("ascii")) if part)
    return url.copy_with(raw_path=path + b"?" + whole)
