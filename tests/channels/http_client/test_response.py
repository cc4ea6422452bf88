"""The lean Answer behaves like any other httpx.Response."""

from datetime import timedelta

import httpx
import pytest

from channels.http_client.response import LeanResponse

REQUEST = httpx.Request("POST", "https://provider.example/hook")
FIELDS = [(b"Content-Type", b"application/json; charset=utf-8"), (b"X", b"1"), (b"X", b"2")]
BODY = '{"id":"七"}'.encode()


@pytest.fixture(params=["ours", "httpx"])
def answer(request: pytest.FixtureRequest) -> httpx.Response:
    if request.param == "ours":
        return LeanResponse(429, list(FIELDS), BODY, REQUEST, 1.0)
    usual = httpx.Response(429, headers=FIELDS, content=BODY, request=REQUEST)
    usual.elapsed = timedelta(seconds=1)
    return usual


def test_it_reads_like_any_response(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.reason_phrase) == (429, "Too Many Requests")
    assert (answer.content, answer.text, answer.json()) == (BODY, BODY.decode(), {"id": "七"})
    assert answer.headers.get_list("x") == ["1", "2"]
    assert (answer.request, answer.url) == (REQUEST, REQUEST.url)
    assert answer.elapsed == timedelta(seconds=1)
    assert answer.is_closed
    assert answer.is_stream_consumed
    assert answer.is_client_error


def test_it_can_be_read_again_in_every_way(answer: httpx.Response) -> None:
    assert answer.read() == BODY
    assert b"".join(answer.iter_bytes(3)) == BODY
    assert list(answer.iter_lines()) == [BODY.decode()]
    answer.close()
    assert answer.content == BODY


def test_it_raises_and_prints_like_any_response(answer: httpx.Response) -> None:
    with pytest.raises(httpx.HTTPStatusError, match="429"):
        answer.raise_for_status()
    assert repr(answer) == "<Response [429 Too Many Requests]>"
