"""The request as bytes and the answer from bytes, however the network cuts them."""

import gc
import weakref
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.http_client.request import post_json
from channels.http_client.wire_format import MAX_BODY, BadAnswer, ResponseParser, written

PLAIN = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: 1\r\n\r\n"
    b"2\r\nhe\r\n3\r\nllo\r\n0\r\nX-Trailer: no\r\n\r\n"
)


def read(pieces: list[bytes]) -> ResponseParser:
    reader = ResponseParser()
    for piece in pieces:
        reader.feed(piece)
    return reader


@given(data=st.sampled_from([PLAIN, CHUNKED]), cuts=st.sets(st.integers(1, 150)))
def test_an_answer_reads_the_same_however_it_is_cut(data: bytes, cuts: set[int]) -> None:
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [data[a:b] for a, b in pairwise(places)]
    reader = read(pieces)
    assert (reader.done, reader.status, reader.body, reader.reusable) == (True, 200, b"hello", True)
    assert b"X-Trailer" not in dict(reader.headers)


@given(data=st.sampled_from([PLAIN, CHUNKED]), end=st.integers(0, 150))
def test_a_part_of_an_answer_is_no_answer(data: bytes, end: int) -> None:
    part = data[: min(end, len(data) - 1)]
    reader = read([part] if part else [])
    assert not reader.done
    with pytest.raises(BadAnswer):
        reader.end()


@given(st.binary(min_size=1, max_size=200))
def test_noise_is_refused_or_awaited_but_never_an_answer(noise: bytes) -> None:
    reader = ResponseParser()
    try:
        reader.feed(noise)
    except BadAnswer:
        return
    assert not reader.done


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    reader = read([b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo"])
    assert not reader.done
    reader.end()
    assert (reader.done, reader.body, reader.reusable) == (True, b"hello", False)


def test_bytes_behind_an_answer_end_the_connection() -> None:
    assert not read([PLAIN + PLAIN]).reusable
    assert not read([PLAIN + b"garbage"]).reusable


def test_an_answer_that_was_read_leaves_nothing_to_the_collector() -> None:
    gc.disable()
    try:
        reader = read([PLAIN])
        left = weakref.ref(reader)
        del reader
        assert left() is None
    finally:
        gc.enable()


def test_a_change_of_protocol_is_no_answer() -> None:
    with pytest.raises(BadAnswer):
        read([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"])


def test_interim_answers_without_end_are_too_large() -> None:
    reader = ResponseParser()
    with pytest.raises(BadAnswer, match="head is over"):
        reader.feed(b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000)


def test_a_body_is_taken_up_to_its_bound() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
    assert len(read([head % MAX_BODY, b"x" * MAX_BODY]).body) == MAX_BODY
    with pytest.raises(BadAnswer, match="body is over"):
        read([head % (MAX_BODY + 1), b"x" * (MAX_BODY + 1)])


def test_a_request_is_written_with_one_host_and_one_length() -> None:
    url = httpx.URL("http://provider.example:8080/hook?a=b")
    lean = post_json(url, [(b"Host", url.netloc), (b"Idempotency-Key", b"k")], b"{}", {})
    assert written(lean) == (
        b"POST /hook?a=b HTTP/1.1\r\nHost: provider.example:8080\r\nIdempotency-Key: k\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    usual = httpx.Request(
        "POST", url, content=b"{}", headers={"Content-Length": "7", "Expect": "x"}
    )
    assert written(usual) == (
        b"POST /hook?a=b HTTP/1.1\r\nHost: provider.example:8080\r\nContent-Length: 2\r\n\r\n{}"
    )


def test_a_post_without_a_body_says_so_and_a_get_says_nothing() -> None:
    assert b"Content-Length: 0\r\n\r\n" in written(httpx.Request("POST", "http://a/"))
    assert b"Content-Length" not in written(httpx.Request("GET", "http://a/"))


def test_a_host_is_added_where_none_was_given() -> None:
    request = httpx.Request("GET", "http://a:81/", stream=httpx.ByteStream(b""))
    assert b"\r\nHost: a:81\r\n" in written(request)


def test_a_second_answer_in_the_same_read_adds_nothing_to_the_first() -> None:
    reader = ResponseParser()
    one = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none"
    two = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo"
    reader.feed(one + two)
    assert (reader.body, reader.reusable) == (b"one", False)
