"""The lean request behaves like any other httpx.Request, and goes over the wire as one."""

from __future__ import annotations

import copy

import httpx
import pytest

from channels.http_client.failures import BadRequest
from channels.http_client.request import post_json
from channels.http_client.wire_format import written

URL = httpx.URL("https://provider.example/hook?k=v")
FIELDS = [(b"Host", b"provider.example"), (b"X-Key", b"1"), (b"x-key", b"2")]
BODY = '{"text":"你好"}'.encode()


@pytest.fixture(params=["ours", "httpx"])
def request_(request: pytest.FixtureRequest) -> httpx.Request:
    if request.param == "ours":
        return post_json(URL, list(FIELDS), BODY, {"ca_file": "/x"})
    headers = [*FIELDS, (b"Content-Type", b"application/json")]
    return httpx.Request("POST", URL, headers=headers, content=BODY, extensions={"ca_file": "/x"})


def test_it_reads_like_any_request(request_: httpx.Request) -> None:
    assert (request_.method, request_.url) == ("POST", URL)
    assert request_.read() == request_.content == BODY
    assert request_.headers["host"] == "provider.example"
    assert request_.headers.get_list("x-key") == ["1", "2"]
    assert request_.headers["content-type"] == "application/json"
    assert request_.headers["content-length"] == str(len(BODY))
    assert b"".join(request_.stream) == BODY  # type: ignore[arg-type]
    assert request_.extensions["ca_file"] == "/x"


def test_it_goes_over_the_wire_like_any_request(request_: httpx.Request) -> None:
    assert written(request_) == (
        b"POST /hook?k=v HTTP/1.1\r\nHost: provider.example\r\nX-Key: 1\r\nx-key: 2\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
    )


def test_it_goes_over_the_wire_the_same_after_its_header_was_looked_at() -> None:
    request = post_json(URL, list(FIELDS), BODY, {})
    before = written(request)
    assert request.headers
    assert written(request) == before


def test_a_deadline_set_before_the_header_was_looked_at_stays() -> None:
    request = post_json(URL, list(FIELDS), BODY, {})
    request.extensions["timeout"] = {"total": 1.0}
    assert request.headers
    assert request.extensions["timeout"] == {"total": 1.0}


def test_requests_of_one_account_share_no_extensions() -> None:
    shared = {"ca_file": "/x"}
    post_json(URL, FIELDS, BODY, shared).extensions["timeout"] = {"total": 1.0}
    assert shared == {"ca_file": "/x"}


@pytest.mark.parametrize("value", [b"a\r\nEvil: 1", b"a\nb", b"a\rb", b"a\0b"])
def test_no_line_break_reaches_the_wire(value: bytes) -> None:
    with pytest.raises(BadRequest):
        written(post_json(URL, [*FIELDS, (b"X", value)], BODY, {}))


def test_what_it_has_not_it_has_not() -> None:
    request = post_json(URL, FIELDS, BODY, {})
    with pytest.raises(AttributeError):
        _ = request.nothing
    assert copy.copy(request).read() == BODY
