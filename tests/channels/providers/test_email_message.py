"""A mail's bytes: made by hand, so that they are the same ones on any Python."""

from __future__ import annotations

from hashlib import sha256
from itertools import product
from pathlib import Path

import pytest

from channels.providers._common import email_headers as _email_headers
from channels.providers._common.email_content import Mailbox, mailbox, read_content
from channels.providers._common.email_headers import addresses, disposition, given, subject
from channels.providers.email_smtp import mime as _email_message
from channels.providers.email_smtp.mime import Heading, message_bytes

DIGEST = "bc1177366dc1cf9fef491f0596494f20ec413ab25d9c21eab32d80cc860b8536"
"""Of the messages below, by Python 3.11, 3.12 and 3.13. Another one makes a repeat of a call no repeat."""
TEXTS = (
    "Hello",
    "两个  blanks",
    "=?utf-8?q?no?=",
    "鸿雁" * 40,
    "a" * 200,
    "x  y",
    "Ünï, 100% 😀" * 9,
)


def message(text: str, name: str) -> bytes:
    heading = Heading(
        sender=Mailbox(name, "no-reply@example.com"),
        to=[Mailbox("", f"{'t' * 60}{n}@{'d' * 60}.example.com") for n in range(3)],
        key="0123456789abcdef" * 2,
        sent_at=1_790_000_000_000,
    )
    email = read_content(
        {
            "subject": text,
            "text": f"{text} \r\n.\rFrom {name}\t\n=20",
            "html": f"<p>{text}</p>",
            "cc": [f'"{name}" <cc@example.com>'],
            "headers": {
                "X-Text": text,
                "List-Unsubscribe": "<https://example.com/" + "u" * 300 + ">",
            },
            "attachments": [
                {"filename": f"{name}.pdf"[:255], "content": "aGk="},
                {"filename": "a.png", "content": "aGlo" * 40, "cid": "logo"},
            ],
        }
    )
    return message_bytes(email, heading)


def test_the_same_mails_are_the_same_bytes_on_any_python() -> None:
    whole = sha256()
    for text, name in product(TEXTS, TEXTS):
        whole.update(message(text, name))
    assert whole.hexdigest() == DIGEST


@pytest.mark.parametrize("module", [_email_headers, _email_message], ids=lambda one: one.__name__)
def test_nothing_of_it_is_the_librarys(module: object) -> None:
    source = Path(str(getattr(module, "__file__", ""))).read_text("utf-8")
    assert "from email" not in source
    assert "import email" not in source


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("Hello there", "Subject: Hello there"),
        ("鸿雁", "Subject: =?utf-8?b?6bi/6ZuB?="),
        ("two  blanks", "Subject: =?utf-8?b?dHdvICBibGFua3M=?="),
        (" led", "Subject: =?utf-8?b?IGxlZA==?="),
        ("a =?b?=", "Subject: =?utf-8?b?YSA9P2I/PQ==?="),
        (
            "word " * 20 + "end",
            "Subject: " + "word " * 12 + "word\r\n " + "word " * 7 + "end",
        ),
    ],
)
def test_a_subject_is_plain_or_encoded_whole(text: str, field: str) -> None:
    assert subject(text) == field


@pytest.mark.parametrize(
    ("written", "field"),
    [
        ("ann@example.com", "To: ann@example.com"),
        ("Ann Lee <ann@example.com>", "To: Ann Lee <ann@example.com>"),
        ('"Lee, Ann" <ann@example.com>', 'To: "Lee, Ann" <ann@example.com>'),
        ('"A \\"B\\" C" <ann@example.com>', 'To: "A \\"B\\" C" <ann@example.com>'),
        ('"a <b> c" <ann@example.com>', 'To: "a <b> c" <ann@example.com>'),
        ("鸿雁 <ann@example.com>", "To: =?utf-8?b?6bi/6ZuB?= <ann@example.com>"),
        ('"a  b" <ann@example.com>', "To: =?utf-8?b?YSAgYg==?= <ann@example.com>"),
    ],
)
def test_a_name_is_words_a_quoted_string_or_encoded(written: str, field: str) -> None:
    assert addresses("To", [mailbox(written)]) == field


def test_an_address_too_long_to_fold_has_a_line_of_its_own() -> None:
    long = f"{'x' * 64}@{'d' * 60}.example.com"
    boxes = [Mailbox("", "a@example.com"), Mailbox("", long), Mailbox("鸿雁" * 30, long)]
    lines = addresses("To", boxes).split("\r\n")
    assert lines[:2] == ["To: a@example.com,", f" {long},"]
    assert all(line.startswith(" =?utf-8?b?") and len(line) <= 76 for line in lines[2:-1])
    assert lines[-1] == f" <{long}>"


def test_a_given_field_keeps_its_ascii_words_and_encodes_the_others() -> None:
    assert given("List-Id", "鸿雁 通知 <list.example.com>") == (
        "List-Id: =?utf-8?b?6bi/6ZuBIOmAmuefpQ==?= <list.example.com>"
    )
    assert given("X-A", "a  b c") == "X-A: a  b c"
    link = f"<https://example.com/{'u' * 800}>"
    assert given("List-Unsubscribe", link) == f"List-Unsubscribe: {link}"


@pytest.mark.parametrize(
    ("filename", "said"),
    [
        ("a b.pdf", 'filename="a b.pdf"'),
        ('a".pdf', "filename*=utf-8''a%22.pdf"),
        ("发票.pdf", "filename*=utf-8''%E5%8F%91%E7%A5%A8.pdf"),
    ],
)
def test_a_filename_is_quoted_or_percent_encoded(filename: str, said: str) -> None:
    assert disposition("attachment", filename) == f"Content-Disposition: attachment; {said}"


def test_a_long_filename_is_cut_between_characters() -> None:
    lines = disposition("attachment", "发" * 20).split("\r\n")
    pieces = [line.strip(" ;").partition("=")[2] for line in lines[1:]]
    assert [line.strip().partition("=")[0] for line in lines[1:]] == [
        f"filename*{n}*" for n in range(len(pieces))
    ]
    assert "".join(pieces) == "utf-8''" + "%E5%8F%91" * 20
    assert all(piece.removeprefix("utf-8''").count("%") % 3 == 0 for piece in pieces)
