"""The simulator's mail server: as strict as a real one, and honest in its ledger."""

import smtplib
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest

from simulator import Faults, Simulator, read_ledger, spawn
from simulator.servers.certificates import Authority

HEAD = "Message-ID: <k1@x.com>\r\nDate: Mon, 21 Sep 2026 14:13:20 +0000\r\nFrom: a@x.com\r\n"
LETTER = HEAD + "To: b@x.com\r\n\r\nhello\r\n"


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Simulator]:
    with spawn(tmp_path, smtp_port=0) as simulator:
        yield simulator


def visit(office: Simulator, password: str = "simulator-secret") -> smtplib.SMTP:
    url = httpx.URL(office.smtp)
    client = smtplib.SMTP(url.host, url.port or 0, local_hostname="test", timeout=5)
    try:
        client.login("simulator-id", password)
    except smtplib.SMTPException:
        client.close()
        raise
    return client


def test_a_program_is_told_its_address_and_who_wants_none_has_none(tmp_path: Path) -> None:
    with spawn(tmp_path) as without:
        assert without.smtp == ""
    with spawn(tmp_path, smtp_port=0) as simulator:
        assert simulator.smtp.startswith("smtp://127.0.0.1:")


def test_people_are_told_its_address_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "simulator", "--smtp-port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert ", mail on smtp://127.0.0.1:" in process.stdout.readline()
        process.terminate()


def test_a_certificate_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "simulator", "--smtp-port", "0"]
    command += ["--smtp-certificate", "none.pem"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert len(ended.stderr.strip().splitlines()) == 1


def test_a_letter_is_kept_for_every_receiver(office: Simulator) -> None:
    with visit(office) as client:
        assert client.sendmail("a@x.com", ["b@x.com", "c@x.com"], LETTER) == {}
    records = list(office.records())
    assert [(one.id, one.receiver, one.accepted) for one in records] == [
        ("k1", "b@x.com", True),
        ("k1", "c@x.com", True),
    ]
    assert {(one.provider_id, one.path, one.call) for one in records} == {
        ("k1@x.com", "/smtp/a@x.com", 1)
    }
    assert office.report().keys == office.ledger_report().keys


def test_without_a_login_nothing_is_taken(office: Simulator) -> None:
    with pytest.raises(smtplib.SMTPAuthenticationError):
        visit(office, password="guessed")
    url = httpx.URL(office.smtp)
    with smtplib.SMTP(url.host, url.port or 0, local_hostname="test", timeout=5) as client:
        with pytest.raises(smtplib.SMTPSenderRefused) as refused:
            client.sendmail("a@x.com", ["b@x.com"], LETTER)
        assert refused.value.smtp_code == 530
    assert list(office.records()) == []


def test_with_a_certificate_nothing_is_said_in_the_clear(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server("localhost")
    certificate = str(tmp_path / "localhost.pem")
    with spawn(tmp_path, smtp_port=0, smtp_certificate=certificate) as office:
        url = httpx.URL(office.smtp)
        with smtplib.SMTP("localhost", url.port or 0, local_hostname="test", timeout=5) as client:
            client.ehlo()
            assert not client.has_extn("auth")
            assert client.docmd("MAIL", "FROM:<a@x.com>")[0] == 530
            client.starttls(context=ssl.create_default_context(cafile=authority.file))
            client.login("simulator-id", "simulator-secret")
            client.sendmail("a@x.com", ["b@x.com"], LETTER)
    (record,) = office.records()
    assert record.accepted


@pytest.mark.parametrize(
    "letter",
    [
        "To: b@x.com\r\n\r\nno date, no sender, no id\r\n",
        HEAD + "From: c@x.com\r\n\r\ntwo senders\r\n",
        HEAD + 'Content-Type: multipart/mixed; boundary="b"\r\n\r\n--b\r\n\r\nnever ended\r\n',
        (HEAD + "\r\n你好\r\n").encode(),
    ],
    ids=["headers", "twice", "defect", "8bit"],
)
def test_a_letter_out_of_shape_is_refused(office: Simulator, letter: str | bytes) -> None:
    with visit(office) as client, pytest.raises(smtplib.SMTPDataError) as refused:
        client.sendmail("a@x.com", ["b@x.com"], letter)
    assert refused.value.smtp_code == 554
    assert not any(record.accepted for record in office.records())


def test_more_receivers_than_a_server_must_take_are_refused_one_by_one(office: Simulator) -> None:
    everyone = [f"u{n}@x.com" for n in range(102)]
    with visit(office) as client:
        refused = client.sendmail("a@x.com", everyone, LETTER)
    assert {address: code for address, (code, _) in refused.items()} == dict.fromkeys(
        everyone[100:], 452
    )


@pytest.mark.parametrize("silence", ["smtp_greeting_ms", "smtp_command_ms", "smtp_final_ms"])
def test_a_server_may_say_nothing_for_a_while(tmp_path: Path, silence: str) -> None:
    options: dict[str, Any] = {silence: 600}
    with spawn(tmp_path, smtp_port=0, **options) as office:
        marks = [monotonic()]
        with visit(office) as client:
            marks.append(monotonic())
            client.mail("a@x.com")
            client.rcpt("b@x.com")
            marks.append(monotonic())
            client.data(LETTER)
            marks.append(monotonic())
        greeting, commands, final = (b - a for a, b in pairwise(marks))
    slow = {"smtp_greeting_ms": greeting, "smtp_command_ms": commands, "smtp_final_ms": final}
    assert slow[silence] > 0.6
    assert office.ledger_report().summary.accepted == 1


@pytest.mark.parametrize(
    ("code", "stage"), [("mail:450 4.7.1 Error: too much mail from x", "mail"), ("451 later", ".")]
)
def test_a_code_may_be_a_whole_reply(office: Simulator, code: str, stage: str) -> None:
    office.control(rules=[Faults(codes={code: 1})])
    kind = smtplib.SMTPSenderRefused if stage == "mail" else smtplib.SMTPDataError
    with visit(office) as client, pytest.raises(kind) as refused:
        client.sendmail("a@x.com", ["b@x.com"], LETTER)
    assert isinstance(refused.value, smtplib.SMTPResponseException)
    text = refused.value.smtp_error
    assert isinstance(text, bytes)
    assert f"{refused.value.smtp_code} {text.decode()}" == code.removeprefix("mail:")


def test_a_kill_after_the_250_forgets_nothing(tmp_path: Path) -> None:
    with spawn(tmp_path, smtp_port=0) as first:
        client = visit(first)
        for number in range(20):
            client.sendmail("a@x.com", ["b@x.com"], LETTER.replace("k1", f"k{number}"))
        first.kill()
        client.close()
    kept = [record.id for record in read_ledger(first.ledger) if record.accepted]
    assert kept == [f"k{number}" for number in range(20)]


def test_refusing_new_connections_holds_for_mail_as_well(office: Simulator) -> None:
    address = (httpx.URL(office.smtp).host, httpx.URL(office.smtp).port or 0)
    office.control(refuse_new=True)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    office.control(refuse_new=False)
    with visit(office) as client:
        client.sendmail("a@x.com", ["b@x.com"], LETTER)


def test_rules_choose_by_sender_and_first_receiver(office: Simulator) -> None:
    office.control(
        rules=[
            Faults(path="/smtp/other@", codes={"554": 1}),
            Faults(receiver="b@", codes={"451": 1}),
        ]
    )
    with visit(office) as client:
        for sender, receiver, code in (
            ("other@x.com", "c@x.com", 554),
            ("a@x.com", "b@x.com", 451),
        ):
            with pytest.raises(smtplib.SMTPDataError) as refused:
                client.sendmail(sender, [receiver], LETTER)
            assert refused.value.smtp_code == code
        assert client.sendmail("a@x.com", ["c@x.com"], LETTER) == {}


def test_a_seed_decides_each_receivers_fate_whatever_comes_between(tmp_path: Path) -> None:
    def fates(folder: str, numbers: list[int]) -> dict[str, bool]:
        (tmp_path / folder).mkdir()
        rules = [Faults(codes={"451": 0.5})]
        with spawn(tmp_path / folder, seed="7", rules=rules, smtp_port=0) as office:
            with visit(office) as client:
                for number in numbers:
                    try:
                        client.sendmail("a@x.com", [f"u{number}@x.com"], LETTER)
                    except smtplib.SMTPDataError:
                        continue
            return {record.receiver: record.accepted for record in office.records()}

    forward, backward = fates("a", list(range(30))), fates("b", list(reversed(range(30))))
    assert forward == backward
    assert set(forward.values()) == {True, False}
