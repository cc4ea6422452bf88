"""The mail transport over real sockets: what was written decides, one deadline covers all of it."""

import socket
import threading
from base64 import b64decode
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import pytest
import structlog

from channels.channel import Failure, Phase
from channels.http_client.failures import BadRequest
from channels.secret import Secret
from channels.smtp_client.mail_request import (
    NO_CODE,
    Envelope,
    Login,
    SmtpReply,
    SmtpReplySet,
    SmtpStage,
    mail_request,
    read_told,
)
from channels.smtp_client.name_lookups import NameLookups
from channels.smtp_client.session import MAX_MESSAGES
from channels.smtp_client.transport import SmtpTransport
from simulator.servers.certificates import Authority
from tests.channels.smtp_server import (
    PATIENCE_S,
    Act,
    MailServer,
    close,
    drip,
    reset,
    say,
    stall,
)
from tests.conformance.wire import descriptors

MESSAGE = b"From: a@example.com\r\n\r\nhello\r\n"
PASSWORD = "the-password"
DEAD = "mail.dead.example"
"""A server whose name servers do not answer."""
TOTAL_S = 1.0
"""Enough to reach the stage that hangs, also on a busy machine."""


class Time:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def transport(time: Time) -> Iterator[SmtpTransport]:
    transport = SmtpTransport(idle_s=60, clock=time)
    yield transport
    transport.close()


def mail(
    server: MailServer | int,
    message: bytes = MESSAGE,
    *,
    scheme: str = "smtp",
    host: str = "127.0.0.1",
    ca_file: str = "",
    total_s: float = 5.0,
    **envelope: Any,
) -> httpx.Request:
    port = server if isinstance(server, int) else server.port
    given = {"tls": "none", "receivers": ("b@example.com",), **envelope}
    request = mail_request(
        httpx.URL(f"{scheme}://{host}:{port}"),
        Envelope(sender="a@example.com", **given),
        message,
        ca_file,
    )
    request.extensions["timeout"] = {"total": total_s}
    return request


def told(answer: httpx.Response | Failure) -> SmtpReplySet:
    assert isinstance(answer, httpx.Response), answer
    return read_told(answer)


def failed(answer: httpx.Response | Failure) -> Failure:
    assert isinstance(answer, Failure), answer
    return answer


def test_a_message_arrives_as_it_was_written_and_is_answered_with_every_reply(
    transport: SmtpTransport,
) -> None:
    with MailServer({"RCPT": "250 2.1.5 known"}) as server:
        answer = transport.send(mail(server, receivers=("b@example.com", "c@example.com")))
        assert server.messages == [MESSAGE]
        assert server.commands[1:] == [
            f"MAIL FROM:<a@example.com> SIZE={len(MESSAGE)}",
            "RCPT TO:<b@example.com>",
            "RCPT TO:<c@example.com>",
            "DATA",
        ]
    assert isinstance(answer, httpx.Response)
    assert answer.status_code == 250
    assert answer.json() == {
        "stage": "final",
        "reply": {"code": 250, "text": "queued"},
        "receivers": [{"code": 250, "text": "2.1.5 known"}] * 2,
    }


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (b".\r\n", b"..\r\n"),
        (b"a\r\n.b\r\n..c\r\n", b"a\r\n..b\r\n...c\r\n"),
        (b"no end", b"no end\r\n"),
        (b"a\r\n.\r\nQUIT\r\n", b"a\r\n..\r\nQUIT\r\n"),
    ],
)
def test_no_content_ends_a_message(transport: SmtpTransport, message: bytes, wire: bytes) -> None:
    with MailServer() as server:
        assert told(transport.send(mail(server, message))).stage is SmtpStage.FINAL
        assert server.messages == [wire]


@pytest.mark.parametrize("stage", ["greeting", "EHLO", "AUTH", "MAIL", "RCPT", "DATA"])
@pytest.mark.parametrize("act", [close, reset, say(b"25", on=False)])
def test_what_is_lost_before_the_content_was_not_sent(
    transport: SmtpTransport, stage: str, act: Act
) -> None:
    with MailServer({stage: act}) as server:
        request = mail(server, login=Login("user", Secret(PASSWORD)))
        assert failed(transport.send(request)).phase is Phase.NOT_WRITTEN
        assert server.messages == []


@pytest.mark.parametrize("act", [close, reset, say(b"250 que", on=False)])
def test_what_is_lost_after_the_final_dot_is_in_doubt(transport: SmtpTransport, act: Act) -> None:
    with MailServer({".": act}) as server:
        failure = failed(transport.send(mail(server)))
        assert (failure.phase, failure.code) == (Phase.WRITTEN, "reset")
        assert server.messages == [MESSAGE]


@pytest.mark.parametrize("stage", ["greeting", "EHLO", "RCPT", "."])
@pytest.mark.parametrize("act", [close, reset])
def test_a_server_that_ends_each_session_costs_no_descriptors(
    transport: SmtpTransport, stage: str, act: Act
) -> None:
    with MailServer({stage: act}) as server:
        transport.send(mail(server))
        open_before = descriptors()
        for _ in range(20):
            transport.send(mail(server))
        assert descriptors() <= open_before + 1  # the server's side of the last one


def test_a_content_that_is_not_taken_whole_was_not_sent(transport: SmtpTransport) -> None:
    def deaf(server: MailServer, connection: socket.socket) -> bool:
        connection.sendall(b"354 go on\r\n")
        connection.recv(10)
        return reset(server, connection)

    with MailServer({"DATA": deaf}) as server:
        failure = failed(transport.send(mail(server, b"x" * 50_000_000)))
        assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "reset")


@pytest.mark.parametrize(
    ("stage", "phase"),
    [
        ("greeting", Phase.NOT_WRITTEN),
        ("EHLO", Phase.NOT_WRITTEN),
        ("MAIL", Phase.NOT_WRITTEN),
        ("RCPT", Phase.NOT_WRITTEN),
        ("DATA", Phase.NOT_WRITTEN),
        (".", Phase.WRITTEN),
    ],
)
@pytest.mark.parametrize("act", [stall, drip])
def test_the_deadline_ends_whatever_goes_on(
    transport: SmtpTransport, stage: str, phase: Phase, act: Act
) -> None:
    with MailServer({stage: act}) as server:
        started = monotonic()
        failure = failed(transport.send(mail(server, total_s=TOTAL_S)))
        assert (failure.phase, failure.code) == (phase, "timeout")
        assert TOTAL_S - 0.1 < monotonic() - started < TOTAL_S + PATIENCE_S


def pause(seconds: float, reply: str) -> Act:
    """The reply, so much later."""

    def act(server: MailServer, connection: socket.socket) -> bool:
        sleep(seconds)
        connection.sendall(reply.encode() + b"\r\n")
        return True

    return act


STEPS = {"connect": 5.0, "greeting": 0.2, "command": 0.2, "data": 0.2, "final": 0.2}


@pytest.mark.parametrize(
    ("stage", "reply", "step"),
    [
        ("greeting", "220 ready", "greeting"),
        ("EHLO", "250 here", "command"),
        ("MAIL", "250 fine", "command"),
        ("RCPT", "250 fine", "command"),
        ("DATA", "354 go on", "data"),
        (".", "250 queued", "final"),
    ],
)
def test_each_step_has_a_limit_of_its_own(
    transport: SmtpTransport, stage: str, reply: str, step: str
) -> None:
    with MailServer({stage: pause(0.6, reply)}) as server:
        request = mail(server)
        request.extensions["timeout"] |= STEPS
        failure = failed(transport.send(request))
        assert failure.code == "timeout"
        assert f"({step})" in failure.detail
        request = mail(server)
        request.extensions["timeout"] |= {**STEPS, step: 3.0}
        assert told(transport.send(request)).stage is SmtpStage.FINAL


def test_the_dot_is_written_only_while_its_reply_has_all_its_time(
    transport: SmtpTransport,
) -> None:
    with MailServer({"DATA": pause(0.4, "354 go on")}) as server:
        request = mail(server, total_s=1.0)
        request.extensions["timeout"]["final"] = 0.8
        failure = failed(transport.send(request))
        assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "timeout")
        assert server.messages == []


def test_a_call_that_was_taken_back_ends_before_the_dot(transport: SmtpTransport) -> None:
    def withdrawn() -> str:
        return "ttl_in_queue" if "DATA" in server.commands else ""

    with MailServer() as server:
        request = mail(server)
        request.extensions["withdrawn"] = withdrawn
        failure = failed(transport.send(request))
        assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "withdrawn")
        assert "ttl_in_queue" in failure.detail
        assert server.hung_up.wait(PATIENCE_S)
        assert server.messages == []


@pytest.mark.parametrize("stage", ["greeting", "EHLO", "AUTH", "MAIL", "RCPT", "DATA"])
def test_a_call_that_is_taken_back_waits_for_no_silent_server(
    transport: SmtpTransport, stage: str
) -> None:
    with MailServer({stage: stall}) as server:
        begun = monotonic()
        request = mail(server, total_s=PATIENCE_S, login=Login("user", Secret(PASSWORD)))
        request.extensions["withdrawn"] = lambda: "given_back" if server.stalled.is_set() else ""
        failure = failed(transport.send(request))
        assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "withdrawn")
        assert monotonic() - begun < PATIENCE_S / 2
        assert transport.idle == 0


def test_what_is_past_the_dot_is_not_taken_back(transport: SmtpTransport) -> None:
    with MailServer({".": pause(1.0, "250 queued")}) as server:
        request = mail(server)
        request.extensions["withdrawn"] = lambda: "given_back" if server.messages else ""
        assert told(transport.send(request)).stage is SmtpStage.FINAL


def test_a_call_that_was_taken_back_before_it_began_leaves_the_session_to_others(
    transport: SmtpTransport,
) -> None:
    with MailServer() as server:
        request = mail(server)
        request.extensions["withdrawn"] = lambda: "given_back"
        assert failed(transport.send(request)).code == "withdrawn"
        assert told(transport.send(mail(server))).stage is SmtpStage.FINAL
        assert (server.connections, len(server.messages)) == (1, 1)


def test_a_lease_that_was_renewed_meanwhile_lets_the_message_go(transport: SmtpTransport) -> None:
    with MailServer() as server:
        request = mail(server)
        request.extensions |= {"not_after": monotonic() - 1, "withdrawn": lambda: ""}
        assert told(transport.send(request)).stage is SmtpStage.FINAL


def test_a_server_that_reads_no_content_holds_nobody_past_the_deadline(
    transport: SmtpTransport,
) -> None:
    def deaf(server: MailServer, connection: socket.socket) -> bool:
        connection.sendall(b"354 go on\r\n")
        server.over.recv(1)
        return False

    with MailServer({"DATA": deaf}) as server:
        failure = failed(transport.send(mail(server, b"x" * 50_000_000, total_s=TOTAL_S)))
        assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "timeout")


@pytest.mark.parametrize(
    ("at", "stage", "code"),
    [
        ({"greeting": "554 no service"}, SmtpStage.GREETING, 554),
        ({"EHLO": "550 who are you"}, SmtpStage.HELLO, 550),
        ({"AUTH": "535 wrong"}, SmtpStage.AUTH, 535),
        ({"MAIL": "451 later"}, SmtpStage.MAIL, 451),
        ({"RCPT": "550 nobody"}, SmtpStage.RCPT, 550),
        ({"DATA": "554 no"}, SmtpStage.DATA, 554),
        ({".": "552 too large"}, SmtpStage.FINAL, 552),
    ],
)
def test_a_refusal_is_told_with_its_stage(
    transport: SmtpTransport, at: dict[str, str], stage: SmtpStage, code: int
) -> None:
    with MailServer(at) as server:
        said = told(transport.send(mail(server, login=Login("user", Secret(PASSWORD)))))
        assert (said.stage, said.reply.code) == (stage, code)


def refuse(*refused: str, with_code: int = 550) -> Act:
    """RCPT is refused for these receivers."""

    def act(server: MailServer, connection: socket.socket) -> bool:
        bad = any(one in server.commands[-1] for one in refused)
        connection.sendall(b"%d said\r\n" % (with_code if bad else 250))
        return True

    return act


def test_a_refused_receiver_leaves_the_others_theirs(transport: SmtpTransport) -> None:
    receivers = ("b@example.com", "c@example.com", "d@example.com")
    with MailServer({"RCPT": refuse("c@")}) as server:
        said = told(transport.send(mail(server, receivers=receivers)))
        assert [one.code for one in said.receivers] == [250, 550, 250]
        assert (said.stage, said.reply.code) == (SmtpStage.FINAL, 250)
        assert len(server.messages) == 1


@pytest.mark.parametrize("act", [close, reset])
def test_a_refused_receiver_is_refused_even_if_the_rest_is_lost_after_the_dot(
    transport: SmtpTransport, act: Act
) -> None:
    receivers = ("b@example.com", "c@example.com")
    with MailServer({"RCPT": refuse("c@"), ".": act}) as server:
        said = told(transport.send(mail(server, receivers=receivers)))
        assert [one.code for one in said.receivers] == [250, 550]
        assert (said.stage, said.reply.code, said.lost) == (SmtpStage.FINAL, NO_CODE, "reset")
        failure = failed(transport.send(mail(server)))  # nobody refused: as over HTTP
        assert (failure.phase, failure.code) == (Phase.WRITTEN, "reset")


def test_a_copy_is_never_sent_without_the_receiver(transport: SmtpTransport) -> None:
    with MailServer({"RCPT": refuse("b@")}) as server:
        said = told(transport.send(mail(server, copies=("boss@example.com",))))
        assert (said.stage, server.messages) == (SmtpStage.RCPT, [])
        assert not any("boss@" in command for command in server.commands)


def test_a_refused_copy_holds_nobody_back_and_is_logged_without_its_address(
    transport: SmtpTransport,
) -> None:
    with MailServer({"RCPT": refuse("boss@")}) as server, structlog.testing.capture_logs() as log:
        said = told(transport.send(mail(server, copies=("boss@example.com",))))
        assert (said.stage, said.reply.code, len(said.receivers)) == (SmtpStage.FINAL, 250, 1)
        assert len(server.messages) == 1
    assert [entry["event"] for entry in log] == ["copy_refused"]
    assert "boss@" not in repr(log)


@pytest.mark.parametrize("go", [True, False])
def test_the_replies_to_the_receivers_decide_about_copies(
    transport: SmtpTransport, go: bool
) -> None:
    seen: list[list[int]] = []

    def decide(replies: Sequence[SmtpReply]) -> bool:
        seen.append([reply.code for reply in replies])
        return go

    receivers, copies = ("b@example.com", "c@example.com"), ("boss@example.com",)
    with MailServer({"RCPT": refuse("b@")}) as server:
        request = mail(server, receivers=receivers, copies=copies, copies_go=decide)
        said = told(transport.send(request))
        assert (said.stage, said.reply.code, len(server.messages)) == (SmtpStage.FINAL, 250, 1)
        assert any("boss@" in command for command in server.commands) is go
    assert seen == [[550, 250]]


@pytest.mark.parametrize("place", ["b@", "c@", "boss@"])
def test_a_server_that_says_goodbye_between_receivers_was_sent_nothing(
    transport: SmtpTransport, place: str
) -> None:
    receivers = ("b@example.com", "c@example.com")
    with MailServer({"RCPT": refuse(place, with_code=421)}) as server:
        said = told(transport.send(mail(server, receivers=receivers, copies=("boss@x.com",))))
        assert (said.stage, said.reply.code, server.messages) == (SmtpStage.RCPT, 421, [])
        assert transport.idle == 0


def test_messages_one_after_another_share_a_session(transport: SmtpTransport) -> None:
    with MailServer() as server:
        for _ in range(5):
            thread = threading.Thread(target=transport.send, args=(mail(server),))
            thread.start()
            thread.join()
        assert (len(server.messages), server.connections, transport.idle) == (5, 1, 1)
        assert server.commands.count("RSET") == 4


@pytest.mark.parametrize("at", [{"MAIL": "451 later"}, {"RCPT": "550 nobody"}, {"DATA": "451 no"}])
def test_a_refused_message_leaves_the_session_to_the_next(
    transport: SmtpTransport, at: dict[str, str]
) -> None:
    with MailServer(at) as server:
        told(transport.send(mail(server, total_s=60)))
        server.at.clear()
        assert told(transport.send(mail(server, total_s=60))).stage is SmtpStage.FINAL
        assert server.connections == 1


@pytest.mark.parametrize("goodbye", [close, reset, say(b"421 idle for too long\r\n", on=False)])
def test_a_session_that_died_while_idle_is_replaced_and_the_message_sent_once(
    transport: SmtpTransport, goodbye: Act
) -> None:
    with MailServer() as server:
        told(transport.send(mail(server)))
        server.at["RSET"] = goodbye
        assert told(transport.send(mail(server))).stage is SmtpStage.FINAL
        assert (len(server.messages), server.connections) == (2, 2)


def test_a_session_that_says_nothing_more_leaves_time_for_a_new_one(
    transport: SmtpTransport,
) -> None:
    with MailServer() as server:
        told(transport.send(mail(server)))
        server.at["RSET"] = stall
        assert told(transport.send(mail(server, total_s=1.0))).stage is SmtpStage.FINAL
        assert server.connections == 2


def test_a_session_ends_after_so_many_messages(transport: SmtpTransport) -> None:
    with MailServer() as server:
        for _ in range(MAX_MESSAGES + 1):
            told(transport.send(mail(server)))
        assert (len(server.messages), server.connections) == (MAX_MESSAGES + 1, 2)


def test_another_login_is_another_session(transport: SmtpTransport) -> None:
    with MailServer() as server:
        for login in (None, Login("one", Secret("1")), Login("one", Secret("2"))):
            told(transport.send(mail(server, login=login)))
        assert (server.connections, transport.idle) == (3, 3)


def test_twenty_threads_send_each_message_once(transport: SmtpTransport) -> None:
    bodies = [b"%d\r\n" % number for number in range(200)]
    with MailServer() as server, ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda body: transport.send(mail(server, body)), bodies))
        assert {told(answer).reply.code for answer in answers} == {250}
        assert sorted(server.messages) == sorted(bodies)
        assert server.connections <= 20 + len(bodies) // MAX_MESSAGES


def test_idle_sessions_are_closed_after_the_limit(transport: SmtpTransport, time: Time) -> None:
    with MailServer() as server:
        told(transport.send(mail(server)))
        time.now += 59
        transport.sweep()
        assert transport.idle == 1
        time.now += 2
        transport.sweep()
        assert transport.idle == 0
        assert server.hung_up.wait(PATIENCE_S)
        assert server.commands[-1] == "QUIT"


def test_the_janitor_sweeps_by_itself() -> None:
    transport = SmtpTransport(idle_s=0.02)
    with MailServer() as server:
        told(transport.send(mail(server)))
        assert server.hung_up.wait(PATIENCE_S)
    transport.close()


def test_a_closed_transport_sends_nothing_more() -> None:
    transport = SmtpTransport()
    with MailServer() as server:
        told(transport.send(mail(server)))
        transport.close()
        transport.close()
        failure = failed(transport.send(mail(server)))
        assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "closed")
        assert len(server.messages) == 1


def test_a_refused_connection_was_not_sent(transport: SmtpTransport) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        failure = failed(transport.send(mail(bound.getsockname()[1])))
    assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "connect")


def test_a_name_that_is_not_found_was_not_sent(transport: SmtpTransport) -> None:
    failure = failed(transport.send(mail(25, host="no-such-host.invalid", tls="starttls")))
    assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "dns")


class Names:
    """A resolver that says nothing about one server until the test lets it."""

    def __init__(self, dead: str = DEAD) -> None:
        self.dead = dead
        self.asked: list[str] = []
        self.waiting = threading.Event()
        """Set by the first question about the dead name."""
        self.answers = threading.Event()
        self._resolve = socket.getaddrinfo

    def __call__(self, host: str, *given: Any, **named: Any) -> Any:
        if host != self.dead:
            return self._resolve(host, *given, **named)
        self.asked.append(host)
        self.waiting.set()
        self.answers.wait(PATIENCE_S)
        raise socket.gaierror(socket.EAI_AGAIN, "too late")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    made = Names()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.answers.set()


def unresolved(total_s: float = 0.1, host: str = DEAD) -> httpx.Request:
    return mail(25, host=host, tls="starttls", total_s=total_s)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_name_that_is_not_resolved_in_time_holds_up_its_own_calls_alone(
    transport: SmtpTransport, names: Names, host: str
) -> None:
    for _ in range(4):
        failure = failed(transport.send(unresolved()))
        assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "dns")
        assert failure.detail == f"{DEAD}: the name was not resolved in time"
    assert names.asked == [DEAD], "its calls share one look-up"
    with MailServer() as server:
        assert told(transport.send(mail(server, host=host))).stage is SmtpStage.FINAL


def test_a_name_is_looked_up_anew_once_its_look_up_has_ended(
    transport: SmtpTransport, names: Names
) -> None:
    failed(transport.send(unresolved()))
    (looking,) = [one for one in threading.enumerate() if one.name == f"smtp-name-{DEAD}"]
    names.answers.set()
    looking.join(PATIENCE_S)
    assert failed(transport.send(unresolved(PATIENCE_S))).detail.endswith("too late")
    assert names.asked == [DEAD] * 2


def test_without_a_thread_a_name_is_not_resolved_and_an_address_needs_none(
    transport: SmtpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    lookups = NameLookups()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        failure = failed(transport.send(mail(25, host="localhost")))
        found = lookups.addresses("127.0.0.1", 25, 0.0)
    assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "dns")
    assert found == [(socket.AF_INET, ("127.0.0.1", 25))]
    with MailServer() as server:
        assert told(transport.send(mail(server, host="localhost"))).stage is SmtpStage.FINAL


def test_a_name_that_can_be_none_is_a_bad_request(transport: SmtpTransport) -> None:
    with pytest.raises(BadRequest):
        transport.send(unresolved(PATIENCE_S, host="a" * 64 + ".example"))


def test_a_transport_that_is_closed_meanwhile_was_sent_nothing(
    transport: SmtpTransport, names: Names
) -> None:
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(transport.send, unresolved(PATIENCE_S)) for _ in range(3)]
        assert names.waiting.wait(PATIENCE_S)
        transport.close()
        failures = [failed(one.result(PATIENCE_S / 2)) for one in calls]
    assert {failure.phase for failure in failures} == {Phase.NOT_WRITTEN}


def test_a_reply_without_end_is_cut_off(transport: SmtpTransport) -> None:
    with MailServer({"MAIL": say(b"250-more\r\n" * 10_000)}) as server:
        failure = failed(transport.send(mail(server)))
        assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "reset")
        assert "more than" in failure.detail


def test_a_reply_to_the_dot_that_is_none_is_told_as_it_is(transport: SmtpTransport) -> None:
    with MailServer({".": "HTTP/1.1 502 Bad Gateway"}) as server:
        said = told(transport.send(mail(server)))
        assert (said.stage, said.reply.code) == (SmtpStage.FINAL, -1)


# ---- TLS -------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def secured(server: MailServer, authority: Authority | None, **more: Any) -> httpx.Request:
    ca_file = str(authority.file) if authority else ""
    given = {"tls": "starttls", "host": "localhost", "ca_file": ca_file, **more}
    return mail(server, login=Login("user", Secret(PASSWORD)), **given)


def test_starttls_comes_before_the_login(transport: SmtpTransport, authority: Authority) -> None:
    with MailServer(starttls=authority.server("localhost")) as server:
        for _ in range(2):
            assert told(transport.send(secured(server, authority))).stage is SmtpStage.FINAL
        verbs = [command.split(" ")[0] for command in server.commands]
        assert verbs[:5] == ["EHLO", "STARTTLS", "EHLO", "AUTH", "MAIL"]
        assert (server.connections, len(server.messages)) == (1, 2)


def test_smtps_is_tls_from_the_first_byte(transport: SmtpTransport, authority: Authority) -> None:
    with MailServer(implicit=authority.server("localhost")) as server:
        answer = transport.send(secured(server, authority, scheme="smtps"))
        assert told(answer).stage is SmtpStage.FINAL
        assert "STARTTLS" not in server.commands


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
@pytest.mark.parametrize(("name", "trusted"), [("localhost", False), ("other.example", True)])
def test_a_certificate_that_does_not_fit_was_sent_nothing(
    transport: SmtpTransport, authority: Authority, scheme: str, name: str, trusted: bool
) -> None:
    context = authority.server(name)
    late, at_once = (context, None) if scheme == "smtp" else (None, context)
    with MailServer(starttls=late, implicit=at_once) as server:
        request = secured(server, authority if trusted else None, scheme=scheme)
        failure = failed(transport.send(request))
        assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "tls")
        assert not any(c.startswith(("AUTH", "MAIL")) for c in server.commands)


def test_a_server_without_starttls_is_told_nothing(
    transport: SmtpTransport, authority: Authority
) -> None:
    with MailServer() as server:
        for _ in range(2):  # nor by a session that was kept
            failure = failed(transport.send(secured(server, authority)))
            assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "tls")
        assert transport.idle == 0
        assert [c for c in server.commands if not c.startswith(("EHLO", "QUIT"))] == []


def test_starttls_that_is_refused_is_told(transport: SmtpTransport, authority: Authority) -> None:
    at = {"STARTTLS": "454 not now"}
    with MailServer(at, starttls=authority.server("localhost")) as server:
        said = told(transport.send(secured(server, authority)))
        assert (said.stage, said.reply.code) == (SmtpStage.STARTTLS, 454)
        assert not any(c.startswith("AUTH") for c in server.commands)


def test_what_was_said_before_tls_counts_for_nothing(
    transport: SmtpTransport, authority: Authority
) -> None:
    context = authority.server("localhost")

    def inject(server: MailServer, connection: socket.socket) -> bool:
        connection.sendall(b"220 go\r\n250 you may log in in the clear\r\n")
        with context.wrap_socket(connection, server_side=True) as secure:
            server.messages.append(secure.recv(100))
        return False

    with MailServer({"STARTTLS": inject}, starttls=context) as server:
        failure = failed(transport.send(secured(server, authority, total_s=2.0)))
        assert failure.phase is Phase.NOT_WRITTEN
        assert not any(message.startswith(b"AUTH") for message in server.messages)


def test_a_ca_file_that_is_not_there_was_not_sent(transport: SmtpTransport, tmp_path: Path) -> None:
    with MailServer() as server:
        request = secured(server, None, ca_file=str(tmp_path / "none.pem"))
        failure = failed(transport.send(request))
        assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "tls")


def test_mail_goes_in_the_clear_on_this_machine_alone(transport: SmtpTransport) -> None:
    with pytest.raises(BadRequest, match="TLS"):
        transport.send(mail(25, host="mail.example.com"))


@pytest.mark.parametrize(
    "request_",
    [
        httpx.Request("MAIL", "smtp://127.0.0.1:25", content=b"x"),
        mail(25, copies=("c@example.com> NOTIFY=NEVER",)),
        mail(25, receivers=()),
        mail(25, receivers=("b@example.com>\r\nRCPT TO:<c@example.com",)),
    ],
    ids=["no envelope", "parameters", "no receiver", "line break"],
)
def test_what_is_no_mail_is_a_bad_request(
    transport: SmtpTransport, request_: httpx.Request
) -> None:
    with MailServer() as server:
        request_.url = httpx.URL(f"smtp://127.0.0.1:{server.port}")
        with pytest.raises(BadRequest):
            transport.send(request_)
        assert server.messages == []
        assert not any("c@" in command for command in server.commands)


def answers(*replies: str) -> Act:
    """One reply after another, each to a line of the client."""

    def act(server: MailServer, connection: socket.socket) -> bool:
        for reply in replies[:-1]:
            connection.sendall(reply.encode() + b"\r\n")
            server.commands.append(connection.recv(1_000).decode().rstrip("\r\n"))
        connection.sendall(replies[-1].encode() + b"\r\n")
        return True

    return act


@pytest.mark.parametrize("offered", ["PLAIN LOGIN CRAM-MD5", "CRAM-MD5 PLAIN", "LOGIN PLAIN"])
def test_a_wrong_password_is_tried_once(transport: SmtpTransport, offered: str) -> None:
    with MailServer({"AUTH": "535 wrong"}, features=(f"AUTH {offered}",)) as server:
        said = told(transport.send(mail(server, login=Login("user", Secret(PASSWORD)))))
        assert (said.stage, said.reply.code) == (SmtpStage.AUTH, 535)
        assert [one.split()[1] for one in server.commands if one.startswith("AUTH")] == ["PLAIN"]
        assert (server.connections, transport.idle) == (1, 0)


def test_a_password_may_be_anything_utf_8_can_say(transport: SmtpTransport) -> None:
    with MailServer() as server:
        told(transport.send(mail(server, login=Login("user", Secret("密码")))))
        line = next(one for one in server.commands if one.startswith("AUTH"))
    assert b64decode(line.split()[2]).decode() == "\0user\0密码"


@pytest.mark.parametrize(
    ("offered", "replies", "lines"),
    [
        ("LOGIN", ("334 VXNlcm5hbWU6", "334 UGFzc3dvcmQ6", "235 in"), ["user", PASSWORD]),
        (
            "CRAM-MD5",
            ("334 PDE4OTYuNjk3MTcwOTUyQHBvc3RvZmZpY2U+", "235 in"),
            ["user aa1f52a05e78d0bfcc7a2d0fc5a46f0b"],
        ),
    ],
)
def test_other_ways_of_logging_in_are_known(
    transport: SmtpTransport, offered: str, replies: tuple[str, ...], lines: list[str]
) -> None:
    with MailServer({"AUTH": answers(*replies)}, features=(f"AUTH {offered}",)) as server:
        assert told(transport.send(mail(server, login=Login("user", Secret(PASSWORD))))).reply.code
        place = server.commands.index(
            next(one for one in server.commands if one.startswith("AUTH"))
        )
        said = [b64decode(one).decode() for one in server.commands[place + 1 :][: len(lines)]]
    if offered == "LOGIN":
        assert said == lines
    else:
        assert said[0].startswith("user ")
        assert len(said[0]) == len(lines[0])


def test_a_token_is_shown_by_xoauth2_and_its_refusal_is_told(transport: SmtpTransport) -> None:
    login = Login("ann@example.com", Secret("ya29.token"), by_token=True)
    with MailServer({"AUTH": answers("334 eyJzdGF0dXMiOiI0MDEifQ==", "535 5.7.8 no")}) as server:
        said = told(transport.send(mail(server, login=login)))
        assert (said.stage, said.reply.code) == (SmtpStage.AUTH, 535)
        auth, empty = server.commands[1:3]
        assert empty == ""
    method, _, text = auth.removeprefix("AUTH ").partition(" ")
    assert method == "XOAUTH2"
    assert b64decode(text) == b"user=ann@example.com\x01auth=Bearer ya29.token\x01\x01"


def test_a_server_without_login_is_not_talked_to(transport: SmtpTransport) -> None:
    with MailServer(features=("SIZE 1000",)) as server:
        failure = failed(transport.send(mail(server, login=Login("user", Secret(PASSWORD)))))
        assert (failure.phase, failure.code) == (Phase.NOT_WRITTEN, "protocol")


def test_the_password_is_seen_nowhere_but_on_the_wire(transport: SmtpTransport) -> None:
    with structlog.testing.capture_logs() as log:
        for at in ({}, {"AUTH": "535 wrong"}, {"AUTH": close}, {".": close}):
            with MailServer(at) as server:
                request = mail(server, login=Login("user", Secret(PASSWORD)))
                answer = transport.send(request)
                shown = [repr(request), repr(request.extensions), repr(request.headers)]
                shown += [repr(answer), str(request.url)]
                if isinstance(answer, httpx.Response):
                    shown.append(answer.text)
                assert PASSWORD not in "".join(shown)
                assert any(command.startswith("AUTH PLAIN ") for command in server.commands)
    assert PASSWORD not in repr(log)
