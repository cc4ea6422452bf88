"""An endpoint is httpx's own URL, whose parts are made once."""

from __future__ import annotations

import httpx
import pytest

from channels.endpoints import below, endpoint_url, over_http2

URLS = [
    "http://127.0.0.1:2500/send",
    "https://例子.测试/路径?a=1&b=二",
    "https://[::1]:8443",
    "https://x.test",
]


@pytest.mark.parametrize("text", URLS)
def test_an_endpoint_has_the_parts_of_the_url(text: str) -> None:
    url, endpoint = httpx.URL(text), endpoint_url(text)
    for _ in range(2):
        assert (endpoint.scheme, endpoint.netloc, endpoint.raw_path) == (
            url.scheme,
            url.netloc,
            url.raw_path,
        )
    assert endpoint.raw_path is endpoint.raw_path
    assert endpoint == url
    assert hash(endpoint) == hash(url)


def test_a_url_made_from_an_endpoint_has_its_own_parts() -> None:
    endpoint = endpoint_url("https://x.test/hook?a=1")
    assert endpoint.raw_path == b"/hook?a=1"
    assert below(endpoint, "k").raw_path == b"/hook/k?a=1"
    assert over_http2(endpoint).scheme == "h2"
    assert httpx.URL(endpoint).copy_with(path="/other").raw_path == b"/other?a=1"
