"""aiosmtpd judges how a mail account shows its access token: its AUTH machinery reads the lines, and
refuses as Gmail documents it (334 with the cause, an empty line, 535)."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session

from channels.engine import Engine
from channels.probe.probe import ExchangeRecorder, OwnTokens
from channels.providers.email_smtp.adapter import CHANNELS
from channels.registry import load_accounts
from channels.transports import TransportRouter
from message.outcomes import Accepted, AnyOutcome, NotSent
from tests.channels.providers.test_smtp import call
from tests.foreign.loopback import free_port

pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
USER = "no-reply@example.com"


class Issuer(BaseHTTPRequestHandler):
    """Gives token-1, token-2, … for the one refresh token."""

    given: ClassVar[int] = 0

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        good = form.get("refresh_token") == ["refresh-1"]
        Issuer.given += good
        said = {"access_token": f"token-{Issuer.given}", "expires_in": 3_599}
        body = json.dumps(said if good else {"error": "invalid_grant"}).encode()
        self.send_response(200 if good else 400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Office:
    """Takes mail from whoever shows a token that is good."""

    def __init__(self, *good: str) -> None:
        self.good = good
        self.shown: list[str] = []
        self.letters: list[bytes] = []

    async def auth_XOAUTH2(self, server: SMTP, lines: list[str]) -> AuthResult:  # noqa: N802
        fields = b64decode(lines[1]).decode().split("\x01")
        assert fields[0] == f"user={USER}"
        assert fields[2:] == ["", ""]
        self.shown.append(fields[1].removeprefix("auth=Bearer "))
        if self.shown[-1] in self.good:
            return AuthResult(success=True)
        answer = await server.challenge_auth(b'{"status":"401"}')
        assert answer == b""
        return AuthResult(success=False, handled=False)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        assert session.authenticated
        self.letters.append(envelope.original_content or b"")
        return "250 2.0.0 queued"


@pytest.fixture
def issuer() -> Iterator[str]:
    Issuer.given = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    server.server_close()


def sent(office: Office, token_url: str, times: int = 1, **changes: Any) -> list[AnyOutcome]:
    port = free_port()
    controller = Controller(office, "127.0.0.1", port, auth_required=True, auth_require_tls=False)
    controller.start()
    wires = TransportRouter()
    try:
        table = {
            "provider": "smtp",
            "endpoint": f"smtp://127.0.0.1:{port}",
            "sender": USER,
            "user": USER,
            "tls": "none",
            "token_url": token_url,
            "client_id": "client-1",
            "client_secret": "secret-1",
            "refresh_token": "refresh-1",
            **changes,
        }
        account = load_accounts({"mail": table})["mail"]
        recorder = ExchangeRecorder(wires)
        engine = Engine(recorder, OwnTokens(recorder, 5.0))
        calls = (call(to_account=account, message_id=f"m-{n}") for n in range(times))
        return [engine.send(CHANNELS[0], one, 10.0)[0] for one in calls]
    finally:
        wires.close()
        controller.stop()


def test_a_token_is_fetched_once_and_lets_the_mails_in(issuer: str) -> None:
    office = Office("token-1")
    assert all(isinstance(one, Accepted) for one in sent(office, issuer, times=3))
    assert (office.shown, len(office.letters), Issuer.given) == (["token-1"], 3, 1)


def test_a_token_that_is_refused_is_renewed_and_the_mail_goes_once(issuer: str) -> None:
    office = Office("token-2")
    (found,) = sent(office, issuer)
    assert isinstance(found, Accepted)
    assert (office.shown, len(office.letters)) == (["token-1", "token-2"], 1)


def test_a_server_that_takes_none_halts_the_account_and_gets_nothing(issuer: str) -> None:
    office = Office()
    (found,) = sent(office, issuer)
    assert isinstance(found, NotSent)
    assert (found.code, found.account, office.letters) == ("token_refused", True, [])


def test_a_refused_login_gets_no_further_than_the_issuer(issuer: str) -> None:
    office = Office("token-1")
    (found,) = sent(office, issuer, refresh_token="revoked")
    assert isinstance(found, NotSent)
    assert (office.shown, office.letters) == ([], [])
