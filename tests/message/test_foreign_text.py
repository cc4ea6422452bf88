"""What may be shown of a stranger's text."""

import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.foreign_text import (
    MASK,
    MAX_ANSWER,
    MAX_SHOWN,
    as_document,
    broken_rule,
    may_repeat,
    private_texts,
    repeats,
    shown,
    shown_answer,
    shown_code,
    shown_name,
)

LETTERS = st.text(st.characters(codec="utf-8"), max_size=60)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("550 <ann@example.com>: no such user", f"550 <{MASK}>: no such user"),
        ("no such number +86 138-0013-8000 today", f"no such number {MASK} today"),
        ("errcode 40013, rid 61a2", "errcode 40013, rid 61a2"),
        ("a\r\nforged: line\x00 \u202edrow", "a forged: line   drow"),
        ("half \ud800 a pair", "half   a pair"),
    ],
)
def test_addresses_long_numbers_and_controls_are_not_shown(text: str, left: str) -> None:
    assert shown(text) == left


@given(LETTERS, st.text(st.characters(codec="utf-8"), min_size=8, max_size=40), LETTERS)
def test_no_eight_characters_of_a_private_text_are_shown(
    before: str, private: str, after: str
) -> None:
    said = shown(before + private + after, [private])
    runs = {private[i : i + 8] for i in range(len(private) - 7)}
    assert not [run for run in runs if run in said and MASK not in run]


def test_a_short_private_text_is_masked_where_it_stands_alone() -> None:
    assert shown("code 4711 refused", ["4711"]) == f"code {MASK} refused"
    assert shown("验证码4711是", ["4711"]) == f"验证码{MASK}是"
    assert shown("timeout", ["time"]) == "timeout"


def test_a_private_text_is_found_in_another_case_and_without_its_plus_sign() -> None:
    assert (
        shown("to 4915112 and ANN.SMITH-9", ["+4915112", "ann.smith-9"]) == f"to {MASK} and {MASK}"
    )


@pytest.mark.soak(small="::test_an_answer_is_cut_at_2_kib_and_half_a_private_text_is_not_left")
def test_a_long_text_is_bounded_and_costs_no_more_than_its_beginning() -> None:
    private = ["y" * 1_000_000] * 20
    short, long = "x" * MAX_SHOWN * 10, "x" * 50_000_000
    assert len(shown(long, private)) == MAX_SHOWN

    def took(text: str) -> float:
        begun = time.process_time()
        shown(text, private)
        return time.process_time() - begun

    turns = [(took(short), took(long)) for _ in range(3)]  # in turns: the machine may be busy
    assert min(long / short for short, long in turns) < 3


def test_a_code_keeps_its_digits() -> None:
    assert shown_code("99992402") == "99992402"
    assert shown_code("isv.BUSINESS_LIMIT_CONTROL") == "isv.BUSINESS_LIMIT_CONTROL"
    assert shown_code("no such ann@example.com") == f"no such {MASK}"
    assert len(shown_code("x" * 1_000)) == 64


@pytest.mark.parametrize("name", ["order-paid", "SMS_154950", "user.name"])
def test_a_name_is_shown(name: str) -> None:
    assert shown_name(name) == name


@pytest.mark.parametrize(
    "name", ["+8613800138000", "ann@example.com", "a b", "", "验证", "u13800138000"]
)
def test_what_is_no_name_is_not_shown(name: str) -> None:
    assert shown_name(name) == MASK


def test_every_value_is_private_and_a_key_that_is_no_name() -> None:
    tree = {
        "code": "4711",
        "+8613800138000": "",
        "list": [1.5, {"deep": "text"}],
        "yes": True,
        "none": None,
    }
    assert set(private_texts(tree, ["+861"])) == {
        "4711",
        "1.5",
        "text",
        "+861",
        "+8613800138000",
        "",
    }


def test_a_tree_of_any_depth_is_walked() -> None:
    deep: object = "end"
    for _ in range(100_000):
        deep = [deep]
    assert list(private_texts(deep)) == ["end"]


def test_an_id_that_repeats_a_content_is_told_from_one_that_does_not() -> None:
    assert repeats("sms-8613800138000-1", ["+8613800138000"])
    assert not repeats("900619746936498440^0", ["+8613800138000", "hello"])


TREES = st.recursive(
    st.text(max_size=12) | st.integers(-(10**18), 10**18) | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(TREES, st.data())
def test_the_quick_question_never_denies_what_the_exact_one_finds(
    tree: object, data: st.DataObject
) -> None:
    private = private_texts(tree)
    parts = st.sampled_from([*private, ""])
    joints = st.sampled_from(["", "-", "sim-", "x", "--"])
    text = data.draw(joints) + data.draw(parts) + data.draw(joints) + data.draw(parts)
    for one in (text, text.upper(), text[1:], f"{text}-1"):
        if repeats(one, private):
            assert may_repeat(one, as_document(tree))
            assert may_repeat(one, json.dumps(tree).encode())


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("id-kelv", "\N{KELVIN SIGN}ELV"),
        ('a"b"c"d"', 'a"b"c"d"'),
        ("shipped", "a line\nof shipped"),
        ("x-ÀÉÎÕ", "ÀÉÎÕ"),
        ("sim-1234567", "x1234567"),
        ("xxx8613800000001", "+8613800000001"),
        ("no 4711", "4711"),
        ("x--bcd", "-bcd"),
    ],
)
def test_the_quick_question_says_yes_where_it_cannot_know(text: str, document: str) -> None:
    assert may_repeat(text, as_document([document]))


def test_the_quick_question_knows_an_id_of_the_providers_own() -> None:
    assert not may_repeat("sim-12345", as_document(["user-4711", {"text": "shipped"}]))


def test_a_broken_rule_is_told_without_the_value() -> None:
    class Kind(msgspec.Struct, forbid_unknown_fields=True):
        to: str = "each"

    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert({"+8613800138000": 1}, Kind)
    assert broken_rule(refused.value) == f"Object contains unknown field `{MASK}`"


@pytest.mark.parametrize(
    ("content", "left"),
    [
        (b'{"msg":"bad number +8613800000001"}', '{"msg":"bad number +***"}'),
        (b'{"msg":"\\u4f60\\u597d\\u5f20\\u4e09\\u5148\\u751f\\u8d35\\u5ba2"}', '{"msg":"***"}'),
        (b"<p>&#20320;&#22909;&#24352;&#19977;&#20808;&#29983;&#36149;&#23458;</p>", "<p>***</p>"),
        (
            b"sign=%E4%BD%A0%E5%A5%BD%E5%BC%A0%E4%B8%89%E5%85%88%E7%94%9F%E8%B4%B5%E5%AE%A2",
            "sign=***",
        ),
        (b"\xff\xfe no text", "�� no text"),
    ],
)
def test_an_answer_shows_no_private_text_however_it_is_escaped(content: bytes, left: str) -> None:
    assert shown_answer(content, ["你好张三先生贵客", "+8613800000001"]) == left


def test_an_answer_is_cut_at_2_kib_and_half_a_private_text_is_not_left() -> None:
    private = "4711-secret-of-the-receiver"
    content = b"x" * (MAX_ANSWER - 6) + private.encode() + b"y" * 10_000
    found = shown_answer(content, [private])
    assert found == "x" * (MAX_ANSWER - 6) + "***yyy"
    assert len(shown_answer("鸿".encode() * 2_000, [])) == MAX_ANSWER // 3
