"""Two parsers of mail (npm: `mailparser` 3.9.3, `postal-mime` 4.0.0) read what the SMTP adapter writes.

They share no code; `tests/foreign/mail/` pins them.
"""

from __future__ import annotations

import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from channels.channel import Call
from channels.providers.email_smtp.adapter import CHANNELS
from channels.registry import load_accounts
from message.delivery import deliveries_of
from message.envelope import Notification
from tests.foreign.node_programs import ready

MESSAGES: Final = 4_000
PARSERS: Final = ("mailparser", "postal-mime")
_WORDS: Final = (
    *(
        "订单",
        "您好",
        "验证码",
        "鸿雁",
        "发货",
        "第",
        "號",
        "𠮷野家",
        "測試",
        "，",
        "。",
        "（含税）",
        "😀",
    ),
    *(
        "Order",
        "shipped",
        "the",
        "Dr.",
        "O'Neil",
        "a,b",
        "Smith; Co",
        "(sales)",
        "x@y",
        "C:\\temp",
        '"q"',
    ),
    *(
        "=?utf-8?q?no?=",
        "=?",
        "?=",
        "50%",
        "Ünïcödé",
        "-",
        "<b>",
        ":",
        "100%_sure",
        "a" * 80,
        "长" * 60,
    ),
)


class Written(NamedTuple):
    """What a message is to say."""

    raw: bytes
    receivers: Sequence[str]
    sender: tuple[str, str]
    cc: Sequence[tuple[str, str]]
    reply_to: Sequence[tuple[str, str]]
    subject: str
    text: str
    filenames: Sequence[str]


def words(random: Random, most: int) -> str:
    """Words of both languages, now and then with two blanks between, or none."""
    found = [random.choice(_WORDS) for _ in range(random.randint(1, most))]
    text = found[0]
    for word in found[1:]:
        text += random.choice((" ", " ", " ", "", "  ")) + word
    return text.strip()[:300].strip()


def address(random: Random) -> str:
    """Also one of more than 76 characters, and of the longest there may be."""
    size = random.choice((3, 8, 20, 64))
    local = "".join(random.choice("abcdefgh0123_+") for _ in range(size))
    labels = ["d" * random.choice((2, 10, 60))] * random.choice((1, 1, 2))
    return f"{local}@{'.'.join(labels)}.example.com"


def filename(random: Random) -> str:
    """Without what looks like an encoded word: mailparser decodes it even where none may stand."""
    return f"{words(random, 6).replace('=?', '')[:200]}.pdf"


def written(number: int) -> Written:
    """The message of that number: the same each time."""
    random = Random(number)
    named = [(words(random, 6), address(random)) for _ in range(random.randint(0, 5))]
    reply_to = named[:1] if random.random() < 0.3 else []
    sender = (words(random, 4), "no-reply@example.com")
    receivers = list(dict.fromkeys(address(random) for _ in range(random.randint(1, 4))))
    text = "".join(f"{words(random, 30)}{random.choice(('', ' ', chr(9)))}\n" for _ in range(3))
    filenames = [filename(random) for _ in range(random.choice((0, 0, 1, 2)))]
    content: dict[str, Any] = {
        "subject": words(random, 12),
        "text": text,
        "cc": [quoted(*one) for one in named],
        "reply_to": [quoted(*one) for one in reply_to],
        "to": "together",
        "attachments": [
            {"filename": one, "content": b64encode(one.encode()).decode()} for one in filenames
        ],
    }
    raw = message(receivers, quoted(*sender), content, number)
    subject = content["subject"]
    return Written(raw, receivers, sender, named, reply_to, subject, text, filenames)


def quoted(name: str, box: str) -> str:
    """As a business system writes an address into its content."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}" <{box}>'


def message(
    receivers: Sequence[str], sender: str, content: dict[str, Any], number: int = 0
) -> bytes:
    """The bytes of one call for all receivers."""
    table = {"provider": "smtp", "endpoint": "smtp://mail.example.com", "sender": sender}
    account = load_accounts({"mail": table})["mail"]
    notification = Notification(
        id=f"m-{number}",
        channel="email",
        kind="notice",
        receivers=list(receivers),
        content=content,
        created_at=1_790_000_000_000,
    )
    deliveries = deliveries_of(notification, b"", expires_at=2**50)
    assert CHANNELS[0].refusal(account, deliveries[0]) == ""
    return CHANNELS[0].request(Call(account, deliveries)).read()


def read_back(messages: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    """What each parser finds in each message."""
    folder = ready(Path(__file__).parent / "mail")
    asked = b"".join(b64encode(raw) + b"\n" for raw in messages)
    done = subprocess.run(
        ["node", "read.mjs"], cwd=folder, input=asked, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-2_000:]
    return map(json.loads, done.stdout.splitlines())


def pairs(boxes: Sequence[dict[str, str]]) -> list[tuple[str, str]]:
    return [(box["name"], box["address"]) for box in boxes]


@pytest.mark.timeout(300)
@pytest.mark.soak(small="::test_text_html_and_an_image_are_read_back_by_both_parsers")
def test_every_address_subject_and_filename_is_read_back_by_both_parsers() -> None:
    expected = [written(number) for number in range(MESSAGES)]
    found = read_back([one.raw for one in expected])
    for number, (one, both) in enumerate(zip(expected, found, strict=True)):
        for parser in PARSERS:
            said, where = both[parser], f"message {number}, {parser}"
            assert said["subject"] == one.subject, where
            assert pairs(said["from"]) == [one.sender], where
            assert pairs(said["to"]) == [("", box) for box in one.receivers], where
            assert pairs(said["cc"]) == one.cc, where
            assert pairs(said["reply_to"]) == one.reply_to, where
            assert [file["filename"] for file in said["files"]] == one.filenames, where
            assert said["text"].replace("\r\n", "\n").rstrip("\n") == one.text.rstrip("\n"), where
            contents = [b64decode(file["content"]).decode() for file in said["files"]]
            assert contents == one.filenames, where


def test_no_line_is_longer_than_the_standard_allows() -> None:
    for number in range(0, MESSAGES, 7):
        lines = written(number).raw.split(b"\r\n")
        assert max(map(len, lines)) <= 998
        assert b"".join(lines).isascii()


def test_sixty_long_addresses_are_sixty_lines_and_no_line_of_2000_octets() -> None:
    receivers = [f"{'x' * 64}@{'d' * 60}.{n}.example.com" for n in range(61)]
    raw = message(receivers, "a@example.com", {"subject": "x", "text": "y", "to": "together"})
    assert max(map(len, raw.split(b"\r\n"))) <= 998
    (both,) = read_back([raw])
    for parser in PARSERS:
        assert [box["address"] for box in both[parser]["to"]] == receivers


def test_text_html_and_an_image_are_read_back_by_both_parsers() -> None:
    image = {"filename": "标志.png", "content": b64encode(b"\x89PNG").decode(), "cid": "logo"}
    html = '<p>您好 <img src="cid:logo"> ' + "x" * 2_000 + "=20 </p>"
    content = {"subject": "您好", "text": "plain", "html": html, "attachments": [image]}
    (both,) = read_back([message(["ann@example.com"], "a@example.com", content)])
    assert both["postal-mime"]["html"].rstrip("\n") == html
    shown = both["mailparser"]["html"]  # it puts the image in the place of its cid
    assert shown.startswith('<p>您好 <img src="data:image/png;base64,')
    assert shown.rstrip("\n").endswith("x" * 2_000 + "=20 </p>")
    for parser in PARSERS:
        assert both[parser]["text"].rstrip("\n") == "plain"
        assert [file["filename"] for file in both[parser]["files"]] == ["标志.png"]
