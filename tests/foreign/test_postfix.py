"""Postfix (Debian's package) is slow by purpose, and counts how many copies of each mail it gets.

The lanes have their built-in policy. With a limit of 5 s for the call a check of 7 s after the dot made up
to ten copies of a mail, and a greeting after 6 s kept it from getting out at all.
"""

from __future__ import annotations

import smtplib
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.stack import Stack
from message.envelope import Notification
from tests.foreign.postfix import Door, Postfix
from tests.harness import Fleet, await_, ground_on
from tests.harness.notifications import now_ms

CHECK_S, GREETING_S, SILENCE_S = 7, 6, 60
MAILS = 20
WAIT_S = 90.0


@pytest.fixture(scope="module")
def postfix() -> Iterator[Postfix]:
    doors = (
        Door("check", f"-o {{ smtpd_end_of_data_restrictions = sleep {CHECK_S} }}"),
        Door("silent", f"-o {{ smtpd_client_restrictions = sleep {SILENCE_S} }}"),
        Door("greeting", f"-o {{ smtpd_client_restrictions = sleep {GREETING_S} }}"),
    )
    with Postfix(doors) as started:
        yield started


def mails(kind: str, count: int) -> list[Notification]:
    return [
        Notification(
            id=f"{kind}-{number}-{now_ms()}",
            channel="email",
            kind=kind,
            receivers=[f"ann{number}@example.com"],
            content={"subject": f"订单 {number} 已发货", "text": "您的订单已发货。\n"},
            created_at=now_ms(),
        )
        for number in range(count)
    ]


def accounts(postfix: Postfix, door: str) -> dict[str, dict[str, str]]:
    return {
        "mail": {
            "provider": "smtp",
            "endpoint": f"smtp://127.0.0.1:{postfix.ports[door]}",
            "sender": "鸿雁 <no-reply@example.com>",
            "tls": "none",
        }
    }


def open_fleet(stack: Stack, folder: Path, postfix: Postfix, door: str, kind: str) -> Fleet:
    """With the built-in policy."""
    ground = ground_on(stack)
    fleet = Fleet(
        ground.__enter__(), folder, lanes=[f"email.{kind}"], accounts=accounts(postfix, door)
    )
    fleet._held.push(ground)
    return fleet


def copies(fleet: Fleet, postfix: Postfix) -> list[int]:
    """Of each mail that was sent, how many Postfix has."""
    taken = postfix.copies()
    names = {row.provider_id for row in fleet.books.rows(fleet.keys).values()}
    assert len(names) == len(fleet.keys)
    return [taken[str(name)] for name in names]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["notice", "verification"])
@pytest.mark.parametrize("door", ["check", "greeting"])
@pytest.mark.soak(cases="notice")
def test_a_slow_mail_server_gets_one_copy_of_each_mail(
    stack: Stack, tmp_path: Path, postfix: Postfix, door: str, kind: str
) -> None:
    with open_fleet(stack, tmp_path, postfix, door, kind) as fleet:
        fleet.recovery()
        fleet.worker().wait_ready()
        fleet.send(mails(kind, MAILS))
        fleet.await_states(WAIT_S, SENT=MAILS)
        await_(lambda: copies(fleet, postfix) == [1] * MAILS, what="Postfix has one of each")
        assert {row.attempt for row in fleet.books.rows(fleet.keys).values()} == {1}


@pytest.mark.timeout(240)
def test_a_worker_that_stops_before_the_dot_leaves_its_mails_to_another_and_nothing_in_doubt(
    stack: Stack, tmp_path: Path, postfix: Postfix
) -> None:
    before = postfix.connections()
    with open_fleet(stack, tmp_path, postfix, "silent", "notice") as fleet:
        first = fleet.worker().wait_ready()
        fleet.send(mails("notice", 8))
        await_(lambda: postfix.connections() >= before + 8, what="eight calls wait for a greeting")
        first.stop()  # within its drain, which ends long before the greeting
        rows = fleet.books.rows(fleet.keys).values()
        assert [(row.state, row.attempt) for row in rows] == [("RETRY", 0)] * 8
        fleet._accounts = accounts(postfix, "greeting")
        fleet.configure()
        fleet.worker().wait_ready()
        fleet.await_states(WAIT_S, SENT=8)
        await_(lambda: copies(fleet, postfix) == [1] * 8, what="Postfix has one of each")


def test_the_copies_are_counted(postfix: Postfix) -> None:
    """The judge itself: two deliveries of one Message-ID are two."""
    letter = "Message-ID: <twice@example.com>\r\nSubject: x\r\n\r\nhi\r\n"
    for _ in range(2):
        with smtplib.SMTP("127.0.0.1", postfix.ports["greeting"], timeout=20) as client:
            client.sendmail("a@example.com", ["b@example.com"], letter)
    await_(
        lambda: postfix.copies()["twice@example.com"] == 2, what="Postfix took both, and says so"
    )
