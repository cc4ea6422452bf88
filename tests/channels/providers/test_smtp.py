"""E-mail by SMTP: literal bytes out, replies in, and both against a real mail server."""

import socket
from base64 import b64encode
from collections.abc import Iterator, Sequence
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from channels.channel import Account, Call, Channel, Failure, Phase
from channels.engine import Engine
from channels.providers.email_smtp.adapter import CHANNELS, SmtpChannel
from channels.providers.email_smtp.replies import ERRORS
from channels.registry import AccountError, load_accounts
from channels.smtp_client.mail_request import (
    Envelope,
    SmtpReply,
    SmtpReplySet,
    SmtpStage,
    envelope_of,
    written_told,
)
from channels.smtp_client.transport import SmtpTransport
from channels.transports import TransportRouter
from message.delivery import Delivery, deliveries_of
from message.envelope import Notification, Template
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from sending.accounts.circuit_breaker import CallVerdict, judgement_of
from simulator import Faults, Simulator
from simulator.servers.certificates import Authority
from tests.channels.smtp_server import Act, MailServer
from tests.harness.simulators import spawn

CHANNEL: SmtpChannel = CHANNELS[0]
ACCOUNT: dict[str, Any] = {
    "provider": "smtp",
    "endpoint": "smtp://mail.example.com",
    "sender": "鸿雁 <no-reply@example.com>",
    "user": "simulator-id",
    "password": "simulator-secret",
}
CREATED_AT = 1_790_000_000_000


def account(**changes: Any) -> Account:
    table = {key: value for key, value in {**ACCOUNT, **changes}.items() if value is not None}
    return load_accounts({"mail": table})["mail"]


def deliveries(
    *receivers: str, message_id: str = "m-1", template: Template | None = None, **content: Any
) -> list[Delivery]:
    given = {"subject": "Hello", "text": "Dear you,\n.\nbye\n", **content}
    notification = Notification(
        id=message_id,
        channel="email",
        kind="notice",
        receivers=list(receivers or ("ann@example.com",)),
        content=None if template else {k: v for k, v in given.items() if v is not None},
        template=template,
        created_at=CREATED_AT,
    )
    return deliveries_of(notification, b"envelope", expires_at=2**50)


def call(*receivers: str, to_account: Account | None = None, **content: Any) -> Call:
    return Call(to_account or account(), deliveries(*receivers, **content))


def sent(of: Call) -> tuple[Envelope, EmailMessage]:
    request = CHANNEL.request(of)
    parsed = message_from_bytes(request.read(), policy=policy.default)
    assert isinstance(parsed, EmailMessage)
    assert [part.defects for part in parsed.walk() if part.defects] == []
    return request.extensions["smtp"], parsed


def text_of(part: EmailMessage) -> str:
    return str(part.get_content()).replace("\r\n", "\n")


def test_the_message_is_these_bytes() -> None:
    one = call("Ann@EXAMPLE.com", headers={"X-Order": "1001"})
    key = one.deliveries[0].key
    assert CHANNEL.request(one).read().decode() == (
        f"Message-ID: <{key}@example.com>\r\n"
        "Date: Mon, 21 Sep 2026 14:13:20 +0000\r\n"
        "From: =?utf-8?b?6bi/6ZuB?= <no-reply@example.com>\r\n"
        "To: Ann@example.com\r\n"
        "Subject: Hello\r\n"
        "Auto-Submitted: auto-generated\r\n"
        "X-Order: 1001\r\n"
        'Content-Type: text/plain; charset="utf-8"\r\n'
        "Content-Transfer-Encoding: quoted-printable\r\n"
        "MIME-Version: 1.0\r\n"
        "\r\n"
        "Dear you,\r\n"
        ".\r\n"
        "bye\r\n"
    )


def test_the_request_keeps_addresses_and_login_out_of_what_is_logged() -> None:
    request = CHANNEL.request(call("ann@example.com", bcc=["boss@example.com"]))
    assert (request.method, str(request.url)) == ("MAIL", "smtp://mail.example.com")
    shown = repr(request) + repr(request.headers) + str(request.url)
    assert not any(word in shown for word in ("ann@", "boss@", "simulator"))
    envelope: Envelope = request.extensions["smtp"]
    assert envelope.login is not None
    assert (envelope.login.user, envelope.tls) == ("simulator-id", "starttls")
    assert "simulator-secret" not in repr(envelope)


FILES = [
    {"filename": "发票.pdf", "content": b64encode(b"invoice").decode()},
    {"filename": "a.csv", "content": b64encode(b"a,b\n").decode(), "type": "text/csv"},
    {"filename": "logo.png", "content": b64encode(b"image").decode(), "cid": "logo"},
]


def test_text_html_images_and_several_attachments_stand_where_mail_programs_look() -> None:
    html = '<p>您好 <img src="cid:logo"></p>'
    _, message = sent(call(text="您好", html=html, attachments=FILES))
    shape = [part.get_content_type() for part in message.walk()]
    assert shape == [
        "multipart/mixed",
        "multipart/alternative",
        "text/plain",
        "multipart/related",
        "text/html",
        "image/png",
        "application/pdf",
        "text/csv",
    ]
    parts = {part.get_content_type(): part for part in message.walk()}
    assert text_of(parts["text/plain"]) == "您好\n"
    assert text_of(parts["text/html"]) == html + "\n"
    assert parts["image/png"]["Content-ID"] == "<logo>"
    assert parts["image/png"].get_content_disposition() == "inline"
    assert [one.get_filename() for one in message.iter_attachments()] == ["发票.pdf", "a.csv"]
    assert parts["application/pdf"].get_content() == b"invoice"


def test_html_alone_is_the_message() -> None:
    _, message = sent(call(text=None, html="<p>x</p>", attachments=FILES[2:]))
    assert [part.get_content_type() for part in message.walk()] == [
        "multipart/related",
        "text/html",
        "image/png",
    ]


def test_the_same_call_has_the_same_bytes_and_another_has_not() -> None:
    first, again = (CHANNEL.request(call(html="<p>", attachments=FILES)).read() for _ in range(2))
    other = call(html="<p>", attachments=FILES, message_id="m-2")
    assert first == again
    assert CHANNEL.request(other).read() != first


def test_a_repeat_keeps_the_name_that_the_ledger_has_of_the_call() -> None:
    one = call()
    one.deliveries[0].call_key = "f" * 32
    _, message = sent(one)
    assert message["Message-ID"] == f"<{'f' * 32}@example.com>"


def test_every_line_fits_whatever_is_in_the_content() -> None:
    link = "<https://example.com/unsubscribe?" + "t" * 300 + ">"
    _, message = sent(
        one := call(
            text="长" * 5_000,
            html="<p>" + "x" * 5_000,
            subject="很长的主题" * 60,
            cc=[f"某人 {n} <cc{n}@example.com>" for n in range(40)],
            headers={"List-Unsubscribe": link},
        )
    )
    raw = CHANNEL.request(one).read()
    assert max(len(line) for line in raw.split(b"\r\n")) <= 998
    assert raw.isascii()
    assert b"List-Unsubscribe: " + link.encode() in raw
    assert message["Subject"] == "很长的主题" * 60
    assert len(message["Cc"].addresses) == 40


def test_no_content_can_end_a_part_of_the_message() -> None:
    one = call()
    boundary = f"--=_{one.deliveries[0].key}_0"
    text = f"{boundary}\n{boundary}--\n"
    again = call(text=text, html=text, attachments=FILES[:1])
    _, message = sent(again)
    assert [part.get_content_type() for part in message.walk()].count("text/plain") == 1
    plain = message.get_body(("plain",))
    assert isinstance(plain, EmailMessage)
    assert text_of(plain) == text


def test_copies_are_in_the_envelope_and_bcc_nowhere_else() -> None:
    envelope, message = sent(
        one := call(
            cc=["Boss <boss@example.com>"],
            bcc=["log@example.com", "ann@example.com", "boss@example.com"],
            reply_to=["help@example.com"],
        )
    )
    assert envelope.receivers == ("ann@example.com",)
    assert envelope.copies == ("boss@example.com", "log@example.com")
    assert (message["Cc"], message["Reply-To"]) == ("Boss <boss@example.com>", "help@example.com")
    assert b"log@example.com" not in CHANNEL.request(one).read()


def test_bounces_go_where_the_account_wants_them() -> None:
    envelope, message = sent(call(to_account=account(bounce_to="bounces@example.com")))
    assert envelope.sender == "bounces@example.com"
    assert "no-reply@example.com" in message["From"]


def test_receivers_see_nobody_else_unless_the_content_says_so() -> None:
    each = deliveries("a@example.com", "b@example.com")
    assert CHANNEL.batch_key(each[0]) != CHANNEL.batch_key(each[1])
    _, message = sent(Call(account(), each[:1]))
    assert message["To"] == "a@example.com"


def test_receivers_who_see_one_another_join_and_those_of_others_do_not() -> None:
    one = deliveries("a@example.com", "b@example.com", to="together")
    other = deliveries("c@example.com", to="together", message_id="m-2")
    assert CHANNEL.batch_key(one[0]) == CHANNEL.batch_key(one[1])
    assert CHANNEL.batch_key(one[0]) != CHANNEL.batch_key(other[0])
    stranger = msgspec.structs.replace(one[1], payload=b"another body under the same id")
    assert CHANNEL.batch_key(one[0]) != CHANNEL.batch_key(stranger)


def test_a_split_notification_names_all_its_receivers_and_copies_go_out_once() -> None:
    both = deliveries(
        "nobody", "a@example.com", "b@example.com", to="together", cc=["boss@example.com"]
    )[1:]
    for one, copies in ((both[:1], ("boss@example.com",)), (both[1:], ()), (both, 1)):
        envelope, message = sent(Call(account(), one))
        assert message["To"] == "a@example.com, b@example.com"
        assert envelope.receivers == tuple(d.receiver for d in one)
        assert envelope.copies == copies or len(envelope.copies) == copies


def test_a_receiver_in_another_call_of_the_mail_gets_no_copy() -> None:
    both = deliveries("a@example.com", "b@example.com", to="together", cc=["b@example.com"])
    envelope, _ = sent(Call(account(), both[:1]))
    assert (envelope.receivers, envelope.copies) == (("a@example.com",), ())


def at_first(receiver: str, reply: str) -> Act:
    """Refuses this receiver's first RCPT."""
    refusals = [reply]

    def act(server: MailServer, connection: socket.socket) -> bool:
        refused = refusals.pop() if refusals and receiver in server.commands[-1] else "250 fine"
        connection.sendall(refused.encode() + b"\r\n")
        return True

    return act


@pytest.mark.parametrize(
    ("reply", "kind", "with_others"),
    [
        ("450 4.2.0 greylisted", NotSent, False),
        ("552 5.5.3 too many recipients", NotSent, False),
        ("550 5.1.1 no such mailbox", Rejected, True),
        ("552 5.2.2 mailbox full", Rejected, True),
    ],
)
def test_copies_wait_for_the_first_receiver_unless_refused_for_good(
    reply: str, kind: type[AnyOutcome], with_others: bool
) -> None:
    both = deliveries("a@example.com", "b@example.com", to="together", bcc=["boss@example.com"])
    copy, transport = "RCPT TO:<boss@example.com>", SmtpTransport()
    with MailServer({"RCPT": at_first("a@", reply)}) as server:
        plain = account(
            endpoint=f"smtp://127.0.0.1:{server.port}", tls="none", user=None, password=None
        )
        engine = Engine(transport)
        found = engine.send(CHANNEL, Call(plain, both), 5.0)
        assert [type(one) for one in found] == [kind, Accepted]
        assert (copy in server.commands) is with_others
        if kind is NotSent:
            (again,) = engine.send(CHANNEL, Call(plain, both[:1]), 5.0)
            assert isinstance(again, Accepted)
        assert server.commands.count(copy) == 1
    transport.close()


def test_an_international_domain_travels_in_ascii() -> None:
    envelope, message = sent(call("ann@例子.中国"))
    assert envelope.receivers == ("ann@xn--fsqu00a.xn--fiqs8s",)
    assert message["To"] == "ann@xn--fsqu00a.xn--fiqs8s"


def test_the_accounts_own_server_gets_addresses_of_its_network() -> None:
    own = account(sender="Alerts <alerts@corp.local>", bounce_to="root@[192.0.2.1]")
    of = call(
        "ops@corp.local", "ops@[192.0.2.2]", to_account=own, to="together", cc=["root@localhost"]
    )
    assert [CHANNEL.refusal(own, one) for one in of.deliveries] == ["", ""]
    envelope, message = sent(of)
    assert envelope_of(CHANNEL.request(of)).receivers == envelope.receivers
    assert envelope.sender == "root@[192.0.2.1]"
    assert (envelope.receivers, envelope.copies) == (
        ("ops@corp.local", "ops@[192.0.2.2]"),
        ("root@localhost",),
    )
    assert (message["From"], message["To"], message["Cc"]) == (
        "Alerts <alerts@corp.local>",
        "ops@corp.local, ops@[192.0.2.2]",
        "root@localhost",
    )
    assert message["Message-ID"] == f"<{of.key}@corp.local>"


@pytest.mark.parametrize(
    ("receiver", "content", "code"),
    [
        ("ann", {}, "bad_receiver"),
        ("ann@example", {}, "bad_receiver"),
        ("安@example.com", {}, "bad_receiver"),
        ("ann@example.com", {"subject": ""}, "bad_content"),
        ("ann@example.com", {"subject": "a\r\nBcc: x@example.com"}, "bad_content"),
        ("ann@example.com", {"subject": None}, "bad_content"),
        ("ann@example.com", {"text": None}, "bad_content"),
        ("ann@example.com", {"text": "\ud800"}, "bad_content"),
        ("ann@example.com", {"body": "x"}, "bad_content"),
        ("ann@example.com", {"to": "all"}, "bad_content"),
        ("ann@example.com", {"cc": ["boss"]}, "bad_address"),
        ("ann@example.com", {"cc": ["A\nB <boss@example.com>"]}, "bad_content"),
        ("ann@example.com", {"bcc": ["a@example.com"] * 51}, "bad_content"),
        ("ann@example.com", {"reply_to": ["x <y>"]}, "bad_address"),
        ("ann@example.com", {"headers": {"From": "x@example.com"}}, "bad_header"),
        ("ann@example.com", {"headers": {"Content-Type": "text/html"}}, "bad_header"),
        ("ann@example.com", {"headers": {"X: Y": "z"}}, "bad_header"),
        ("ann@example.com", {"headers": {"X-A": "1", "x-a": "2"}}, "bad_header"),
        ("ann@example.com", {"headers": {"X-A": "1\nBcc: x@example.com"}}, "bad_content"),
        ("ann@example.com", {"headers": {"X-A": "x" * 901}}, "bad_content"),
        ("ann@example.com", {"attachments": [{"filename": "a", "content": "!"}]}, "bad_content"),
        ("ann@example.com", {"attachments": [{"filename": "", "content": ""}]}, "bad_attachment"),
        ("ann@example.com", {"attachments": FILES[2:]}, "bad_attachment"),
        (
            "ann@example.com",
            {"html": "x", "attachments": [{**FILES[2], "cid": "a b"}]},
            "bad_attachment",
        ),
        ("ann@example.com", {"html": "x", "attachments": FILES[2:] * 2}, "bad_attachment"),
        (
            "ann@example.com",
            {"attachments": [{**FILES[0], "type": "multipart/mixed"}]},
            "bad_attachment",
        ),
    ],
)
def test_what_cannot_be_sent_is_refused_before_it_is_claimed(
    receiver: str, content: dict[str, Any], code: str
) -> None:
    (one,) = deliveries(receiver, **content)
    refused = CHANNEL.refusal(account(), one)
    assert refused.startswith(f"{code}: ")
    assert "\n" not in refused


def test_a_providers_template_cannot_be_sent_by_smtp() -> None:
    (one,) = deliveries(template=Template("T1"))
    assert CHANNEL.refusal(account(), one).startswith("no_content: ")


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"tls": "none"}, True),
        ({"tls": "none", "endpoint": "smtp://127.0.0.1:25"}, False),
        ({"tls": "none", "endpoint": "smtp://localhost"}, False),
        ({"endpoint": "smtps://mail.example.com:465"}, False),
    ],
)
def test_mail_leaves_this_machine_over_tls_alone(changes: dict[str, str], refused: bool) -> None:
    (one,) = deliveries()
    assert CHANNEL.refusal(account(**changes), one).startswith("tls_required: ") is refused


@pytest.mark.parametrize(
    "changes",
    [
        {"sender": "nobody"},
        {"sender": None},
        {"bounce_to": "x"},
        {"password": None},
        {"user": None},
        {"tls": "maybe"},
        {"hello": "a\nb"},
        {"endpoint": "https://mail.example.com"},
        {"endpoint": None},
        {"colour": "red"},
    ],
)
def test_an_account_that_cannot_work_is_told_at_start(changes: dict[str, Any]) -> None:
    with pytest.raises(AccountError) as told:
        account(**changes)
    assert "simulator-secret" not in str(told.value)


# ---- answers ---------------------------------------------------------------------------------


def outcomes(
    stage: SmtpStage, code: int, receivers: Sequence[int] = (), size: int = 1
) -> list[AnyOutcome]:
    told = SmtpReplySet(
        stage, SmtpReply(code, "said"), [SmtpReply(one, "own") for one in receivers]
    )
    of = call(*(f"u{n}@example.com" for n in range(size)), to="together")
    return CHANNEL.outcomes(of, httpx.Response(250, content=written_told(told)))


@pytest.mark.parametrize("row", ERRORS.rows, ids=lambda row: row.code)
def test_every_row_is_what_a_receiver_or_a_message_gets(row: Any) -> None:
    kinds = {"rejected": Rejected, "not_sent": NotSent}
    for found in (
        outcomes(SmtpStage.FINAL, int(row.code), [250]),
        outcomes(SmtpStage.FINAL, 250, [int(row.code)]),
        outcomes(SmtpStage.DATA, int(row.code), [250]),
    ):
        assert [type(one) for one in found] == [kinds[row.kind]]
        assert [(one.code, one.account) for one in found] == [(row.code, row.account)]  # type: ignore[union-attr]


def test_the_message_id_is_the_name_of_what_was_accepted() -> None:
    one = call()
    told = SmtpReplySet(SmtpStage.FINAL, SmtpReply(250, "queued"), [SmtpReply(250)])
    answer = httpx.Response(250, content=written_told(told))
    assert CHANNEL.outcomes(one, answer) == [Accepted(f"{one.deliveries[0].key}@example.com")]


def test_each_receiver_has_an_outcome_of_its_own() -> None:
    found = outcomes(SmtpStage.FINAL, 250, [250, 550, 450], size=3)
    assert [type(one) for one in found] == [Accepted, Rejected, NotSent]
    found = outcomes(SmtpStage.FINAL, 451, [250, 550, 450], size=3)
    assert [type(one) for one in found] == [NotSent, Rejected, NotSent]
    found = outcomes(SmtpStage.RCPT, 421, [250, 421], size=3)
    assert [type(one) for one in found] == [NotSent] * 3


@pytest.mark.parametrize(
    ("text", "before", "kind"),
    [
        ("too many recipients", [250], NotSent),
        ("5.5.3 too many recipients", [250], NotSent),
        ("5.5.3 too many recipients", [], NotSent),
        ("5.2.2 mailbox full", [250], Rejected),
        ("mailbox full", [], Rejected),
        ("mailbox full", [550], Rejected),
    ],
)
def test_552_to_rcpt_is_too_many_receivers_only_where_it_can_be(
    text: str, before: list[int], kind: type[AnyOutcome]
) -> None:
    replies = [SmtpReply(code, "own") for code in before]
    told = SmtpReplySet(SmtpStage.FINAL, SmtpReply(250, "queued"), [*replies, SmtpReply(552, text)])
    of = call(*(f"u{n}@example.com" for n in range(len(before) + 1)), to="together")
    found = CHANNEL.outcomes(of, httpx.Response(250, content=written_told(told)))
    assert type(found[-1]) is kind
    (after_the_dot,) = outcomes(SmtpStage.FINAL, 552, [250])
    assert isinstance(after_the_dot, Rejected)


@pytest.mark.parametrize(
    ("stage", "code", "text", "limit"),
    [
        (
            SmtpStage.RCPT,
            450,
            "4.2.1 The user is receiving mail at a rate that prevents",
            "receiver",
        ),
        (SmtpStage.MAIL, 450, "4.7.1 Error: too much mail from 192.0.2.1", "account"),
        (SmtpStage.RCPT, 450, "4.7.1 Error: too many recipients from 192.0.2.1", "account"),
        (SmtpStage.GREETING, 421, "4.7.0 mx Error: too many connections from 192.0.2.1", "account"),
        (SmtpStage.FINAL, 454, "Throttling failure: Maximum sending rate exceeded.", "account"),
        (SmtpStage.MAIL, 432, "4.3.2 Concurrent connections limit exceeded.", "account"),
        (
            SmtpStage.FINAL,
            421,
            "4.4.2 Message submission rate for this client has exceeded",
            "account",
        ),
        (SmtpStage.RCPT, 452, "4.5.3 Error: too many recipients", None),
        (SmtpStage.RCPT, 450, "4.2.0 greylisted, come back later", None),
        (SmtpStage.FINAL, 451, "4.3.0 queue file write error", None),
        (SmtpStage.AUTH, 454, "4.7.0 Temporary authentication failure", None),
    ],
)
def test_a_refusal_whose_text_names_a_rate_only_paces(
    stage: SmtpStage, code: int, text: str, limit: str | None
) -> None:
    receivers = [SmtpReply(code, text)] if stage is SmtpStage.RCPT else [SmtpReply(250)]
    told = SmtpReplySet(stage, SmtpReply(code, text), receivers)
    (found,) = CHANNEL.outcomes(call(), httpx.Response(code, content=written_told(told)))
    assert isinstance(found, NotSent)
    assert found.limit == limit
    assert (limit is None) or not found.account


def test_a_days_quota_is_waited_for_and_another_account_may_send_at_once() -> None:
    told = SmtpReplySet(
        SmtpStage.FINAL, SmtpReply(454, "Throttling failure: Daily message quota exceeded.")
    )
    (found,) = CHANNEL.outcomes(call(), httpx.Response(454, content=written_told(told)))
    assert isinstance(found, NotSent)
    assert (found.limit, found.retry_after_ms, found.account) == ("account", 3_600_000, True)


def replied(
    stage: SmtpStage, code: int, text: str, to_account: Account | None = None
) -> AnyOutcome:
    """Returns the outcome of the only receiver."""
    receivers = [SmtpReply(code, text)] if stage is SmtpStage.RCPT else [SmtpReply(250)]
    told = SmtpReplySet(stage, SmtpReply(code, text), receivers)
    of = call(to_account=to_account)
    (found,) = CHANNEL.outcomes(of, httpx.Response(code, content=written_told(told)))
    return found


def test_a_word_of_a_rate_alone_paces_no_refusal_for_good() -> None:
    text = "5.7.1 rate limit exceeded for good"
    assert replied(SmtpStage.FINAL, 550, text) == Rejected("550", text)


@pytest.mark.parametrize(
    ("code", "text", "wait_ms"),
    [
        (550, "5.4.5 Daily user sending limit exceeded. For more information on Gmail", 3_600_000),
        (550, "5.4.5 Daily sending quota exceeded. x-y - gsmtp", 3_600_000),
        (550, "5.7.1 Daily SMTP relay limit exceeded for customer.", 3_600_000),
        (550, "5.7.1 Email quota exceeded.", 3_600_000),
        (
            550,
            "5.1.90 Your message can't be sent: you've reached your daily limit for message recipients",
            3_600_000,
        ),
        (550, "Sender frequency limited. http://service.mail.qq.com/cgi-bin/help", 60_000),
    ],
)
@pytest.mark.parametrize("stage", [SmtpStage.MAIL, SmtpStage.RCPT, SmtpStage.FINAL])
def test_a_quota_of_the_account_only_paces_though_refused_for_good(
    stage: SmtpStage, code: int, text: str, wait_ms: int
) -> None:
    found = replied(stage, code, text)
    assert found == NotSent(str(code), text, wait_ms, True, Limit.ACCOUNT)
    assert judgement_of([found]) is CallVerdict.WELL


_UNVERIFIED = (
    "Message rejected: Email address is not verified. The following identities failed the check in"
    " region EU-WEST-1: "
)


@pytest.mark.parametrize(
    ("stage", "code", "text", "limit"),
    [
        (SmtpStage.FINAL, 554, f"{_UNVERIFIED}ann@example.com, No-Reply@example.com", None),
        (SmtpStage.FINAL, 554, f"{_UNVERIFIED}=?utf-8?b?6bi/6ZuB?= <no-reply@example.com>", None),
        (
            SmtpStage.FINAL,
            554,
            "Access denied: User `arn:aws:iam::1:user/x` is not authorized to perform `ses:SendRawEmail`",
            None,
        ),
        (
            SmtpStage.FINAL,
            554,
            "Access denied: User x is not authorized to perform ses:SendRawEmail",
            None,
        ),
        (
            SmtpStage.FINAL,
            554,
            "5.2.0 STOREDRV.Submission.Exception:SendAsDeniedException.MapiExceptionSendAsDenied;",
            None,
        ),
        (
            SmtpStage.FINAL,
            550,
            "5.7.60 SMTP; Client does not have permissions to send as this sender",
            None,
        ),
        (SmtpStage.FINAL, 550, "5.1.8 Access denied, bad outbound sender", None),
        (
            SmtpStage.RCPT,
            553,
            "5.7.1 <no-reply@example.com>: Sender address rejected: not owned by user simulator-id",
            None,
        ),
        (
            SmtpStage.RCPT,
            550,
            "5.1.8 <no-reply@example.com>: Sender address rejected: Domain not found",
            None,
        ),
        (SmtpStage.FINAL, 554, "Message rejected: Sending paused for this account.", Limit.LOGIN),
        (
            SmtpStage.FINAL,
            554,
            "Message rejected: Sending suspended for this account.",
            Limit.LOGIN,
        ),
        (
            SmtpStage.RCPT,
            550,
            "5.7.705 Access denied, tenant has exceeded threshold. For more information",
            Limit.LOGIN,
        ),
        (SmtpStage.MAIL, 550, "5.7.1 rate limit exceeded for good", None),
        (SmtpStage.MAIL, 501, "mail from address must be same as authorization user", None),
        (SmtpStage.MAIL, 501, "<no-reply@example.com>: sender address must contain a domain", None),
        (SmtpStage.MAIL, 501, "5.1.7 Bad address syntax", None),
        (SmtpStage.MAIL, 501, "5.1.8 Bad address", None),
        (SmtpStage.MAIL, 553, "Mail from must equal authorized user", None),
        (SmtpStage.MAIL, 554, "5.7.1 refused", None),
    ],
)
def test_a_refused_sender_or_permission_halts_the_account_and_ends_no_mail(
    stage: SmtpStage, code: int, text: str, limit: Limit | None
) -> None:
    found = replied(stage, code, text)
    assert found == NotSent(str(code), text, 60_000, True, limit)
    assert judgement_of([found]) is CallVerdict.HALTED


@pytest.mark.parametrize(
    ("stage", "code", "text"),
    [
        (
            SmtpStage.RCPT,
            550,
            "5.1.1 <exception-sendasdenied@example.com>: Recipient address rejected",
        ),
        (SmtpStage.RCPT, 552, "5.2.2 The email account that you tried to reach is over quota"),
        (SmtpStage.RCPT, 552, "5.2.2 Email quota exceeded"),
        (SmtpStage.RCPT, 550, "Email quota exceeded for the recipient"),
        (SmtpStage.RCPT, 550, "5.2.1 The user is receiving mail at a rate that prevents"),
        (SmtpStage.RCPT, 550, "Mailbox unavailable or access denied"),
        (
            SmtpStage.RCPT,
            554,
            "5.7.1 <no-reply@example.com>: Sender address rejected: Access denied",
        ),
        (SmtpStage.FINAL, 554, f"{_UNVERIFIED}ann@example.com"),
        (SmtpStage.FINAL, 554, f"{_UNVERIFIED}not-no-reply@example.com"),
        (SmtpStage.FINAL, 554, "5.6.0 Message contents rejected"),
        (SmtpStage.MAIL, 552, "5.3.4 Message size exceeds fixed limit"),
        (SmtpStage.MAIL, 554, "5.3.4 Message too big for system"),
        (SmtpStage.MAIL, 501, "5.5.4 Syntax: MAIL FROM:<address>"),
        (SmtpStage.MAIL, 555, "5.5.4 Unsupported option: SIZE"),
    ],
)
def test_a_refusal_of_one_receiver_or_message_says_nothing_of_the_account(
    stage: SmtpStage, code: int, text: str
) -> None:
    found = replied(stage, code, text)
    assert found == Rejected(str(code), text)


def test_the_address_for_bounces_is_a_sender_of_the_account_too() -> None:
    bounces = account(bounce_to="Bounces@example.com")
    found = replied(SmtpStage.FINAL, 554, f"{_UNVERIFIED}bounces@example.com.", bounces)
    assert isinstance(found, NotSent)
    assert found.account


def test_who_was_refused_is_so_whatever_became_of_the_message() -> None:
    told = SmtpReplySet(
        SmtpStage.FINAL, SmtpReply(-1, "gone"), [SmtpReply(250), SmtpReply(550, "own")], "reset"
    )
    of = call("u0@example.com", "u1@example.com", to="together")
    found = CHANNEL.outcomes(of, httpx.Response(250, content=written_told(told)))
    assert found == [Unknown("reset", "gone"), Rejected("550", "own")]


_OF_SENDERS = (550, 551, 553, 554, 556)


@pytest.mark.parametrize(
    ("stage", "code", "expected"),
    [
        (SmtpStage.FINAL, 499, NotSent("499", "said")),
        (SmtpStage.FINAL, 599, Rejected("599", "said")),
        (SmtpStage.FINAL, 354, Unknown("protocol", "354 is no answer to a message: said")),
        (SmtpStage.FINAL, -1, Unknown("protocol", "-1 is no answer to a message: said")),
        (SmtpStage.DATA, 250, NotSent("protocol", "250 is no answer to data: said")),
        *((SmtpStage.MAIL, n, NotSent(str(n), "said", 60_000, True)) for n in _OF_SENDERS),
        (SmtpStage.MAIL, 501, Rejected("501", "said")),
        (SmtpStage.MAIL, 552, Rejected("552", "said")),
        (SmtpStage.GREETING, 554, NotSent("554", "said", 60_000, True)),
        (SmtpStage.HELLO, 550, NotSent("550", "said", 60_000, True)),
        (SmtpStage.AUTH, 535, NotSent("535", "said", 60_000, True, Limit.LOGIN)),
        (SmtpStage.AUTH, 550, NotSent("550", "said", 60_000, True, Limit.LOGIN)),
        (SmtpStage.STARTTLS, 454, NotSent("454", "said", 60_000, True)),
        (SmtpStage.GREETING, 421, NotSent("421", "said")),
    ],
)
def test_codes_are_read_by_their_stage(stage: SmtpStage, code: int, expected: AnyOutcome) -> None:
    assert outcomes(stage, code) == [expected]


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"stage":"lunch","reply":{"code":1}}'])
def test_an_answer_that_cannot_be_read_is_in_doubt(content: bytes) -> None:
    (found,) = CHANNEL.outcomes(call(), httpx.Response(250, content=content))
    assert isinstance(found, Unknown)


def test_a_failure_is_judged_by_what_was_written() -> None:
    for phase, kind in ((Phase.NOT_WRITTEN, NotSent), (Phase.WRITTEN, Unknown)):
        found = CHANNEL.outcomes(call("a@x.com", "b@x.com"), Failure(phase, "reset"))
        assert [type(one) for one in found] == [kind, kind]


# ---- a real mail server ----------------------------------------------------------------------


class Post:
    """Sends through one simulator, over STARTTLS and with a login."""

    def __init__(self, provider: Simulator, authority: Authority) -> None:
        self.provider = provider
        endpoint = provider.smtp.replace("127.0.0.1", "localhost")
        self.account = account(endpoint=endpoint, ca_file=str(authority.file))
        self.wires = TransportRouter()
        self.engine = Engine(self.wires)

    def send(self, *receivers: str, timeout_s: float = 5.0, **content: Any) -> list[AnyOutcome]:
        of = call(*receivers, to_account=self.account, to="together", **content)
        channel: Channel = CHANNEL
        return self.engine.send(channel, of, timeout_s)


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    authority = Authority(tmp_path)
    authority.server("localhost")
    certificate = str(tmp_path / "localhost.pem")
    with spawn(tmp_path, smtp_port=0, smtp_certificate=certificate) as provider:
        made = Post(provider, authority)
        yield made
        made.wires.close()


def test_a_mail_is_accepted_over_tls_and_in_the_ledger_once(post: Post) -> None:
    (outcome,) = post.send("ann@example.com", html="<p>您好</p>", attachments=FILES[:2])
    (record,) = post.provider.records()
    assert outcome == Accepted(record.provider_id)
    assert (record.receiver, record.accepted, record.answer) == ("ann@example.com", True, "250")
    assert f"{record.id}@example.com" == record.provider_id


def test_a_mail_in_the_own_network_is_accepted(post: Post) -> None:
    found = post.send("ops@corp.local", "ops@[192.0.2.2]")
    assert [type(one) for one in found] == [Accepted, Accepted]
    receivers = {record.receiver for record in post.provider.records()}
    assert receivers == {"ops@corp.local", "ops@[192.0.2.2]"}


def test_a_wrong_password_sends_nothing_and_halts_the_account(post: Post) -> None:
    table = {**ACCOUNT, "password": "guessed", "ca_file": post.account.ca_file}
    post.account = load_accounts({"m": {**table, "endpoint": post.account.endpoint}})["m"]
    (outcome,) = post.send()
    assert isinstance(outcome, NotSent)
    assert (outcome.code, outcome.account) == ("535", True)
    assert list(post.provider.records()) == []
    assert post.provider.report().summary.counts.get("smtp.logins_refused")


def test_one_bad_receiver_is_refused_alone(post: Post) -> None:
    post.provider.control(rules=[Faults(receiver="b@", receiver_codes={"550": 1})])
    found = post.send("a@example.com", "b@example.com", "c@example.com")
    assert [type(one) for one in found] == [Accepted, Rejected, Accepted]
    seen = {record.receiver: record.accepted for record in post.provider.records()}
    assert seen == {"a@example.com": True, "b@example.com": False, "c@example.com": True}


@pytest.mark.parametrize(
    ("faults", "kind", "accepted"),
    [
        (Faults(reset=1), Unknown, [True]),
        (Faults(close=1), Unknown, [True]),
        (Faults(hang=1), Unknown, [True]),
        (Faults(drip=1, drip_ms=300), Unknown, [True]),
        (Faults(drop=1), Unknown, [False]),
        (Faults(errors={"502": 1}), Unknown, [False]),
        (Faults(codes={"451": 1}), NotSent, [False]),
        (Faults(codes={"554": 1}, accept_errors=True), Rejected, [True]),
        (Faults(codes={"rcpt:452": 1}), NotSent, [False]),
        (Faults(codes={"data:451": 1}), NotSent, []),
        (Faults(codes={"mail:421": 1}), NotSent, []),
        (Faults(codes={"mail:553 Mail from must equal authorized user": 1}), NotSent, []),
        (Faults(codes={"final:550 5.4.5 Daily user sending limit exceeded": 1}), NotSent, [False]),
        (Faults(codes={"auth:454": 1}), NotSent, []),
        (Faults(codes={"hello:521": 1}), NotSent, []),
        (Faults(latency_ms="20"), Accepted, [True]),
    ],
    ids=lambda value: msgspec.json.encode(value).decode() if isinstance(value, Faults) else None,
)
@pytest.mark.parametrize("kept", [False, True])
def test_every_fault_is_told_as_the_ledger_has_it(
    post: Post, faults: Faults, kind: type[AnyOutcome], accepted: list[bool], kept: bool
) -> None:
    if kept:
        post.send("first@example.com", message_id="m-0")
    before = len(list(post.provider.records()))
    post.provider.control(rules=[faults])
    # Only a server that falls silent needs the limit; a loaded machine may answer late.
    limit_s = 2.0 if faults.hang or faults.drip else 10.0
    (outcome,) = post.send("ann@example.com", timeout_s=limit_s)
    assert type(outcome) is kind
    assert [one.accepted for one in list(post.provider.records())[before:]] == accepted


def test_a_repeat_of_the_same_call_is_seen_as_a_double_with_the_same_bytes(post: Post) -> None:
    post.provider.control(rules=[Faults(reset=1)])
    post.send()
    post.provider.control(rules=[])
    post.send()
    (seen,) = post.provider.report().keys
    assert (seen.accepted, len(seen.bodies)) == (2, 1)
