"""The envelope: what is taken travels whole, what is not is named with its path."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.envelope import (
    MAX_AHEAD_MS,
    MAX_BYTES,
    EnvelopeError,
    Notification,
    Template,
    check_arrival,
    decode,
    encode,
)
from message.vocabulary import CHANNELS, KINDS, LANES, Lane

GOOD: dict[str, Any] = {
    "v": 1,
    "id": "01J0000000000000",
    "biz_id": "order-1001",
    "channel": "sms",
    "kind": "verification",
    "receivers": ["+8613800000001"],
    "account": None,
    "template": {"id": "SMS_123", "params": {"code": "4711"}},
    "created_at": 1_790_000_000_000,
    "ttl_ms": 300_000,
    "ordering_key": None,
    "resend_of": None,
    "attributes": {},
}


def value(**changes: Any) -> bytes:
    fields = {**GOOD, **changes}
    return json.dumps({k: v for k, v in fields.items() if v is not ...}).encode()


def refusal(raw: bytes | None) -> EnvelopeError:
    with pytest.raises(EnvelopeError) as caught:
        decode(raw)
    assert caught.value.detail
    return caught.value


def test_a_good_envelope_is_read_field_by_field() -> None:
    found = decode(value())
    assert found.id == "01J0000000000000"
    assert found.template == Template("SMS_123", {"code": "4711"})
    assert found.lane == Lane("sms", "verification")
    assert found.kafka_key == "01J0000000000000"


def test_the_key_is_the_ordering_key_where_there_is_one() -> None:
    assert decode(value(ordering_key="user-7")).kafka_key == "user-7"


def test_an_empty_ordering_key_or_resend_of_counts_as_none() -> None:
    found = decode(value(ordering_key="", resend_of=""))
    assert (found.ordering_key, found.resend_of) == (None, None)
    assert found == decode(value())
    one = decode(value(ordering_key="user-7", resend_of=""))
    assert (one.ordering_key, one.resend_of) == ("user-7", None)
    one = decode(value(ordering_key="", resend_of="m-0"))
    assert (one.ordering_key, one.resend_of) == (None, "m-0")


def test_an_empty_ordering_key_or_resend_of_is_written_as_null() -> None:
    found = decode(value())
    empty = msgspec.structs.replace(found, ordering_key="", resend_of="")
    assert encode(empty) == encode(found)


def test_unknown_fields_are_ignored_and_the_raw_bytes_still_have_them() -> None:
    raw = value(campaign="winter", nested={"a": [1, None]})
    assert decode(raw) == decode(value())
    assert json.loads(raw)["nested"] == {"a": [1, None]}


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (None, "not_json"),
        (b"", "not_json"),
        (b"{", "not_json"),
        (b"\xff\xfe", "not_json"),
        (b'"text"', "wrong_type"),
        (b'{"v":1,"attributes":' + b'{"a":' * 100_000, "not_json"),
        (b'{"v":1,"id":"' + b"\xc3\x28" + b'"}', "not_json"),
        (b" " * (MAX_BYTES + 1), "too_large"),
        (value(x="MARK").replace(b"MARK", b"\xff\xfe"), "not_json"),
        (value(x="MARK").replace(b"MARK", b"\xed\xa0\x80"), "not_json"),
        (value(x="MARK").replace(b"MARK", b"\xc0\x80"), "not_json"),
        (value(MARK=1).replace(b"MARK", b"\xff"), "not_json"),
        (value(x=["MARK"]).replace(b"MARK", b"\xf4\x90\x80\x80"), "not_json"),
        (value(x="MARK").replace(b"MARK", rb"\ud800"), "not_json"),
        (value(attributes={"x": "MARK"}).replace(b"MARK", rb"\ude00\ud83d"), "not_json"),
        (b"\xef\xbb\xbf" + value(), "not_json"),
        (value().decode().encode("utf-16"), "not_json"),
        (value(x="MARK").replace(b'"MARK"', b"NaN"), "not_json"),
        (value(attributes={"x": "MARK"}).replace(b'"MARK"', b"-Infinity"), "not_json"),
        (value(x="MARK").replace(b"MARK", b"a\nb"), "not_json"),
        (value() + b"{}", "not_json"),
        (value() + b"\x00", "not_json"),
    ],
    ids=[
        *("null", "empty", "cut", "not-utf8", "text", "nested", "bad-utf8-inside", "large"),
        *("bad-utf8-unread", "surrogate-bytes-unread", "overlong-unread", "bad-utf8-name"),
        *("beyond-unicode", "half-a-pair-unread", "pair-turned-round", "byte-order-mark", "utf16"),
        *("nan-unread", "infinity", "line-break-in-text", "two-values", "trailing-nul"),
    ],
)
def test_what_is_no_envelope_is_named_at_the_root(raw: bytes | None, code: str) -> None:
    error = refusal(raw)
    assert (error.code, error.path) == (code, "$")


def test_of_a_member_given_twice_the_last_counts() -> None:
    raw = value()[:-1] + b',"id":"the-second","biz_id":null}'
    assert (decode(raw).id, decode(raw).biz_id) == ("the-second", None)


def test_all_of_unicode_is_taken_as_text_and_as_escapes() -> None:
    text = "您好 😀 \u0000\u202e\ufeff"
    for ascii_only in (True, False):
        raw = json.dumps({**GOOD, "attributes": {"x": text}}, ensure_ascii=ascii_only)
        assert decode(raw.encode()).attributes == {"x": text}


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" * 5_000])
def test_a_number_beyond_all_bounds_is_refused_where_it_is_read(number: str) -> None:
    raw = value(attributes={"x": "MARK"}).replace(b'"MARK"', number.encode())
    assert refusal(raw).code == "wrong_type"
    assert decode(value(x="MARK").replace(b'"MARK"', number.encode())).id == GOOD["id"]


@pytest.mark.parametrize(
    ("changes", "code", "path"),
    [
        ({"v": 2}, "unknown_version", "$.v"),
        ({"v": 2, "receivers": "a new form"}, "unknown_version", "$.v"),
        ({"v": "1"}, "wrong_type", "$.v"),
        ({"id": ...}, "wrong_type", "$"),
        ({"id": 7}, "wrong_type", "$.id"),
        ({"id": ""}, "bad_id", "$.id"),
        ({"id": "x" * 65}, "bad_id", "$.id"),
        ({"id": "鸿雁"}, "bad_id", "$.id"),
        ({"id": "a\nb"}, "bad_id", "$.id"),
        ({"channel": "fax"}, "unknown_channel", "$.channel"),
        ({"kind": "spam"}, "unknown_kind", "$.kind"),
        ({"receivers": []}, "bad_receivers", "$.receivers"),
        ({"receivers": ["x"] * 1_001}, "bad_receivers", "$.receivers"),
        ({"receivers": "x"}, "wrong_type", "$.receivers"),
        ({"receivers": ["x", 5]}, "wrong_type", "$.receivers[1]"),
        ({"receivers": ["ok", ""]}, "bad_receiver", "$.receivers[1]"),
        ({"receivers": ["ok", "  "]}, "bad_receiver", "$.receivers[1]"),
        ({"receivers": ["x" * 257]}, "bad_receiver", "$.receivers[0]"),
        ({"receivers": ["a", "b\u0000c"]}, "control_character", "$.receivers[1]"),
        ({"receivers": ["\ud800"]}, "not_json", "$"),
        ({"biz_id": "a\tb"}, "control_character", "$.biz_id"),
        ({"biz_id": "x" * 257}, "too_long", "$.biz_id"),
        ({"account": "a\u2028b"}, "control_character", "$.account"),
        ({"ordering_key": "a\u0085b"}, "control_character", "$.ordering_key"),
        ({"resend_of": "a\rb"}, "control_character", "$.resend_of"),
        ({"template": {"id": "a\nb"}}, "control_character", "$.template.id"),
        ({"template": {"params": {}}}, "wrong_type", "$.template"),
        ({"template": None}, "no_content", "$"),
        ({"content": {"text": "x"}}, "no_content", "$"),
        ({"ttl_ms": 0}, "bad_ttl", "$.ttl_ms"),
        ({"ttl_ms": -1}, "bad_ttl", "$.ttl_ms"),
        ({"ttl_ms": "5m"}, "wrong_type", "$.ttl_ms"),
        ({"created_at": -1}, "wrong_type", "$.created_at"),
        ({"created_at": ...}, "wrong_type", "$"),
        ({"created_at": 10**15}, "wrong_type", "$.created_at"),
        ({"attributes": []}, "wrong_type", "$.attributes"),
    ],
)
def test_every_bad_field_is_named_with_its_path(
    changes: dict[str, Any], code: str, path: str
) -> None:
    error = refusal(value(**changes))
    assert (error.code, error.path) == (code, path)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"receivers":[5],x',
        b'{"receivers":[5],"receivers":["a"]}',
        b'{"receivers":[5],"receivers":7}',
        b'{"receivers":[5],"deep":' + b"[" * 100_000,
        b'{"receivers":[5],"x":"\xc3\x28"}',
    ],
    ids=["cut", "twice", "twice-no-list", "deep", "bad-utf8"],
)
def test_a_wrong_receiver_is_named_whatever_follows_it(raw: bytes) -> None:
    error = refusal(raw)
    assert error.path.startswith("$")


def test_what_cannot_be_read_cannot_be_written_either() -> None:
    with pytest.raises(EnvelopeError, match="bad_id"):
        encode(msgspec.structs.replace(decode(value()), id="x" * 65))
    with pytest.raises(EnvelopeError, match="not_unicode"):
        encode(msgspec.structs.replace(decode(value()), receivers=["\ud800"]))
    with pytest.raises(EnvelopeError, match="not_json"):
        encode(msgspec.structs.replace(decode(value()), attributes={"a": "\ud800"}))
    with pytest.raises(EnvelopeError, match="too_large"):
        encode(msgspec.structs.replace(decode(value()), attributes={"a": "x" * MAX_BYTES}))


def test_arrival_refuses_a_record_in_the_topic_of_another_lane() -> None:
    found = decode(value())
    for lane, path in (
        (Lane("email", "verification"), "$.channel"),
        (Lane("sms", "notice"), "$.kind"),
    ):
        with pytest.raises(EnvelopeError) as caught:
            check_arrival(found, lane, found.created_at)
        assert (caught.value.code, caught.value.path) == ("wrong_topic", path)


def test_arrival_bears_a_clock_that_is_ten_minutes_ahead_and_no_more() -> None:
    found = decode(value())
    check_arrival(found, found.lane, found.created_at - MAX_AHEAD_MS)
    with pytest.raises(EnvelopeError) as caught:
        check_arrival(found, found.lane, found.created_at - MAX_AHEAD_MS - 1)
    assert (caught.value.code, caught.value.path) == ("created_ahead", "$.created_at")


_line = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=40
).filter(lambda text: not text.isspace())
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _line,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_line, inner, max_size=3),
    max_leaves=6,
)
_objects = st.dictionaries(_line, _json, max_size=4)
_ids = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=64)


@st.composite
def notifications(draw: st.DrawFn) -> Notification:
    templated = draw(st.booleans())
    return Notification(
        id=draw(_ids),
        biz_id=draw(st.none() | _line),
        channel=draw(st.sampled_from(CHANNELS)),
        kind=draw(st.sampled_from(KINDS)),
        receivers=draw(st.lists(_line, min_size=1, max_size=4)),
        account=draw(st.none() | _line),
        template=Template(draw(_line), draw(_objects)) if templated else None,
        content=None if templated else draw(_objects),
        created_at=draw(st.integers(0, 2 * 10**12)),
        ttl_ms=draw(st.none() | st.integers(1, 10**9)),
        ordering_key=draw(st.none() | _line),
        resend_of=draw(st.none() | _line),
        attributes=draw(_objects),
    )


@given(notifications())
def test_what_is_written_is_read_back_the_same(notification: Notification) -> None:
    assert decode(encode(notification)) == notification


def outcome(raw: bytes) -> str:
    """`read`, or the path that was refused."""
    try:
        assert decode(raw).lane in LANES
    except EnvelopeError as error:
        return error.path
    return "read"


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_an_envelope_error(raw: bytes) -> None:
    assert outcome(raw) == "read" or outcome(raw).startswith("$")


@given(_json, st.sampled_from(sorted(GOOD)))
def test_no_field_raises_anything_but_an_envelope_error(wrong: Any, field: str) -> None:
    found = outcome(value(**{field: wrong}))
    assert found == "read" or found.startswith("$")
